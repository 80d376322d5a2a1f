"""Imported by the line in lastwords_bootstrap.pth when LASTWORDS is set: records this process.

Runs before the job's own first line, in every Python process of the job, so it does little and never
raises: a job that cannot be recorded is a job that runs on.
"""

from __future__ import annotations

import os
import sys

try:
    from lastwords.record import session
except ImportError as refused:  # the native module is for another CPU, or for another system
    sys.stderr.write(f"lastwords: not recording this process: {refused}\n")
else:
    session.start(os.environ["LASTWORDS"])
