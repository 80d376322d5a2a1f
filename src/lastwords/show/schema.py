"""The JSON schema of the report, made from the very structs that are printed.

`python -m lastwords.show.schema` prints it; docs/schema/lastwords-1.json is that text.
"""

from __future__ import annotations

import sys

import msgspec

from lastwords.show.json import Document


def schema() -> str:
    (reference,), components = msgspec.json.schema_components([Document])
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "lastwords/1",
        "title": "One death, explained by lastwords",
        **reference,
        "$defs": components,
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema())
