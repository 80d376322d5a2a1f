"""Exceptions that only say that another process died: the cause is elsewhere."""

from __future__ import annotations

import re

KINDS = frozenset({
    "BrokenProcessPool", "BrokenExecutor", "TerminatedWorkerError", "WorkerLostError", "KilledWorker", "ProcessExpired",
    "WorkerCrashedError", "RayActorError", "ActorDiedError", "ActorUnavailableError", "ChildFailedError", "SparkException",
    "ProcessExitedException", "ProcessRaisedException", "EOFError", "BrokenPipeError", "WorkerDied", "Py4JJavaError",
    "CalledProcessError", "Empty", "SystemExit", "KeyboardInterrupt", "RayTaskError", "EngineDeadError", "Py4JNetworkError",
    "NodeDiedError", "ObjectLostError", "CommClosedError", "CancelledError", "ExitError", "TrainingFailedError", "GeneratorExit", "ShutDownError",
})  # fmt: skip
_TEXT = re.compile(
    r"DataLoader worker \(pid\(?s?\)? .{1,200}\)(?: exited unexpectedly| is killed by signal|\s*$)"
    r"|terminated abruptly|abruptly died|worker (?:process )?(?:has )?(?:died|exited|crashed)|exited prematurely"
    r"|Engine (?:core |process )?(?:initialization )?(?:failed|died|is dead)|child process.{0,40}(?:died|failed|exited)"
    r"|Failed to set up runtime env|See (?:stack trace|root cause) above|process \d{1,6} terminated|returned non-zero exit status"
    r"|died with <Signals|Broken pipe|exception on one of the ranks|caused by an exception (?:in|on) (?:another|one of)"
    r"|^Socket Timeout$|unhandled (?:system|cuda) error, NCCL|another (?:rank|process|worker) (?:has )?(?:failed|died|crashed)",
    re.IGNORECASE,
)


def is_echo(kind: str, message: str) -> bool:
    return kind.rpartition(".")[2] in KINDS or _TEXT.search(message) is not None
