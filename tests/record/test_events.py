"""What a process did shortly before its end is in its box."""

from __future__ import annotations

import os
import signal


def events(box: dict, kind: str) -> list[tuple[int, int, str]]:
    return [(one["a"], one["b"], one["text"]) for one in box["events"] if one["kind"] == kind]


def test_native_imports_collections_warnings_and_threads_are_noted(record):
    ran = record(
        """
        import gc, threading, warnings
        import _decimal
        gc.collect()
        warnings.warn("this will end badly")
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
        """
    )
    (box,) = ran.boxes()
    assert "_decimal" in [text for _, _, text in events(box, "native_import")]
    assert (2, 1, "start") in events(box, "collection")
    assert events(box, "warning") == [(0, 0, "UserWarning: this will end badly")]
    assert len(events(box, "thread_start")) == 1


def test_a_kill_of_a_group_is_noted_as_such(record):
    ran = record("import os, signal; os.setpgrp(); os.killpg(os.getpgrp(), signal.SIGKILL)")
    (box,) = ran.boxes()
    assert ran.returncode == -signal.SIGKILL
    assert [(a, b) for a, b, _ in events(box, "sent_signal")] == [(-box["identity"]["pid"], signal.SIGKILL)]


def test_becoming_another_program_is_the_last_word(record):
    ran = record("import os; os.execvp('sh', ['sh', '-c', 'exit 7'])")
    assert ran.returncode == 7
    (box,) = ran.boxes()
    assert box["events"][-1]["kind"] == "exec"


def test_an_exec_that_fails_is_not(record):
    ran = record(
        """
        import os
        try:
            os.execv("/nowhere/at/all", ["x"])
        except FileNotFoundError:
            print("still here")
        """
    )
    assert ran.stdout == "still here\n"
    (box,) = ran.boxes()
    kinds = [one["kind"] for one in box["events"]]
    assert kinds.index("exec") < len(kinds) - 1


def test_wrapped_functions_still_look_like_themselves():
    assert os.kill.__name__ == "kill"


def test_who_left_is_noted_with_all_callers(record):
    ran = record(
        """
        import os, sys

        def deep():
            os._exit(7)

        def caught():
            try:
                sys.exit("not yet")
            except SystemExit as error:
                return error.code

        print(caught(), flush=True)
        deep()
        """
    )
    assert (ran.returncode, ran.stdout) == (7, "not yet\n")
    (box,) = ran.boxes()
    calls = [(one["kind"], one["message"], one["fatal"]) for one in box["exceptions"]]
    assert calls == [("sys.exit", "1", False), ("os._exit", "7", False)]
    functions = [[frame["function"] for frame in one["frames"]] for one in box["exceptions"]]
    assert functions == [["caught", "<module>"], ["deep", "<module>"]]
    assert box["exceptions"][1]["frames"][0]["line"] == 5


def test_an_orderly_end_of_a_worker_is_no_news(record):
    ran = record(
        """
        import multiprocessing, os
        worker = multiprocessing.get_context("fork").Process(target=int)
        worker.start()
        worker.join()
        """
    )
    assert ran.returncode == 0
    assert [one["exceptions"] for one in ran.boxes()] == [[], []]
