from __future__ import annotations

import pytest

from lastwords.evidence import OomKills, Status, UnreadableBox, from_box
from tests.evidence.box_json import (
    BORN_UNIX,
    PYTHON_TEXT,
    SECOND,
    Shelf,
    autopsy,
    box,
    crash,
    identity,
    live,
    sent,
)

KILLED = Status(source="parent", signal="SIGKILL")


def test_a_crash_tells_everything(shelf: Shelf):
    path = shelf.put("a", box(crash=crash(), python_text=PYTHON_TEXT))
    found = from_box(path, Status(source="parent", signal="SIGSEGV"))
    assert found.time == pytest.approx(BORN_UNIX / 1e9 + 3)
    assert found.process is not None
    assert (found.process.pid, found.process.worker) == (4711, 3)
    assert found.item is not None
    assert (found.item.index, found.item.key, found.item.phase) == (5, "dataset[5]", "fetch")
    assert found.item.seconds == pytest.approx(1.0)
    fault = found.fault
    assert fault is not None
    assert (fault.signal, fault.code_name, fault.address, fault.access) == (
        "SIGSEGV",
        "SEGV_MAPERR",
        24,
        "read",
    )
    assert fault.is_main_thread
    assert fault.pc_is_executable
    assert fault.registers["r8"] == 2**64 - 1
    assert found.native_stack is not None
    assert found.native_stack.frames[0].function == "sum_values"
    assert found.instruction is not None
    assert found.instruction.memory[0].address == 24
    assert found.python_stack is not None
    assert [frame.line for frame in found.python_stack.frames] == [7, 12]
    assert found.other_threads is not None
    assert len(found.other_threads) == 1
    assert found.missing == ()


@pytest.mark.parametrize(
    ("trap", "error", "access"), [(14, 4, "read"), (14, 6, "write"), (14, 20, "execute"), (13, 0, None)]
)
def test_access_comes_from_the_page_fault(shelf: Shelf, trap: int, error: int, access: str | None):
    found = from_box(shelf.put("a", box(crash=crash(trap=trap, trap_error=error))))
    assert found.fault is not None
    assert found.fault.access == access


def test_a_sent_signal_has_a_sender_and_no_address(shelf: Shelf):
    found = from_box(shelf.put("a", box(crash=crash(code=0, sender_pid=99, sender_uid=0))))
    assert found.fault is not None
    assert (found.fault.code_name, found.fault.address) == ("SI_USER", None)
    assert (found.fault.sender_pid, found.fault.sender_uid) == (99, 0)


def test_an_address_the_signal_hides_comes_from_the_registers(shelf: Shelf):
    use = {"fault_address": 0x4141414141414141, "recomputed": True, "canonical": False}
    path = shelf.put("a", box(crash=crash(code=128, address=0)), autopsy(address_in=use))
    fault = from_box(path).fault
    assert fault is not None
    assert (fault.address, fault.canonical, fault.code_name) == (0x4141414141414141, False, "SI_KERNEL")


def test_a_kill_keeps_the_item_and_how_long_it_took(shelf: Shelf):
    found = from_box(shelf.put("a", box()), KILLED, time=BORN_UNIX / 1e9 + 7)
    assert found.item is not None
    assert found.item.seconds == pytest.approx(5.0, abs=1e-3)
    assert found.fault is None
    assert {missing.what for missing in found.missing} == {
        "who sent SIGKILL",
        "whether the kernel ran out of memory and killed it",
    }


def test_the_watchers_counter_is_kept(shelf: Shelf):
    kills = OomKills(source="test", before=2, after=2)
    found = from_box(shelf.put("a", box()), KILLED, oom_kills=kills)
    assert found.oom_kills is kills
    assert [missing.what for missing in found.missing] == ["who sent SIGKILL"]


def test_an_idle_worker_has_no_item(shelf: Shelf):
    idle = live(current={"index": 5, "key": "k", "phase": "idle", "started_ns": 1})
    assert from_box(shelf.put("a", box(live=idle)), KILLED).item is None


