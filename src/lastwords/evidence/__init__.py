"""What is known about a death. See README.md for the map."""

from lastwords.evidence.assemble import from_box, from_status
from lastwords.evidence.box import UnreadableBox
from lastwords.evidence.model import Evidence, Item, Memory, OomKills, Process, Status

__all__ = [
    "Evidence",
    "Item",
    "Memory",
    "OomKills",
    "Process",
    "Status",
    "UnreadableBox",
    "from_box",
    "from_status",
]
