"""Nomad: constraints on client metadata. Its clients publish the architecture of a CPU and none of its features."""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.prevent.emit._need import Need, comment, nothing_needed, text_of

ABOUT = "constraint blocks for a job, and the clients' metadata"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def text(need: Need) -> str:
    return text_of([*comment(need), *_metadata(need), *_constraints(need)])


def _metadata(need: Need) -> Iterator[str]:
    if nothing_needed(need):
        return
    pairs = " ".join(f"cpu_{feature}=true" for feature in need.features)
    checks = ", ".join(f'"{feature}"' for feature in need.features)
    yield "# on each client:"
    yield f"#   python -c 'import lastwords; lastwords.require({checks})' && nomad node meta apply {pairs}"


def _constraints(need: Need) -> Iterator[str]:
    if need.architecture in ARCHITECTURES:
        yield from _constraint("attr.cpu.arch", ARCHITECTURES[need.architecture])
    for feature in need.features:
        yield from _constraint(f"meta.cpu_{feature}", "true")


def _constraint(attribute: str, value: str) -> Iterator[str]:
    yield "constraint {"
    yield f'  attribute = "${{{attribute}}}"'
    yield f'  value     = "{value}"'
    yield "}"
