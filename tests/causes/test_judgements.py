"""What single facts do to a cause: each moves it the way it should, and no further."""

from __future__ import annotations

import msgspec
import pytest

from lastwords.diagnosis import CLAIMED, Verdict, diagnose
from lastwords.evidence import Evidence, OomKills, Status
from lastwords.evidence.model import Cpu, NativeFrame, SentSignal
from tests.cases import diagnosis_of, evidence_of

replace = msgspec.structs.replace


def verdict(evidence: Evidence, cause: str) -> Verdict:
    return next(one for one in diagnose(evidence).verdicts if one.id == cause)


def names_of(found: Verdict) -> set[str]:
    return {term.name for term in found.terms}


class TestIsaMismatch:
    def test_it_is_nearly_certain_and_has_exactly_the_promised_facts(self):
        found = verdict(evidence_of("illegal-instruction"), "isa-mismatch")
        assert found.confidence >= 0.98
        assert found.facts == {
            "instruction": "vfmadd231ps ymm0,ymm2,[rdi+rax*4]",
            "extension": "fma",
            "library": "/usr/lib/python3/site-packages/faiss/_swigfaiss_avx2.so",
            "package": "faiss-cpu",
            "package_version": "1.9.0",
            "function": "faiss::fvec_L2sqr(float const*, float const*, unsigned long)",
            "cpu_model": "Intel(R) Xeon(R) CPU E5-2650 v2 @ 2.60GHz",
        }

    def test_a_cpu_that_has_the_instruction_rules_it_out_and_is_a_contradiction(self):
        diagnosis = diagnosis_of("illegal-but-supported")
        assert verdict(diagnosis.evidence, "isa-mismatch").confidence < 0.05
        assert any("yet this CPU has avx" in text for text in diagnosis.contradictions)

    def test_an_unknown_cpu_leaves_it_likely_but_not_certain(self):
        found = verdict(replace(evidence_of("illegal-instruction"), cpu=None), "isa-mismatch")
        assert CLAIMED < found.confidence < 0.9

    def test_the_signal_alone_does_not_claim_it(self):
        found = verdict(Evidence(status=Status(source="exit code 132", signal="SIGILL")), "isa-mismatch")
        assert 0.3 < found.confidence < CLAIMED

    def test_a_package_with_a_switch_gets_it_as_a_step(self):
        steps = verdict(evidence_of("illegal-instruction"), "isa-mismatch").steps
        assert "export FAISS_OPT_LEVEL=generic" in [step.command for step in steps]

    def test_an_ordinary_package_is_built_for_this_cpu(self):
        evidence = evidence_of("illegal-instruction")
        stack = evidence.native_stack
        assert stack is not None
        frame = replace(stack.frames[0], package="other", package_version="2.0")
        evidence = replace(evidence, native_stack=replace(stack, frames=(frame,)))
        commands = [step.command for step in verdict(evidence, "isa-mismatch").steps]
        assert "pip install --force-reinstall --no-binary other 'other==2.0'" in commands

    def test_bytes_that_are_no_instruction_rule_it_out(self):
        evidence = evidence_of("illegal-instruction")
        assert evidence.instruction is not None
        broken = replace(evidence.instruction, is_valid=False)
        assert verdict(replace(evidence, instruction=broken), "isa-mismatch").confidence < 0.05

    def test_every_missing_extension_is_named(self):
        evidence = evidence_of("illegal-instruction")
        old = Cpu(source="test", architecture="x86_64", model="Old", flags=("sse2",))
        assert "needs avx fma" in " ".join(verdict(replace(evidence, cpu=old), "isa-mismatch").reasons_for)


class TestNullPointer:
    def test_facts(self):
        assert verdict(evidence_of("null-dereference"), "null-pointer").facts == {
            "address": "0x18",
            "offset": 24,
            "access": "read",
            "function": "sum_values",
            "library": "/srv/job/zoonative.cpython-311-x86_64-linux-gnu.so",
        }

    @pytest.mark.parametrize(("address", "claimed"), [(0, True), (0xFFFF, True), (0x10000, False)])
    def test_the_border_is_at_64_kib(self, address: int, claimed: bool):
        evidence = evidence_of("null-dereference")
        assert evidence.fault is not None
        evidence = replace(evidence, instruction=None, fault=replace(evidence.fault, address=address))
        assert (verdict(evidence, "null-pointer").confidence >= CLAIMED) is claimed

    def test_a_call_through_null_is_told_as_one(self):
        best = diagnosis_of("null-call").best
        assert best is not None
        assert best.id == "null-pointer"
        assert "called as if it were a function" in best.sentence

    def test_the_caller_of_the_c_library_is_named(self):
        evidence = evidence_of("null-dereference")
        stack = evidence.native_stack
        assert stack is not None
        inner = NativeFrame(
            address=1, function="__strlen_evex", library="/usr/lib/libc.so.6", trust="context"
        )
        evidence = replace(evidence, native_stack=replace(stack, frames=(inner, *stack.frames)))
        assert verdict(evidence, "null-pointer").facts["function"] == "sum_values"

    def test_ctypes_gets_its_own_advice(self):
        evidence = evidence_of("null-dereference")
        stack = evidence.native_stack
        assert stack is not None
        ctypes = NativeFrame(address=1, function="string_at", library="/x/_ctypes.so", trust="context")
        evidence = replace(evidence, native_stack=replace(stack, frames=(ctypes,)))
        assert "argtypes" in verdict(evidence, "null-pointer").steps[0].text


