"""Ray: labels on the nodes that can, and a label selector on the tasks that need it."""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.prevent.emit._need import Need, comment, host_name, nothing_needed, text_of

ABOUT = "node labels, and the selector for tasks"
PREFIX = "cpu-"


def text(need: Need) -> str:
    return text_of([*comment(need), *_lines(need)])


def _lines(need: Need) -> Iterator[str]:
    if nothing_needed(need):
        return
    labels = ",".join(f"{PREFIX}{feature}=true" for feature in need.features)
    resources = ", ".join(f'"{feature}": 1000' for feature in need.features)
    if need.capable:
        yield f"# on {', '.join(host_name(host) for host in need.capable)} (and on no other node):"
    else:
        checks = ", ".join(f'"{feature}"' for feature in need.features)
        yield f"# on nodes where this succeeds: python -c 'import lastwords; lastwords.require({checks})'"
    yield f'#   ray start --address="$RAY_HEAD" --labels="{labels}"'
    yield "# where Ray has no label selectors yet, the same with resources:"
    yield f"#   ray start --address=\"$RAY_HEAD\" --resources='{{{resources}}}'"
    selector = ", ".join(f'"{PREFIX}{feature}": "true"' for feature in need.features)
    small = ", ".join(f'"{feature}": 0.001' for feature in need.features)
    yield f"LABEL_SELECTOR = {{{selector}}}  # @ray.remote(label_selector=LABEL_SELECTOR)"
    yield f"RESOURCES = {{{small}}}  # or: @ray.remote(resources=RESOURCES)"
