"""Losing one task and not the job. See README.md for the map."""
