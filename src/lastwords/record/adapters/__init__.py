"""One library, one file: how its workers are told apart and how its items are named.

Each has `adapt(module)`, called once when the library's module has been imported. None adds a frame to a
user's traceback, replaces a type, or changes what a call returns.
"""
