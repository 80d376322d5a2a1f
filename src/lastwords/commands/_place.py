"""Where deaths are kept, and how to call us again so that they are found there."""

from __future__ import annotations

import os
import shlex

from lastwords.record.home import home as default_home


def chosen_home(given: str | None) -> str:
    """What `--home` said, else the default."""
    return os.path.abspath(os.path.expanduser(given)) if given else default_home()


def program(given: str | None) -> str:
    return f"lastwords --home {shlex.quote(given)}" if given else "lastwords"
