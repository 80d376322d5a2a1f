"""What holds for all tests."""

from __future__ import annotations

import signal

from hypothesis import settings

# A shell that runs us in the background, and nohup, have these ignored, and what is ignored stays so in every
# process that a test starts: deaths by these signals would not happen.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# What is green once is green again, here and on a machine that stalls for a second; `make fuzz` looks for what is new.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("fuzz", deadline=None, print_blob=True)
settings.load_profile("repeatable")
