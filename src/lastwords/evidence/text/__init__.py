"""From a log to evidence. See README.md for the map and for the kinds of mentions."""

from lastwords.evidence.text.assemble import from_log, from_stream, from_text, read_mentions
from lastwords.evidence.text.unpacked import UnreadableLog

__all__ = ["UnreadableLog", "from_log", "from_stream", "from_text", "read_mentions"]
