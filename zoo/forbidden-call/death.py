"""A system call is made that the container's seccomp profile answers with a kill."""

import ctypes
import platform

KEYCTL = {"x86_64": 250, "aarch64": 219}[platform.machine()]


def die(item: int) -> None:
    ctypes.CDLL(None).syscall(KEYCTL, 0, 0, 0, 0, 0, 0)
