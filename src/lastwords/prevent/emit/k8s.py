"""Kubernetes: node affinity on the labels of Node Feature Discovery, and on our own where it hides a feature.

Its worker denies some attributes by default (BMI1, BMI2, F16C, LZCNT, POPCNT, SSE3 to SSE4.2 and others): a rule on
such a label matches no node at all, and the pod waits for ever. Those get a label `lastwords/cpu-NAME`, with the
command that sets it.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.prevent import features
from lastwords.prevent.emit._need import Need, comment, host_name, nothing_needed, text_of

ABOUT = "nodeAffinity for a pod's spec"
DISCOVERED = "feature.node.kubernetes.io/cpu-cpuid."
OWN = "lastwords/cpu-"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def text(need: Need) -> str:
    return text_of([*comment(need), *_labelling(need), *_affinity(need)])


def label(feature: str) -> str:
    attribute = features.discovery_attribute(feature)
    return f"{DISCOVERED}{attribute}" if attribute else f"{OWN}{feature}"


def _own(need: Need) -> list[str]:
    return [feature for feature in need.features if features.discovery_attribute(feature) is None]


def _labelling(need: Need) -> Iterator[str]:
    own = _own(need)
    if not own:
        return
    labels = " ".join(f"{OWN}{feature}=true" for feature in own)
    yield f"# Node Feature Discovery does not publish {', '.join(own)}: label the nodes that have it yourself"
    if need.capable:
        names = " ".join(host_name(host) for host in need.capable)
        yield f"#   kubectl label --overwrite node {names} {labels}"
        return
    yield "# on each node, or in a pod pinned to it with NODE_NAME from spec.nodeName:"
    checks = ", ".join(f'"{feature}"' for feature in own)
    yield f"#   python -c 'import lastwords; lastwords.require({checks})' \\"
    yield f'#     && kubectl label --overwrite node "$NODE_NAME" {labels}'


def _affinity(need: Need) -> Iterator[str]:
    if nothing_needed(need) and need.architecture not in ARCHITECTURES:
        yield "affinity: {}"
        return
    yield "affinity:"
    yield "  nodeAffinity:"
    yield "    requiredDuringSchedulingIgnoredDuringExecution:"
    yield "      nodeSelectorTerms:"
    yield "        - matchExpressions:"
    if need.architecture in ARCHITECTURES:
        yield from _expression("kubernetes.io/arch", ARCHITECTURES[need.architecture])
    for feature in need.features:
        yield from _expression(label(feature), "true")


def _expression(key: str, value: str) -> Iterator[str]:
    yield f"            - key: {key}"
    yield "              operator: In"
    yield f'              values: ["{value}"]'
