"""Watches the processes of a job until they have ended. See README.md for the map."""
