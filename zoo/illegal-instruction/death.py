"""A C extension runs an instruction that this CPU lacks: FMA4 on Intel, AMX on AMD.

Not FMA4 on AMD: Zen does not report it and runs it all the same.
"""

from pathlib import Path

from zoo import native

extension = native.load()


def lacking() -> str:
    return "amx_tile" if "AuthenticAMD" in Path("/proc/cpuinfo").read_text() else "fma4"


def die(item: int) -> None:
    extension.illegal_instruction(lacking())
