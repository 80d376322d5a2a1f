"""The CPU lacks an instruction that the program was built with.

A library compiled for newer processors (`-march=native` on the build host, or a wheel for AVX2 or AVX-512)
runs until it reaches the first instruction that this CPU does not know; the kernel then ends the process with
SIGILL. Nothing is wrong with the data or the code: the same job works on another host, which is why it often
looks like bad luck on a cluster of mixed machines.

lastwords decodes the instruction at the program counter, looks up which extension it belongs to, and compares
that with what CPUID told the process itself, and with the flags in /proc/cpuinfo: an emulator or a virtual machine may
hide what the host has, and a system may not have enabled the registers that a CPU offers. Where the CPU does have the
extension, this cause is ruled out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.causes import alone
from lastwords.causes.cause import SIGNAL_FITS, Cause, Facts, Reason, Step
from lastwords.causes.mentioned import field, from_text, reason, said
from lastwords.causes.words import file_name, met_signal, not_this_signal, product, sent_by
from lastwords.evidence.frames import faulting
from lastwords.evidence.model import Evidence

# Extensions that readers know their CPUs by; shown beside the one that is missing.
LANDMARKS = ("avx", "avx2", "avx512f")

_TRADEMARK = re.compile(r"\((R|TM)\)")

# Packages that can be told, without a rebuild, to keep to older instructions.
KNOWN_SWITCHES = {
    "faiss-cpu": ("use its build without it:", "export FAISS_OPT_LEVEL=generic"),
    "polars": ("use its build for older CPUs:", "pip install 'polars[rtcompat]'"),
}


def lacking(evidence: Evidence) -> tuple[str, ...]:
    """Extensions that the instruction needs and this CPU does not have."""
    if evidence.instruction is None or evidence.cpu is None:
        return ()
    return tuple(name for name in evidence.instruction.extensions if name not in evidence.cpu.flags)


def judge(evidence: Evidence) -> Iterator[Reason]:
    stated = list(_stated(evidence))
    if stated and met_signal(evidence) != "SIGILL":
        yield from stated
        return
    against = [*not_this_signal(evidence, "SIGILL"), *sent_by(evidence)]
    yield from against
    if not any(reason.name == "other_signal" for reason in against):
        yield Reason(SIGNAL_FITS, "the CPU refused an instruction (SIGILL)")
        yield from _judge_instruction(evidence)
        yield from stated
        yield from _judge_text(evidence)
        yield from alone.died_again(evidence, "died_alone")


def _stated(evidence: Evidence) -> Iterator[Reason]:
    """A library that checks the CPU and says what it lacks, or a reader of /proc/cpuinfo."""
    yield from reason(evidence, "said_so", "cpu-lacks")


def _judge_text(evidence: Evidence) -> Iterator[Reason]:
    fault = evidence.fault
    if from_text(evidence) and fault is not None and fault.pc_in and ".so" in fault.pc_in:
        yield Reason("in_library", f"the kernel refused an instruction inside {file_name(fault.pc_in)}")
    elif from_text(evidence):
        yield from _in_compiled_code(evidence)
    if from_text(evidence):
        yield from reason(evidence, "while_importing", "importing")
        yield from reason(evidence, "made_to_fault", "trap-here")
        yield from reason(evidence, "newer_instruction", "newer-instruction")
        yield from reason(evidence, "found_otherwise", "sanitizer", "heap-corruption")


# Who printed the stack stands on it too, and Python itself is built for every CPU.
_NOT_THE_PLACE = re.compile(
    r"^(?:_?Py|absl|google|ray::|folly|c10::|__restore_rt|raise|abort|main$|_start|clone)|unknown"
)


def _in_compiled_code(evidence: Evidence) -> Iterator[Reason]:
    for one in said(evidence, "native-frame"):
        function = one.fields.get("function", "")
        if function and not _NOT_THE_PLACE.search(function):
            yield Reason("in_function", f"the stack names {function}, compiled code of a library")
            return


def _judge_instruction(evidence: Evidence) -> Iterator[Reason]:
    found = evidence.instruction
    if found is None:
        return
    if not found.is_valid:
        yield Reason("no_instruction", f"the bytes {found.bytes} are no instruction of any CPU")
    elif found.is_trap:
        yield Reason("made_to_fault", f"{found.text} exists to fault: every CPU refuses it")
    elif not found.extensions:
        yield Reason("baseline", f"{found.text} is a plain instruction that every CPU of this kind runs")
    elif evidence.cpu is not None and not lacking(evidence):
        yield Reason("cpu_has_it", f"{found.text} needs {' '.join(found.extensions)}, and this CPU has that")
    else:
        yield from _lacks(evidence)


def _lacks(evidence: Evidence) -> Iterator[Reason]:
    assert evidence.instruction is not None
    missing = lacking(evidence) or evidence.instruction.extensions
    yield Reason("needs_extension", f"{evidence.instruction.text}  needs {' '.join(missing)}")
    if evidence.cpu is not None:
        yield Reason("cpu_lacks_it", _host(evidence, missing))


def _host(evidence: Evidence, missing: tuple[str, ...]) -> str:
    assert evidence.cpu is not None
    names = dict.fromkeys((*LANDMARKS, *missing))
    has = (f"{name} {'yes' if name in evidence.cpu.flags else 'no'}" for name in names)
    model = _TRADEMARK.sub("", evidence.cpu.model) if evidence.cpu.model else "a CPU without a name"
    if set(missing) & set(evidence.cpu.not_enabled):
        return f"the CPU ({model}) has {missing[0]}, and the system does not let programs use its registers (XCR0)"
    if set(missing) & set(evidence.cpu.withheld):
        return f"the CPU as the process saw it: {', '.join(has)}; the host ({model}) has it, an emulator or virtual machine hides it"
    return f"this host is {model}: {', '.join(has)}"


def sentence(evidence: Evidence) -> str:
    name = product(faulting(evidence)) or field(evidence, ("importing",), "module")
    if from_text(evidence) and (feature := field(evidence, ("cpu-lacks",), "feature")):
        name = field(evidence, ("cpu-lacks",), "library") or name
        return f"This CPU lacks {feature}, which {name or 'the program'} was built with."
    if evidence.instruction is None or not evidence.instruction.extensions:
        return "The CPU refused an instruction; perhaps the program was built for another one."
    if name is None:
        return "This CPU cannot run an instruction of code that was made while the program ran."
    return f"This CPU cannot run an instruction that {name} was built with."


def _why_it_lacks(evidence: Evidence, missing: tuple[str, ...]) -> Facts:
    """Where the silicon has it and the process does not: `withheld` or `not_enabled`."""
    cpu = evidence.cpu
    ways = ("withheld", "not_enabled")
    return {way: True for way in ways if cpu is not None and set(missing) & set(getattr(cpu, way))}


def facts(evidence: Evidence) -> Facts:
    frame, found = faulting(evidence), evidence.instruction
    missing = lacking(evidence) or (found.extensions if found else ())
    return {
        "instruction": found.text if found else None,
        "extension": missing[0] if missing else field(evidence, ("cpu-lacks",), "feature"),
        "library": frame.library if frame else None,
        "package": frame.package if frame else None,
        "package_version": frame.package_version if frame else None,
        "function": frame.function if frame else None,
        "cpu_model": evidence.cpu.model if evidence.cpu else None,
        **_why_it_lacks(evidence, missing),
    }


def _flag(extension: str) -> str:
    """As the kernel spells it: `sse4_1` for SSE4.1, and the first where a library names several."""
    first = re.split(r"[ ,]", extension.lower().replace(".", "_"))[0]
    return {"fma3": "fma", "avx512": "avx512f"}.get(first, first)


def remedy(evidence: Evidence) -> Iterator[Step]:
    known = facts(evidence)
    extension, package = known["extension"], known["package"]
    if extension is None:
        yield Step(
            text="on the host where it died, see which installed libraries need more than its CPU has:",
            command="lastwords scan",
        )
        yield Step(
            text="and what that CPU has:", command="grep -m1 -oE 'avx[^ ]*|fma' /proc/cpuinfo | sort -u"
        )
        yield Step(
            text="have the instruction recorded next time:", command="lastwords run -- python YOUR_JOB.py"
        )
        return
    if known.get("not_enabled"):
        yield Step(
            text="have the system enable it: no `noxsave` or `clearcpuid` on the kernel's command line, XSAVE on in the virtual machine",
            command="cat /proc/cmdline",
        )
    if known.get("withheld"):
        yield Step(
            text=f"give the emulator or virtual machine a CPU that has {extension}: qemu -cpu max or -cpu host; libvirt: host-passthrough"
        )
    yield Step(
        text=f"run it on a host whose CPU has {extension}; ask a host with (0: it lacks it):",
        command=f"grep -cw {_flag(str(extension))} /proc/cpuinfo",
    )
    if package in KNOWN_SWITCHES:
        text, command = KNOWN_SWITCHES[str(package)]
        yield Step(text=f"or {text}", command=command)
    elif package:
        yield Step(
            text="or build it on this host, for this CPU:",
            command=f"pip install --force-reinstall --no-binary {package} '{package}=={known['package_version']}'",
        )
    elif known["library"]:
        library = file_name(str(known["library"]))
        yield Step(
            text=f"or rebuild {library} without -march=native and -m{extension} (x86-64-v2 runs nearly everywhere)"
        )
    elif from_text(evidence):
        yield Step(
            text=f"or install a build that does without {extension}: an older one, one for older CPUs, or from source"
        )
    else:
        yield Step(text=f"or tell what generates this code (a JIT, ctypes) to do without {extension}")


CAUSE = Cause(
    id="isa-mismatch",
    title="The CPU lacks an instruction that the program was built with",
    doc=__doc__,
    needs=("fault", "instruction", "cpu"),
    prior=-3.0,
    weights={
        SIGNAL_FITS: 2.9,
        "needs_extension": 1.0,
        "said_so": 4.6,
        "in_library": 1.2,
        "in_function": 0.9,
        "while_importing": 0.9,
        "newer_instruction": 2.4,
        "cpu_lacks_it": 4.5,
        "died_alone": 0.4,
        "cpu_has_it": -6.0,
        "baseline": -5.0,
        "no_instruction": -6.0,
        "made_to_fault": -6.0,
        "found_otherwise": -3.5,
        "sent": -6.0,
        "other_ending": -1.5,
        "other_signal": -8.0,
    },
    judge=judge,
    sentence=sentence,
    facts=facts,
    remedy=remedy,
    zoo=("illegal-instruction", "avx2-without-fma", "text:isa-mismatch"),
    near_misses=("trap-instruction", "invalid-opcode"),
)
