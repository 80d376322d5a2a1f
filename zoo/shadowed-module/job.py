"""A file beside the job has the name of a standard module (random.py), and is imported in its place."""

import secrets

print(secrets.token_hex())
