"""CPython's own tests of process pools, with our executor in the place of theirs.

    python -m tests.survive.cpython_pools [PATTERN...]

runs those of the interpreter that runs it, or those whose names match. Many interpreters ship without them: then they are
Debian's, of the same Python version, which `make test` puts beside the virtual environment (tools/cpython_tests.sh).
The status is 0 if all pass, 5 if there are none.
"""

from __future__ import annotations

import concurrent.futures
import concurrent.futures.process
import importlib
import re
import sys
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lastwords.survive.executor import ProcessPoolExecutor

ROOT = Path(__file__).resolve().parents[2]
DEBIANS = Path(sys.prefix, "cpython-tests")
PACKAGE = "test.test_concurrent_futures"
MODULES = (
    "test_as_completed",
    "test_init",
    "test_process_pool",
    "test_shutdown",
    "test_wait",
    "test_deadlock",
)
"""From Python 3.12 on; before, all is in one module."""
NO_TESTS = 5

# By the end of the test's name, with the reason. docs/executor.md tells users the same.
_INSIDE = "it looks into the standard executor (_processes, _executor_manager_thread and the like)"
_OWN_FUTURE = (
    "it wants the pool broken by data that cannot travel; here its own future raises the error itself"
)
NOT_OURS: dict[str, str] = {
    "test_idle_process_reuse_one": _INSIDE,
    "test_idle_process_reuse_multiple": _INSIDE,
    "test_saturation": _INSIDE,
    "test_max_tasks_early_shutdown": _INSIDE,
    "test_processes_terminate": _INSIDE,
    "test_context_manager_shutdown": _INSIDE,
    "test_del_shutdown": _INSIDE,
    "test_shutdown_no_wait": _INSIDE,
    "test_python_finalization_error": _INSIDE,
    "test_killed_child": _INSIDE,
    "test_shutdown_deadlock_pickle": _INSIDE,
    "FailingInitializerTest.test_initializer": _INSIDE,
    "test_error_at_task_unpickle": _OWN_FUTURE,
    "test_exit_at_task_unpickle": _OWN_FUTURE,
    "test_exit_during_result_pickle_on_worker": _OWN_FUTURE,
    "test_error_during_result_unpickle_in_result_handler": _OWN_FUTURE,
    "test_exit_during_result_unpickle_in_result_handler": _OWN_FUTURE,
    "test_max_tasks_per_child": "it wants max_tasks_per_child refused under fork, where it works here",
    "test_max_tasks_per_child_defaults_to_spawn_context": "as above: no other start method is needed",
    "test_cancel_futures": "it wants the first tasks to run although none has begun; here all of them are cancelled",
}


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from cases(one)
        elif isinstance(one, unittest.TestCase):
            yield one


def found() -> Iterator[unittest.TestCase]:
    """Raises ImportError where the interpreter ships without its tests, and there are none of Debian's."""
    package = importlib.import_module(PACKAGE)
    names = [f"{PACKAGE}.{name}" for name in MODULES] if hasattr(package, "__path__") else [PACKAGE]
    for name in names:
        module = importlib.import_module(name)
        if hasattr(module, "assert_python_ok"):
            vars(module)["assert_python_ok"] = with_ours(module.assert_python_ok)
        # Without the module's own load_tests, which starts a thread check of the whole test runner.
        loader = unittest.TestLoader()
        for kind in vars(module).values():
            is_test = isinstance(kind, type) and issubclass(kind, unittest.TestCase)
            if is_test and "ProcessPool" in kind.__name__ and hasattr(kind, "executor_type"):
                yield from cases(loader.loadTestsFromTestCase(kind))


def stand_in() -> None:
    """From here on the standard executor is ours, and its tests can be imported, also by spawned workers."""
    concurrent.futures.ProcessPoolExecutor = ProcessPoolExecutor  # type: ignore[misc,assignment]
    concurrent.futures.process.ProcessPoolExecutor = ProcessPoolExecutor  # type: ignore[misc,assignment]
    if DEBIANS.exists():
        sys.path.insert(0, str(DEBIANS))


PROLOGUE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.survive import cpython_pools
cpython_pools.stand_in()
"""


def with_ours(run: Callable[..., Any]) -> Callable[..., Any]:
    """For the tests that start interpreters of their own, as `python -c PROGRAM`."""

    def run_with_ours(*words: str, **variables: str) -> Any:
        assert words[0] == "-c"
        return run("-c", PROLOGUE + words[1], *words[2:], **variables)

    return run_with_ours


def reason_against(case: unittest.TestCase) -> str | None:
    return next((why for name, why in NOT_OURS.items() if case.id().endswith(name)), None)


def main(patterns: list[str]) -> int:
    stand_in()
    try:
        every = list(found())
    except ImportError as missing:
        print(f"this interpreter ships without its tests: {missing}")
        return NO_TESTS
    wanted = [case for case in every if not patterns or any(re.search(one, case.id()) for one in patterns)]
    chosen = [case for case in wanted if reason_against(case) is None]
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(chosen))
    print(f"{result.testsRun} ran, {len(wanted) - len(chosen)} do not apply")
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
