"""Slurm: a constraint for the job, and the features for the nodes that have them."""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.prevent.emit._need import Need, comment, host_name, nothing_needed, text_of

ABOUT = "an #SBATCH line, and the nodes' features"


def text(need: Need) -> str:
    return text_of([*comment(need, "##"), *_lines(need)])


def _lines(need: Need) -> Iterator[str]:
    if nothing_needed(need):
        return
    yield f'#SBATCH --constraint="{"&".join(need.features)}"'
    yield "## the names must be features of the nodes: sinfo -o '%N %f' shows them"
    listed = ",".join(need.features)
    nodes = ",".join(host_name(host) for host in need.capable) or "NODES"
    yield "## in slurm.conf, beside what the line has already:"
    yield f"##   NodeName={nodes} Features={listed}"
    yield "## or at once, until slurmctld restarts (this overwrites: name the features they have already, too):"
    yield f"##   scontrol update NodeName={nodes} AvailableFeatures={listed} ActiveFeatures={listed}"
