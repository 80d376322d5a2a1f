"""The process may have only so much address space (ulimit -v), and asks for more."""

import resource


def die(item: int) -> None:
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (64 << 20), resource.RLIM_INFINITY))
    bytearray(1 << 30)