class TestExternalKill:
    def test_an_unchanged_counter_makes_it_sure(self):
        assert verdict(evidence_of("killed-from-outside"), "external-kill").confidence >= 0.85

    def test_without_it_nothing_is_claimed(self):
        evidence = replace(evidence_of("killed-from-outside"), oom_kills=None)
        found = verdict(evidence, "external-kill")
        assert found.confidence < CLAIMED
        assert "memory_unknown" in names_of(found)

    def test_a_counter_that_rose_rules_it_out(self):
        assert verdict(evidence_of("killed-for-memory"), "external-kill").confidence < 0.05

    def test_a_known_sender_is_named_even_where_memory_is_unknown(self):
        sent = SentSignal(source="test", signal="SIGKILL", sender_pid=77, sender_role="supervisor")
        evidence = replace(evidence_of("killed-from-outside"), oom_kills=None, sent_signals=(sent,))
        found = verdict(evidence, "external-kill")
        assert found.confidence > 0.95
        assert found.facts == {"signal": "SIGKILL", "sender_pid": 77, "sender": "supervisor, pid 77"}

    def test_the_parent_is_told_apart(self):
        found = verdict(evidence_of("killed-by-parent"), "external-kill")
        assert found.facts["sender"] == "its parent, pid 4700"
        assert "lastwords list" in [step.command for step in found.steps]

    def test_a_signal_of_another_name_is_not_the_one_that_killed(self):
        sent = SentSignal(source="test", signal="SIGTERM", sender_pid=77)
        evidence = replace(evidence_of("killed-from-outside"), sent_signals=(sent,))
        assert verdict(evidence, "external-kill").facts["sender_pid"] is None

    def test_kill_dash_segv_is_a_kill(self):
        best = diagnosis_of("sent-segfault").best
        assert best is not None
        assert (best.id, best.facts["sender_pid"]) == ("external-kill", 99)

    def test_sigterm_cannot_be_the_oom_killer(self):
        evidence = Evidence(status=Status(source="test", signal="SIGTERM"))
        assert verdict(evidence, "external-kill").confidence > 0.7

    @pytest.mark.parametrize("signal", ["SIGPIPE", "SIGALRM", "SIGXCPU"])
    def test_what_the_kernel_sends_for_the_programs_own_doing_is_no_kill(self, signal: str):
        evidence = replace(evidence_of("killed-from-outside"), status=Status(source="test", signal=signal))
        assert verdict(evidence, "external-kill").confidence < 0.05
        best = diagnose(evidence).best
        assert best is not None
        assert best.confidence < CLAIMED or (signal, best.id) == ("SIGXCPU", "time-limit")

    def test_a_fault_that_was_survived_does_not_explain_a_later_kill(self):
        diagnosis = diagnosis_of("handled-then-killed")
        assert diagnosis.best is not None
        assert diagnosis.best.id == "external-kill"
        assert verdict(diagnosis.evidence, "null-pointer").confidence < 0.05
        assert any("SIGSEGV" in text and "SIGKILL" in text for text in diagnosis.contradictions)


class TestPythonException:
    def test_facts(self):
        assert verdict(evidence_of("python-exception"), "python-exception").facts == {
            "type": "ValueError",
            "message": "item 5 has a negative width",
            "file": "/srv/job/images.py",
            "line": 17,
            "function": "decode",
            "item": 5,
        }

    def test_the_worker_is_named(self):
        found = verdict(evidence_of("python-exception"), "python-exception")
        assert found.sentence == "Item 5 in worker 1 raised ValueError, and nothing caught it."

    def test_an_echo_is_not_claimed_and_points_at_the_death(self):
        diagnosis = diagnosis_of("echo-of-a-death")
        assert not diagnosis.is_claimed
        assert diagnosis.best is not None
        assert diagnosis.best.steps[0].command == "lastwords list"

    def test_ctrl_c_is_not_an_error_of_the_program(self):
        evidence = evidence_of("python-exception")
        assert evidence.exception is not None
        pressed = replace(evidence.exception, kind="KeyboardInterrupt", message="")
        evidence = replace(evidence, exception=pressed, status=Status(source="test", signal="SIGINT"))
        best = diagnose(evidence).best
        assert best is not None
        assert best.id == "external-kill"


