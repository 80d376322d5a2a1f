"""Words that several causes use: so that all of them name the same thing in the same way."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from lastwords.causes.cause import Facts, Reason, Step
from lastwords.endings import PASSED, SAME
from lastwords.evidence import signals
from lastwords.evidence.frames import blamed, short_function, short_library
from lastwords.evidence.model import Evidence, Growth, Item, NativeFrame, TriedAlone
from lastwords.evidence.quantities import size

NULL_PAGES = 64 << 10
"""Linux maps nothing below this (vm.mmap_min_addr): an address there is a null pointer plus an offset."""


def signal_of(evidence: Evidence) -> str | None:
    """The signal it died of: the kernel's word first, then that of the crash handler."""
    if evidence.status is not None:
        return evidence.status.signal
    return evidence.fault.signal if evidence.fault else None


def crashed_too(evidence: Evidence) -> Iterator[Reason]:
    """Against whatever only tells that somebody lost patience with it. (Not SIGABRT: gunicorn sends that when it does)"""
    if signals.family_of(signal_of(evidence)) == "fault":
        text = f"{ended(evidence)}: a process that crashes does not answer in time, either"
        yield Reason("crashed_too", text)


def was_sent(evidence: Evidence) -> bool:
    """A signal somebody sent, by kill() or raise(), rather than one that the hardware caused."""
    return evidence.fault is not None and evidence.fault.code <= 0


def ended(evidence: Evidence) -> str:
    if evidence.hang is not None:
        return "it lives, and hangs"
    if evidence.status is None:
        return "nobody saw how it ended"
    if evidence.status.signal:
        return f"it died of {evidence.status.signal}"
    return f"it ended with exit code {evidence.status.exit_code}"


def survived(evidence: Evidence) -> bool:
    """Its own code handled the fault that was recorded (a JVM's does), and another signal ended it later."""
    fault, status = evidence.fault, evidence.status
    return fault is not None and fault.handled and bool(status and status.signal not in (None, fault.signal))


def met_signal(evidence: Evidence) -> str | None:
    """The signal that says what went wrong: that of the fault, unless it was survived."""
    if evidence.fault is not None and not survived(evidence):
        return evidence.fault.signal
    return signal_of(evidence)


def not_this_signal(evidence: Evidence, *expected: str) -> Iterator[Reason]:
    """Against: the process died, or was caught dying, of something else."""
    found = met_signal(evidence)
    if found not in expected:
        yield Reason("other_signal", f"{ended(evidence)}; this cause shows as {' or '.join(expected)}")
    elif evidence.fault and evidence.status and evidence.status.signal != found:
        yield Reason("other_ending", f"the process met {found}, but {ended(evidence)} in the end")


def sent_by(evidence: Evidence) -> Iterator[Reason]:
    """Against every cause that the hardware reports."""
    if was_sent(evidence):
        fault = evidence.fault
        assert fault is not None
        yield Reason(
            "sent", f"{fault.signal} was sent by pid {fault.sender_pid}; the hardware reported nothing"
        )


def access_of(evidence: Evidence) -> str | None:
    """`read`, `write` or `execute`: as the processor said, else as the instruction does (a core has no more)."""
    fault, found = evidence.fault, evidence.instruction
    if fault is None or fault.access is not None or found is None:
        return fault.access if fault else None
    used = [one for one in found.memory if one.address is not None and one.address == fault.address]
    if not used:
        return None
    return "write" if all(one.write for one in used) else "read"


def place(evidence: Evidence) -> str:
    """`function in library`, as far as it is known."""
    frame = blamed(evidence)
    if frame is None:
        return "native code"
    if frame.library is None and frame.trust == "text":
        return short_function(frame.function) if frame.function else "native code"
    if frame.library is None:
        return "code that was made while the program ran"
    return f"{short_function(frame.function) if frame.function else 'code'} in {file_name(frame.library)}"


def place_first(evidence: Evidence) -> str:
    """The same at the start of a sentence: words get a capital letter, a function's name never."""
    frame, found = blamed(evidence), place(evidence)
    is_name = frame is not None and frame.function and (frame.library or frame.trust == "text")
    return found if is_name else found[0].upper() + found[1:]


def file_name(path: str | None) -> str:
    return short_library(path) if path else "code that is in no file"


def source_line(frame: NativeFrame) -> str:
    """Builders' paths say nothing to a reader: the file's name does."""
    return f"{file_name(frame.file)}:{frame.line}"


