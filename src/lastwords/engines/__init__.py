"""Engines: lastwords inside the systems that run other people's workers. See README.md and contract.py."""