class TestFallbacks:
    def test_exit_code_zero_in_the_middle_of_an_item_is_a_death(self):
        evidence = replace(evidence_of("exit-in-the-middle"), status=Status(source="test", exit_code=0))
        assert verdict(evidence, "worker-exit").confidence > 0.85

    @pytest.mark.parametrize(("shut_down", "way"), [(True, "orderly"), (False, "abrupt"), (None, None)])
    def test_the_way_it_ended_is_told_where_it_can_be(self, shut_down: bool | None, way: str | None):
        evidence = replace(evidence_of("exit-in-the-middle"), shut_down=shut_down)
        assert names_of(verdict(evidence, "worker-exit")) & {"orderly", "abrupt"} == ({way} if way else set())

    def test_exit_code_zero_otherwise_is_not(self):
        evidence = replace(
            evidence_of("exit-in-the-middle"), status=Status(source="test", exit_code=0), item=None
        )
        assert verdict(evidence, "worker-exit").confidence < 0.05

    @pytest.mark.parametrize("name", ["exit-code-alone", "killed-and-nothing-known", "nothing-known"])
    def test_too_little_is_never_claimed_and_says_what_to_collect(self, name: str):
        diagnosis = diagnosis_of(name)
        assert not diagnosis.is_claimed
        assert diagnosis.evidence.missing

    @pytest.mark.parametrize("name", ["illegal-but-supported", "misaligned-vector"])
    def test_what_has_no_cause_yet_is_a_native_bug(self, name: str):
        assert [one.id for one in diagnosis_of(name).causes] == ["native-bug"]

    def test_a_kill_for_memory_is_out_of_memory(self):
        best = diagnosis_of("killed-for-memory").best
        assert best is not None
        assert (best.id, best.facts["limit"]) == ("out-of-memory", "cgroup")
        assert any("oom_kill 0 → 1" in reason for reason in best.reasons_for)

    def test_the_general_cause_yields_to_the_closer_one(self):
        general = verdict(evidence_of("null-dereference"), "native-bug")
        assert "closer_cause" in names_of(general)
        assert general.confidence < 0.2

    def test_the_abort_message_is_evidence(self):
        assert "rows > 0" in str(
            verdict(evidence_of("failed-assertion"), "native-bug").facts["abort_message"]
        )

    def test_the_frame_above_abort_is_named(self):
        assert verdict(evidence_of("abort"), "native-bug").facts["function"] == "check_invariant"


def test_oom_counts_are_compared_not_tested_for_zero():
    kills = OomKills(source="test", before=7, after=7)
    assert (
        verdict(replace(evidence_of("killed-from-outside"), oom_kills=kills), "external-kill").confidence
        > 0.85
    )


class TestTwoThreadsInOneLibrary:
    def test_it_is_possible_and_names_the_other_line(self):
        found = verdict(evidence_of("thread-race"), "data-race")
        assert 0.3 < found.confidence < CLAIMED
        assert str(found.facts["other_thread"]).endswith("death.py:16")

    def test_another_thread_elsewhere_is_no_sign(self):
        assert verdict(evidence_of("stack-overflow-on-c-thread"), "data-race").confidence < 0.05


class TestForbiddenCalls:
    def test_the_call_is_named(self):
        found = verdict(evidence_of("forbidden-call-with-trap"), "seccomp")
        assert found.facts["call"] == "keyctl"
        assert "keyctl" in found.sentence

    def test_a_sent_sigsys_names_no_call(self):
        evidence = evidence_of("forbidden-call-with-trap")
        assert evidence.fault is not None
        sent = replace(evidence, fault=replace(evidence.fault, code=0))
        assert verdict(sent, "seccomp").facts["call"] is None


class TestExceptionsThatCannotComeBack:
    def test_the_pool_broke_and_nobody_died(self):
        diagnosis = diagnosis_of("unpicklable-exception")
        assert diagnosis.best is not None and diagnosis.best.facts["what"] == "death.BadShard"
        assert verdict(diagnosis.evidence, "python-exception").confidence < CLAIMED


class TestTwoRuntimes:
    """Of OpenMP, in one process: common, and mostly borne well."""

    def test_the_runtime_that_gave_up_is_the_proof(self):
        best = diagnosis_of("two-openmp-runtimes").best
        assert best is not None
        assert best.id == "library-conflict"
        assert "libiomp5" in str(best.facts["runtimes"])

    def test_another_library_that_gives_up_beside_them_is_another_matter(self):
        copies = evidence_of("two-openmp-runtimes").copies
        diagnosis = diagnose(replace(evidence_of("abort"), copies=copies))
        assert diagnosis.best is not None
        assert diagnosis.best.id == "native-abort"
        assert "library-conflict" not in {one.id for one in diagnosis.causes}

    def test_one_runtime_that_gives_up_alone_has_its_own_reason(self):
        diagnosis = diagnose(replace(evidence_of("two-openmp-runtimes"), copies=()))
        assert diagnosis.best is not None
        assert diagnosis.best.id == "native-abort"
