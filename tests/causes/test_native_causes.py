"""Native deaths told apart: which fact makes it which cause, and what each says."""

from __future__ import annotations

import msgspec
import pytest

from lastwords.causes import arithmetic_fault, heap_corruption, native_abort, stack_overflow
from lastwords.diagnosis import CLAIMED, Verdict, diagnose
from lastwords.evidence import Evidence, Status
from lastwords.evidence.model import Fault, Instruction, Mention, NativeFrame, NativeStack, Pointer
from tests.cases import diagnosis_of, evidence_of

replace = msgspec.structs.replace


def verdict(evidence: Evidence, cause: str) -> Verdict:
    return next(one for one in diagnose(evidence).verdicts if one.id == cause)


def first(evidence: Evidence) -> tuple[str, float]:
    best = diagnose(evidence).best
    assert best is not None
    return best.id, best.confidence


def with_fault(name: str, **changes: object) -> Evidence:
    evidence = evidence_of(name)
    assert evidence.fault is not None
    return replace(evidence, fault=replace(evidence.fault, **changes))


def aborted(message: str | None, *functions: str) -> Evidence:
    """A process that called abort(), with these functions on its stack, innermost first."""
    evidence = with_fault("abort", abort_message=message)
    frames = tuple(
        NativeFrame(address=number, function=name, library="/srv/job/codec.so", trust="cfi")
        for number, name in enumerate(("__GI_abort", *functions), 1)
    )
    return replace(evidence, native_stack=NativeStack(source="test", frames=frames))


def log(kind: str, quote: str, **fields: str) -> Evidence:
    """Nothing but a log that has this line."""
    mention = Mention(
        source="a log, line 7", kind=kind, quote=quote, line=7, system="C library", fields=fields
    )
    return Evidence(mentions=(mention,))


class TestStackOverflow:
    def test_the_recursing_function_is_named_and_its_depth_reckoned(self):
        facts = verdict(evidence_of("stack-overflow"), "stack-overflow").facts
        assert (facts["function"], facts["kind"], facts["thread"]) == ("descend", "c", "main")
        assert facts["stack_size"] == 8 << 20
        assert isinstance(facts["depth"], int)
        assert 15_000 < facts["depth"] < 16_000

    @pytest.mark.parametrize(
        ("name", "thread", "fix"),
        [
            ("stack-overflow", "main", "ulimit -s"),
            ("stack-overflow-on-thread", "python", "threading.stack_size"),
            ("stack-overflow-on-c-thread", "native", "OMP_STACKSIZE"),
        ],
    )
    def test_the_way_to_a_larger_stack_depends_on_the_thread(self, name: str, thread: str, fix: str):
        found = verdict(evidence_of(name), "stack-overflow")
        assert found.facts["thread"] == thread
        assert fix in f"{found.steps[-1].text} {found.steps[-1].command}"

    def test_a_python_function_is_named_where_the_rounds_pass_through_one(self):
        found = verdict(evidence_of("python-recursion"), "stack-overflow")
        assert (found.facts["kind"], found.facts["function"]) == ("python", "flatten")
        assert "flatten (decode.py:12) called itself through C code about" in found.sentence

    def test_a_small_stack_is_told_from_an_endless_recursion(self):
        found = verdict(evidence_of("small-thread-stack"), "stack-overflow")
        assert found.facts["kind"] == "small-stack"
        assert "256 KiB" in found.sentence

    def test_an_address_inside_the_stack_is_no_overflow(self):
        evidence = evidence_of("stack-overflow")
        assert evidence.fault is not None
        low = evidence.fault.stack_low
        assert low is not None
        inside = with_fault("stack-overflow", address=low + 8192, sp=low + 8192, distance_to_sp=0)
        assert verdict(inside, "stack-overflow").confidence < CLAIMED

    def test_without_limits_the_stack_pointer_alone_makes_it_likely(self):
        """As in a core of a thread: its stack has no name."""
        evidence = with_fault("stack-overflow", stack_low=None, stack_high=None)
        assert first(evidence)[0] == "stack-overflow"

    def test_the_signature_does_not_depend_on_where_exactly_the_stack_ended(self):
        evidence = evidence_of("nested-data")
        stack = evidence.native_stack
        assert stack is not None
        leaf = NativeFrame(address=1, function="some_leaf", library=stack.frames[0].library, trust="context")
        other = replace(evidence, native_stack=replace(stack, frames=(leaf, *stack.frames)))
        assert diagnose(other).signature == diagnose(evidence).signature

    @pytest.mark.parametrize(
        ("number", "words"), [(7, "7"), (999, "999"), (15_421, "15,400"), (1_234_567, "1,230,000")]
    )
    def test_depths_have_three_digits(self, number: int, words: str):
        assert stack_overflow.about(number) == words


