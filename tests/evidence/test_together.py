"""Several accounts of deaths: which speak of one, and what all of them know together."""

from __future__ import annotations

import msgspec

from lastwords.diagnosis import diagnose
from lastwords.evidence import Evidence, Process, from_status
from lastwords.evidence.status import from_exit_code
from lastwords.evidence.text import from_text
from lastwords.evidence.together import is_record, together
from tests.cases import evidence_of

KERNEL = """\
[ 812.10] python[4711]: segfault at 8 ip 00007f2a11223344 sp 00007ffc00001000 error 4 in libfoo.so[7f2a11220000+8000]
[ 900.00] Out of memory: Killed process 999 (java) total-vm:91234kB, anon-rss:81234kB
"""
DRIVER = "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Segmentation fault.\n"


def moved(evidence: Evidence, pid: int) -> Evidence:
    assert evidence.process is not None
    return msgspec.structs.replace(evidence, process=msgspec.structs.replace(evidence.process, pid=pid))


def best(evidence: Evidence) -> str | None:
    found = diagnose(evidence).best
    return found.id if found else None


def test_two_logs_are_accounts_of_one_death():
    (death,) = together([from_text(DRIVER), from_text(KERNEL)])
    assert best(death) == "null-pointer"
    assert death.fault is not None and death.fault.address == 8
    assert {one.quote[:12] for one in death.mentions or ()} >= {"RuntimeError"}


def test_the_drivers_pid_tells_which_death_of_the_kernels_log_is_meant():
    (death,) = together([from_text(DRIVER), from_text(KERNEL)])
    assert not any(one.fields.get("pid") == "999" for one in death.mentions or ())
    (alone,) = together([from_text(KERNEL)])
    assert any(one.fields.get("pid") == "999" for one in alone.mentions or ())


def test_a_log_adds_to_the_record_and_does_not_replace_it():
    record = evidence_of("killed-from-outside")
    pid = record.process.pid if record.process else 0
    log = from_text(f"kernel: Memory cgroup out of memory: Killed process {pid} (python) total-vm:91kB")
    assert best(record) != "out-of-memory"
    (death,) = together([record, log])
    assert best(death) == "out-of-memory"
    assert death.item == record.item and death.status == record.status


def test_lines_of_other_processes_are_left_out_where_the_record_is_named():
    record = moved(evidence_of("null-dereference"), 4711)
    (death,) = together([from_text(KERNEL), record])
    assert [one.fields.get("pid") for one in death.mentions or ()] == ["4711"]
    assert best(death) == "null-pointer"


def test_a_log_that_never_names_the_pid_may_come_from_outside_the_container():
    record = moved(evidence_of("null-dereference"), 17)
    (death,) = together([record, from_text(KERNEL)])
    assert len(death.mentions or ()) >= 2


def test_records_of_two_processes_are_two_deaths():
    one = msgspec.structs.replace(moved(evidence_of("null-dereference"), 1), id="")
    two = msgspec.structs.replace(moved(evidence_of("double-free"), 2), id="")
    assert [best(death) for death in together([one, two])] == ["null-pointer", "heap-corruption"]


def test_a_box_and_a_core_of_one_process_are_one_death():
    box = msgspec.structs.replace(evidence_of("null-dereference"), id="", native_stack=None)
    core = msgspec.structs.replace(evidence_of("null-dereference"), id="", item=None)
    (death,) = together([box, core])
    assert death.native_stack == core.native_stack and death.item == box.item


def test_an_exit_code_beside_a_log_is_its_status():
    status = from_status(from_exit_code(137, "exit code"))
    (death,) = together([status, from_text("worker 3 lost\n")])
    assert death.status is not None and death.status.signal == "SIGKILL"
    assert death.mentions is not None


def test_what_is_a_record():
    assert is_record(evidence_of("abort"))
    assert not is_record(from_text(DRIVER))
    assert not is_record(from_status(from_exit_code(1, "exit code")))
    assert is_record(Evidence(process=Process(source="a core", pid=3)))
