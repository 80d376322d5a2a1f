"""The recorder: what runs inside other people's processes. Standard library and lastwords._native alone."""