class TestAborts:
    @pytest.mark.parametrize(
        ("message", "functions", "cause", "kind"),
        [
            (None, ("check",), "native-abort", "abort"),
            ("a.c:3: f: Assertion `n > 0' failed.", ("f",), "native-abort", "assert"),
            (None, ("__assert_fail", "f"), "native-abort", "assert"),
            (None, ("__cxa_pure_virtual", "f"), "native-abort", "pure-virtual-call"),
            (None, ("rust_panic", "f"), "native-abort", "panic"),
            ("*** buffer overflow detected ***: terminated", ("__chk_fail",), "native-abort", "fortify"),
            ("double free or corruption (!prev)", ("free",), "heap-corruption", "double-free"),
            ("double free or corruption (out)", ("free",), "heap-corruption", "overrun"),
            ("malloc(): corrupted top size", ("malloc",), "heap-corruption", "overrun"),
            ("corrupted size vs. prev_size", ("free",), "heap-corruption", "overrun"),
            ("munmap_chunk(): invalid pointer", ("free",), "heap-corruption", "invalid-pointer"),
            ("free(): invalid pointer", ("free",), "heap-corruption", "invalid-pointer"),
            (None, ("fatal_error", "_PyMem_DebugCheckAddress"), "heap-corruption", None),
        ],
    )
    def test_what_it_says_and_where_it_was_decide(
        self, message: str | None, functions: tuple[str, ...], cause: str, kind: str | None
    ):
        diagnosis = diagnose(aborted(message, *functions))
        assert diagnosis.best is not None
        assert diagnosis.best.id == cause
        assert diagnosis.best.facts["kind"] == kind
        assert [one.id for one in diagnosis.causes[1:] if one.confidence >= CLAIMED] == []

    def test_stack_smashing_names_the_function_whose_array_was_overrun(self):
        assert verdict(evidence_of("stack-smashing"), "stack-smashing").facts["function"] == "copy_name"

    def test_an_exception_has_its_type_and_words(self):
        found = verdict(evidence_of("uncaught-cpp-exception"), "native-abort")
        assert (found.facts["exception"], found.facts["message"]) == (
            "decoder::corrupt_header",
            "version 9 is not known",
        )
        assert "decoder::parse in zoothrows.so threw decoder::corrupt_header" in found.sentence

    def test_bad_alloc_is_its_own_kind(self):
        assert native_abort.kind_of(evidence_of("bad-alloc")) == "bad-alloc"

    def test_sigabrt_from_outside_is_a_kill(self):
        evidence = with_fault("abort", sender_pid=99)
        assert first(evidence)[0] == "external-kill"
        assert verdict(evidence, "native-abort").confidence < CLAIMED

    def test_the_signal_alone_is_not_claimed(self):
        evidence = Evidence(status=Status(source="exit code 134", signal="SIGABRT"))
        assert verdict(evidence, "native-abort").confidence < CLAIMED

    def test_python_gives_up_without_the_gil(self):
        found = verdict(evidence_of("gil-not-held"), "fatal-python-error")
        assert found.facts["function"] == "PyThreadState_Get"
        assert any("PyGILState_Ensure" in step.text for step in found.steps)


class TestFromLogs:
    @pytest.mark.parametrize(
        ("kind", "quote", "cause"),
        [
            ("heap-corruption", "free(): invalid next size (fast)", "heap-corruption"),
            ("stack-smashing", "*** stack smashing detected ***: terminated", "stack-smashing"),
            (
                "fatal-python",
                "Fatal Python error: PyThreadState_Get: the GIL is released",
                "fatal-python-error",
            ),
            (
                "cxx-terminate",
                "terminate called after throwing an instance of 'std::out_of_range'",
                "native-abort",
            ),
            ("assert-failed", "python: a.c:3: f: Assertion `n > 0' failed.", "native-abort"),
            ("stack-overflow", "thread 'main' has overflowed its stack", "stack-overflow"),
        ],
    )
    def test_the_words_alone_are_enough(self, kind: str, quote: str, cause: str):
        assert first(log(kind, quote))[0] == cause

    def test_faulthandlers_heading_is_not_a_fatal_error_of_python(self):
        evidence = log("signal", "Fatal Python error: Segmentation fault", signal="SIGSEGV")
        assert verdict(evidence, "fatal-python-error").confidence < CLAIMED


class TestFreedMemory:
    def test_a_freed_block_counts_only_where_the_address_came_out_of_it(self):
        """Every free() leaves one behind in some register."""
        evidence = evidence_of("wild-pointer")
        leftover = Pointer(
            source="test",
            register="r9",
            value=0x5581A3C2F340,
            bytes="2f3c1a5805000000" + "00" * 24,
            freed="cache",
        )
        evidence = replace(evidence, pointers=(leftover,))
        assert verdict(evidence, "use-after-free").confidence < 0.05
        assert first(evidence)[0] == "wild-pointer"

    @pytest.mark.parametrize("name", ["use-after-free", "use-after-free-large", "use-after-free-poisoned"])
    def test_it_comes_before_what_it_looks_like(self, name: str):
        causes = {one.id: one.confidence for one in diagnosis_of(name).verdicts}
        assert causes["use-after-free"] > 0.9
        assert max(causes["wild-pointer"], causes["corrupted-control-flow"], causes["null-pointer"]) < 0.2

    @pytest.mark.parametrize("byte", [0xDD, 0x5A, 0x6B])
    def test_an_address_of_one_filling_byte_is_enough(self, byte: int):
        address = int.from_bytes(bytes([byte]) * 8, "big") + 16
        evidence = with_fault("impossible-address", address=address, canonical=False)
        assert first(evidence)[0] == "use-after-free"

    def test_six_such_bytes_are_not(self):
        assert first(with_fault("wild-pointer", address=0x5A5A5A5A5A58))[0] == "wild-pointer"


