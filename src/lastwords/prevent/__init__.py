"""Prevent: know before the job starts. `scan` reads libraries, `cpus` knows what a CPU can do."""
