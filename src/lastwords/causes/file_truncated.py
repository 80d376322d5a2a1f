"""A file that it read is cut short, damaged or gone.

A download that stopped, a copy that was not finished, a checkpoint written while the disk filled, a file that another
process replaced. Read as a stream it raises an error; *mapped* into memory (np.memmap, Arrow, LMDB, safetensors), the
process gets SIGBUS when it touches a page behind the new end.

SIGBUS alone may also be a full /dev/shm: the mapping that the address lies in tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastwords.causes.cause import Cause, Facts, Reason, Step
from lastwords.causes.mentioned import bare, first, nothing_said, reason, said
from lastwords.causes.words import file_name
from lastwords.evidence.model import Evidence, Fault

SHARED_MEMORY = ("/dev/shm/", "/memfd:", "/SYSV")  # noqa: S108 (mappings to tell apart, not files to write)


def judge(evidence: Evidence) -> Iterator[Reason]:
    reasons = [*reason(evidence, "said_so", "file-damaged"), *_mapped(evidence)]
    if bare(evidence, "SIGBUS") and not reasons:
        reasons.append(Reason("bus_error", "a mapped file that was cut short ends in SIGBUS"))
        reasons.extend(reason(evidence, "maps_files", "file-mapped"))
    yield from nothing_said(reasons)


def _mapped(evidence: Evidence) -> Iterator[Reason]:
    """The fault itself, where it was recorded: which file the address lies in, and where that file ends now."""
    fault = evidence.fault
    if fault is None or fault.signal != "SIGBUS" or fault.code <= 0:
        return
    name = fault.address_in
    if name is None or not name.startswith("/"):
        yield Reason("no_file", "the address lies in no mapped file")
    elif name.startswith(SHARED_MEMORY):
        yield Reason("shared_memory", f"the address lies in shared memory: {name}")
    else:
        yield Reason("in_mapped_file", f"SIGBUS at an address inside the mapped file {name}")
        yield from _end(fault)


def _end(fault: Fault) -> Iterator[Reason]:
    if fault.file_size is None or fault.address_offset is None:
        return
    if fault.address_offset >= fault.file_size:
        yield Reason(
            "behind_the_end",
            f"it touched byte {fault.address_offset}, and the file has {fault.file_size} now",
        )
    else:
        yield Reason(
            "inside_the_file", "the file is still long enough: a disk or the memory failed to give it"
        )


def sentence(evidence: Evidence) -> str:
    fault = evidence.fault
    if fault is not None and fault.signal == "SIGBUS" and fault.address_in:
        return f"The mapped file {file_name(fault.address_in)} was cut short while the process used it."
    if _is_stale(evidence):
        return "A file that it had open was removed or replaced on the file server."
    return "A file that it read is cut short or damaged."


def _is_stale(evidence: Evidence) -> bool:
    return any("stale" in one.quote.lower() for one in said(evidence, "file-damaged"))


def facts(evidence: Evidence) -> Facts:
    fault, found = evidence.fault, first(evidence, "file-damaged")
    return {
        "file": fault.address_in if fault else None,
        "file_size": fault.file_size if fault else None,
        "offset": fault.address_offset if fault else None,
        "line": found.line if found else None,
    }


def remedy(evidence: Evidence) -> Iterator[Step]:
    if _is_stale(evidence):
        yield Step(
            text="give each host a cache of its own on a local disk, where no other host removes files:",
            command="export HF_HOME=/local/$USER/hf TMPDIR=/local/$USER/tmp",
        )
        yield Step(text="let one rank write shared files, and the others wait for it (a barrier)")
        yield Step(
            text="see whether the file system was mounted anew:", command="mount | grep -E 'nfs|lustre'"
        )
        return
    yield Step(
        text="find the file (the frame above names it), and compare its size and checksum with the source:",
        command="ls -l FILE; sha256sum FILE",
    )
    yield Step(text="fetch it again; write files under another name and rename them when they are whole")
    yield Step(text="do not replace files that workers have mapped")
    yield Step(text="SIGBUS: rule shared memory out:", command="df -h /dev/shm")


CAUSE = Cause(
    id="file-truncated",
    title="A file is cut short or damaged",
    doc=__doc__,
    needs=("fault", "mentions"),
    prior=-3.0,
    weights={
        "said_so": 5.6,
        "bus_error": 1.1,
        "maps_files": 1.75,
        "in_mapped_file": 4.0,
        "behind_the_end": 2.5,
        "inside_the_file": -2.5,
        "no_file": -3.0,
        "shared_memory": -5.0,
        "nothing_said": -4.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("truncated-file", "text:file-truncated"),
    near_misses=("text:shared-memory-full", "text:disk-full"),
)