class TestAllocators:
    @pytest.mark.parametrize("function", ["_int_malloc", "unlink_chunk", "__libc_free", "pymalloc_alloc"])
    def test_a_fault_inside_an_allocator_is_damaged_memory(self, function: str):
        evidence = evidence_of("wild-pointer")
        stack = evidence.native_stack
        assert stack is not None
        inside = NativeFrame(address=1, function=function, library="/usr/lib/libc.so.6", trust="context")
        evidence = replace(evidence, native_stack=replace(stack, frames=(inside, *stack.frames)))
        assert first(evidence)[0] == "heap-corruption"
        assert heap_corruption.in_allocator(evidence) == function


class TestControlFlow:
    def test_a_return_to_text_is_shown_as_text(self):
        found = verdict(evidence_of("overwritten-return-address"), "corrupted-control-flow")
        assert found.facts["target"] == "0x4141414141414141"
        assert any("'AAAAAAAA'" in reason for reason in found.reasons_for)
        assert "its return address was overwritten" in found.sentence

    def test_who_jumped_is_named_and_not_where_it_came_to(self):
        assert verdict(evidence_of("jump-into-data"), "corrupted-control-flow").facts["function"] == "call"
        assert verdict(evidence_of("jump-to-null"), "null-pointer").facts["function"] == "call"

    def test_an_instruction_of_the_kernel_is_no_code_of_ours(self):
        evidence = evidence_of("misaligned-vector")
        hlt = Instruction(
            source="test", address=1, bytes="f4", text="hlt", mnemonic="hlt", is_privileged=True
        )
        assert first(replace(evidence, instruction=hlt))[0] == "corrupted-control-flow"


class TestSigill:
    """Told four ways."""

    @pytest.mark.parametrize(
        ("name", "cause"),
        [
            ("illegal-instruction", "isa-mismatch"),
            ("trap-instruction", "trap-instruction"),
            ("invalid-opcode", "corrupted-control-flow"),
            ("illegal-but-supported", "native-bug"),
        ],
    )
    def test_each_has_its_cause(self, name: str, cause: str):
        assert first(evidence_of(name))[0] == cause

    def test_the_fourth_is_a_contradiction(self):
        assert any(
            "yet this CPU has" in text for text in diagnosis_of("illegal-but-supported").contradictions
        )


class TestDivision:
    @pytest.mark.parametrize(
        ("text", "registers", "divisor"),
        [
            ("idiv ecx", {"rcx": 0x1_0000_0000}, 0),
            ("idiv ecx", {"rcx": 0xFFFFFFFF}, -1),
            ("idiv rsi", {"rsi": 2**64 - 1}, -1),
            ("div r8d", {"r8": 0}, 0),
            ("idiv r10", {"r10": 7}, 7),
            ("div cl", {"rcx": 0x100}, 0),
            ("idiv bx", {"rbx": 0xFFFF}, -1),
            ("idiv sil", {"rsi": 0}, 0),
        ],
    )
    def test_the_divisor_is_read_from_its_register(self, text: str, registers: dict[str, int], divisor: int):
        fault = Fault(source="test", signal="SIGFPE", code=1, code_name="FPE_INTDIV", registers=registers)
        found = Instruction(source="test", address=1, bytes="", text=text, mnemonic=text.split(maxsplit=1)[0])
        assert arithmetic_fault.divisor(Evidence(fault=fault, instruction=found)) == divisor

    def test_floating_point_is_denied(self):
        assert "no floating point" in verdict(evidence_of("integer-division"), "arithmetic-fault").sentence

    def test_switched_on_floating_point_traps_are_told(self):
        evidence = with_fault("integer-division", code_name="FPE_FLTDIV")
        assert verdict(evidence, "arithmetic-fault").facts["kind"] == "floating-point"


class TestReadonly:
    def test_a_guard_page_is_not_readonly_memory(self):
        evidence = with_fault("write-to-readonly", address_permissions="---p")
        assert verdict(evidence, "write-to-readonly").confidence < CLAIMED

    def test_the_instruction_tells_where_the_processor_was_not_asked(self):
        """A core has no fault code of the processor."""
        assert first(with_fault("write-to-readonly", access=None))[0] == "write-to-readonly"


@pytest.mark.parametrize("name", ["breakpoint", "trap-instruction"])
def test_traps_are_traps(name: str):
    assert first(evidence_of(name))[0] == "trap-instruction"
