"""C++ type names as people write them: `N7decoder14corrupt_headerE` is `decoder::corrupt_header`.

Only what names of exception types are made of: nested names, the std:: short forms, and plain names. Template
arguments and whatever else there is are left as they stand: half a name would be a wrong one.
"""

from __future__ import annotations

import re

LONGEST = 1024
_SHORT = {
    "St": "std",
    "Sa": "std::allocator",
    "Ss": "std::string",
    "Si": "std::istream",
    "So": "std::ostream",
    "Sd": "std::iostream",
}
_BUILT_IN = {
    "b": "bool",
    "c": "char",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "f": "float",
    "d": "double",
    "PKc": "char const*",
    "Pc": "char*",
}
_INLINE_NAMESPACES = ("__cxx11", "__1", "__ndk1")
"""They say which ABI a library was built for, and nothing to a reader."""
_LENGTH = re.compile(r"[1-9]\d{0,3}")


def type_name(mangled: str) -> str:
    """The readable name, or `mangled` itself where it is more than this reads."""
    if mangled in _BUILT_IN:
        return _BUILT_IN[mangled]
    body = mangled[1:-1] if mangled.startswith("N") and mangled.endswith("E") else mangled
    parts = _parts(body) if len(mangled) <= LONGEST else None
    if not parts or (body is mangled and len(parts) > 1 and not mangled.startswith("St")):
        return mangled
    return "::".join(part for part in parts if part not in _INLINE_NAMESPACES)


def _parts(body: str) -> list[str] | None:
    parts = []
    if body[:2] in _SHORT:
        parts.append(_SHORT[body[:2]])
        body = body[2:]
    while body:
        length = _LENGTH.match(body)
        if length is None:
            return None
        end = length.end() + int(length[0])
        if end > len(body):
            return None
        parts.append(_readable(body[length.end() : end]))
        body = body[end:]
    return parts


def _readable(name: str) -> str:
    return "(anonymous namespace)" if name.startswith("_GLOBAL__N_") else name
