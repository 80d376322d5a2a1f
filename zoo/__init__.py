"""Real deaths, made on purpose, each with its true cause."""
