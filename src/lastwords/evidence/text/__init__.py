"""From a log to evidence. See README.md for the map and for the kinds of mentions."""

from lastwords.evidence.text.assemble import from_log, from_stream, from_text, read_mentions

__all__ = ["from_log", "from_stream", "from_text", "read_mentions"]