def test_who_sent_the_signal_is_found_in_the_other_boxes(shelf: Shelf):
    parent = box(identity=identity(pid=4700, role="MainProcess"), events=[sent(4711, 15), sent(1, 9)])
    found = from_box(shelf.put("a", box()), KILLED, [shelf.put("b", parent)])
    assert found.sent_signals is not None
    assert [(one.signal, one.sender_pid, one.sender_role) for one in found.sent_signals] == [
        ("SIGTERM", 4700, "MainProcess")
    ]
    assert found.sent_signals[0].time == pytest.approx(BORN_UNIX / 1e9 + 1)


def test_a_signal_to_an_earlier_process_of_that_pid_does_not_count(shelf: Shelf):
    parent = box(identity=identity(pid=4700), events=[sent(4711, 9, time_ns=5)])
    assert from_box(shelf.put("a", box()), KILLED, [shelf.put("b", parent)]).sent_signals == ()


def test_nobody_saw_the_end_but_it_was_killed(shelf: Shelf):
    found = from_box(shelf.put("a", box(events=[sent(4711, 9)])))
    assert found.status is not None
    assert found.status.signal == "SIGKILL"


def test_nobody_saw_the_end_but_it_said_so(shelf: Shelf):
    found = from_box(shelf.put("a", box(live=live(exit_said=True, exit_code=3))))
    assert found.status is not None
    assert found.status.exit_code == 3
    assert "itself" in found.status.source


def test_a_status_that_says_nothing_is_none(shelf: Shelf):
    found = from_box(shelf.put("a", box()), Status(source="unknown"))
    assert found.status is None
    assert "how the process ended" in found.missing[0].what


def test_growth_is_measured_over_items(shelf: Shelf):
    items = [{"index": i, "rss_change_kib": 6000 + i, "duration_ns": 1} for i in range(5)]
    memory = from_box(shelf.put("a", box(items=items))).memory
    assert memory is not None
    assert (memory.per_item, memory.items) == (6002 * 1024, 5)


def test_items_too_short_to_measure_say_nothing_about_memory(shelf: Shelf):
    items = [{"index": i, "rss_change_kib": 0} for i in range(50)]
    assert from_box(shelf.put("a", box(items=items))).memory is None


def test_events_are_the_newest_first_with_their_distance(shelf: Shelf):
    events = [{"kind": "note", "time_ns": 10**12 + i * SECOND, "text": str(i)} for i in range(30)]
    found = from_box(shelf.put("a", box(events=events, crash=crash(time_ns=10**12 + 30 * SECOND)))).events
    assert found is not None
    assert len(found) == 20
    assert (found[0].text, found[0].seconds_before) == ("29", 1.0)


def test_a_foreign_file_is_refused_with_its_reason(shelf: Shelf):
    shelf.boxes["/boxes/x"] = ValueError("it does not start with the mark of a box")
    with pytest.raises(UnreadableBox) as error:
        from_box("/boxes/x")
    assert error.value.reason == "it does not start with the mark of a box"


def test_a_file_that_is_gone_is_refused_with_its_reason(shelf: Shelf):
    with pytest.raises(UnreadableBox, match="No such file"):
        from_box("/boxes/none")


def test_related_boxes_that_cannot_be_read_are_notes(shelf: Shelf):
    found = from_box(shelf.put("a", box()), KILLED, ["/boxes/none"])
    assert "a related box was not read" in found.notes[0]


def test_an_autopsy_that_fails_leaves_the_rest(shelf: Shelf):
    path = shelf.put("a", box(crash=crash()))
    shelf.autopsies[path] = ValueError("no stack was saved")
    found = from_box(path)
    assert found.fault is not None
    assert found.native_stack is None
    assert "autopsy: no stack was saved" in found.notes
    assert "the native stack" in [missing.what for missing in found.missing]


def test_a_box_with_nothing_in_it_is_still_evidence(shelf: Shelf):
    found = from_box(shelf.put("a", {"version": 1}))
    assert found.fault is None
    assert found.item is None


def test_what_the_handler_could_not_do_is_noted(shelf: Shelf):
    broken = crash(steps_failed=["maps"], nested_signal=11, nested_step="stack")
    notes = " ".join(from_box(shelf.put("a", box(crash=broken))).notes)
    assert "'maps'" in notes
    assert "signal 11 inside the crash handler" in notes


def test_this_hosts_cpu_says_nothing_about_another_host(shelf: Shelf):
    elsewhere = box(identity=identity(host="surely-not-this-host"))
    assert from_box(shelf.put("a", elsewhere)).cpu is None
