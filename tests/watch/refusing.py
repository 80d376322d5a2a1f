"""`python -m tests.watch.refusing NAME... -- COMMAND`: runs it on a kernel that does not know these system calls.

A filter answers ENOSYS to each, for the command and all that it starts, as gVisor and older kernels do.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
NUMBERS = {
    "x86_64": {"pidfd_open": 434, "pidfd_send_signal": 424, "ioctl": 16, "socket": 41, "prctl": 157},
    "aarch64": {"pidfd_open": 434, "pidfd_send_signal": 424, "ioctl": 29, "socket": 198, "prctl": 167},
}


def refuse(names: list[str]) -> None:
    numbers = [NUMBERS[platform.machine()][name] for name in names]
    load_number = struct.pack("HBBI", 0x20, 0, 0, 0)
    is_it = [struct.pack("HBBI", 0x15, len(numbers) - place, 0, one) for place, one in enumerate(numbers)]
    ends = [struct.pack("HBBI", 0x06, 0, 0, ALLOW), struct.pack("HBBI", 0x06, 0, 0, ERRNO | errno.ENOSYS)]
    steps = [load_number, *is_it, *ends]
    program = b"".join(steps)
    buffer = ctypes.create_string_buffer(program)
    filter_ = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter_)):
        if libc.prctl(*words) != 0:
            raise OSError(ctypes.get_errno(), "the filter was refused")


if __name__ == "__main__":
    place = sys.argv.index("--")
    refuse(sys.argv[1:place])
    os.execvp(sys.argv[place + 1], sys.argv[place + 1 :])