def product(frame: NativeFrame | None) -> str | None:
    """The package a user would know, else the library's file name."""
    if frame is None:
        return None
    return frame.package or (short_library(frame.library) if frame.library else None)


def item_name(item: Item) -> str:
    if item.index is not None:
        return f"item {item.index}"
    return f"item {item.key}"


def growth_of(evidence: Evidence, name: str) -> Growth | None:
    """What grew from item to item under this name, if it did."""
    return next((one for one in evidence.growth or () if one.name == name), None)


def per_item(growth: Growth) -> str:
    """`6.1 MB per item over 412 items`, of something that is counted in bytes."""
    return f"{size(int(growth.per_item))} per item over {growth.items} items"


def hexadecimal(number: int | None) -> str | None:
    return None if number is None else f"{number:#x}"


def signal_meaning(name: str) -> str:
    known = signals.means(name)
    return f"{name} ({known})" if known else name


def place_facts(evidence: Evidence) -> Facts:
    """Function and library to blame, for programs."""
    frame = blamed(evidence)
    return {"function": frame.function if frame else None, "library": frame.library if frame else None}


def native_steps(evidence: Evidence) -> Iterator[Step]:
    """What to do about a fault in native code, whatever it was."""
    frame = blamed(evidence)
    if frame is not None and frame.package:
        yield Step(
            text=f"see whether a newer {frame.package} than {frame.package_version or 'this'} still does it:",
            command=f"pip install --upgrade {frame.package}",
        )
    yield from _about_the_item(evidence)
    if frame is not None and frame.file is None and frame.function and frame.library:
        yield Step(text=f"rebuild {file_name(frame.library)} with -g: the report then has its source line")
    if evidence.events is None and evidence.instruction is None:
        yield Step(
            text="have the function, your line and the item recorded next time:",
            command=f"lastwords run -- {job_command(evidence)}",
        )
    if evidence.id:
        yield Step(
            text="send its maintainers the whole account:",
            command=f"lastwords show {evidence.id} --json > death.json",
        )


def _about_the_item(evidence: Evidence) -> Iterator[Step]:
    if evidence.item is None:
        return
    name, tried = item_name(evidence.item), evidence.tried_alone
    if tried is None:
        yield Step(text=f"run {name} alone: if it dies again, its data is the trigger")
    elif tried.outcome == PASSED:
        yield Step(text=f"{name} passed alone: look for {' or for '.join(_needed(evidence, tried))}")
    elif tried.outcome == SAME:
        yield Step(text=f"look at {name} itself: it died alone, too, with nothing before it in its worker")


def _needed(evidence: Evidence, tried: TriedAlone) -> Iterator[str]:
    """What it had when it died, and not when it passed."""
    was_first = evidence.progress is not None and evidence.progress.done == 0
    if tried.others != 0:
        yield "a race with other workers"
    if not was_first:
        yield "what ran before it in its own worker"
    if was_first and tried.others == 0:
        yield "what differs from run to run: threads, random numbers, time"


def job_command(evidence: Evidence) -> str:
    """The job as it was started, to be started again; a forked worker has that of its parent."""
    command = evidence.process.command if evidence.process else None
    is_spawned = command is not None and any("multiprocessing" in word for word in command)
    return shlex.join(command) if command and not is_spawned else "python YOUR_JOB.py"


def stack_checks(evidence: Evidence) -> Iterator[Step]:
    """Arrays on a stack are no blocks of an allocator: only the compiler can guard them."""
    frame = blamed(evidence)
    library = file_name(frame.library) if frame is not None and frame.library else "the library"
    yield Step(
        text=f"rebuild {library} with -g -fsanitize=address, which names the line of the write, and run:",
        command=f"LD_PRELOAD=$(gcc -print-file-name=libasan.so) {job_command(evidence)}",
    )


def memory_checks(evidence: Evidence) -> Iterator[Step]:
    """How to see a wrong write when it happens, and not when it is found."""
    job = job_command(evidence)
    yield Step(
        text="let Python's allocator check its blocks; it names the one that was overrun:",
        command=f"PYTHONMALLOC=debug {job}",
    )
    yield Step(
        text="or have every access checked (20 times slower), in one process, without workers:",
        command=f"PYTHONMALLOC=malloc valgrind --error-limit=no {job}",
    )
