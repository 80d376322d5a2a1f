"""multiprocessing, concurrent.futures, loky and joblib: pools that lost a worker, and how they start one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.evidence import signals
from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.reader import Reader, mention, says

_ENDS = re.compile(r"\b(SIG[A-Z]{2,6}|EXIT)\((-?\d{1,3})\)")


def _exit_codes(excerpt: Excerpt) -> Iterator[Mention]:
    """loky: `The exit codes of the workers are {SIGTERM(-15), EXIT(1)}`, at times in the line that guesses why."""
    for index in excerpt.with_needle("exit codes of the workers are", 20):
        for name, code in _ENDS.findall(excerpt.lines[index].text):
            number = int(code)
            if name == "EXIT":
                yield mention("exit", excerpt, index, "loky", {"code": code})
            elif signals.name_of(-number) == name:
                yield mention("signal", excerpt, index, "loky", {"signal": name})


READER = Reader(
    "process pool",
    (
        says("lost", "terminated abruptly", r"process in the process pool was terminated abruptly"),
        says("lost", "brokenprocesspool"),
        says("lost", "terminatedworkererror"),
        says("lost", "unexpectedly terminated", r"worker process managed by the executor was unexpectedly terminated"),
        says("lost", "worker stopped while some jobs were given"),
        says("lost", "brokenexecutor"),
        says("lost", "child process", r"child process.{0,40}(?:died|terminated|exited)"),
        says("lost", "processexpired|abnormal termination", r"ProcessExpired|Abnormal termination"),
        says("work-timeout", "timeouterror", r"(?:multiprocessing|concurrent\.futures|billiard|multiprocess|joblib|loky)[\w.]{0,30}\.TimeoutError", by="whoever waited for its result"),
        says("echo", "eoferror", r"EOFError"),
        says("echo", "brokenpipeerror|errno 32", r"BrokenPipeError|\[Errno 32\]"),
        says("echo", "connectionreseterror", r"multiprocessing.{0,80}ConnectionResetError"),
        says("main-guard", "bootstrapping", r"before the current process has finished its bootstrapping phase|finished its bootstrapping"),
        says("main-guard", "freeze_support", r"freeze_support\(\)"),
        says("lost", "session crashed|restarted", r"\bsession crashed\b|(?:^|\W)kernel \S{1,60} restarted\b"),
        says("lost", "the kernel crashed", r"The Kernel crashed while executing code"),
        says("lost", "kernel", r"(?:^|\W)kernel \S{0,60} ?(?:has |appears to have )?died|kernel appears to have died|KernelRestarter: restarting"),
        says("main-guard", "import|__main__|main module", r"safely imported|protect(?:ed)? .{0,60}__main__|idiom in the main module"),
        says("fork-hint", "use of fork() may lead to deadlocks", r"multi-threaded, use of fork\(\) may lead to deadlocks"),
        says("fork-hint", "skipping fork() handlers"),
        says("fork-hint", "process forked|side of fork", r"(?:single|multi)-threaded process forked|crashed on child side of fork"),
        says("fork-hint", "os.fork()", r"os\.fork\(\) is incompatible with multithreaded code|os\.fork\(\) was called"),
        says("fork-hint", "got forked", r"The current process just got forked, after parallelism"),
        # The functions that run in the child, inside fork() itself.
        says("fork-hint", "fork", r"^\s{0,8}#\d{1,3} .{0,80}\b(?:\w{1,40}_postfork_child|PyOS_AfterFork_Child|__run_(?:post)?fork_handlers|\w{0,40}atfork_child\w{0,20})\b"),
        says("fork-hint", "fork", r"may have been in progress in another thread when fork\(\) was called|(?:after|since|because of) (?:a |the )?fork.{0,80}(?:deadlock|hang|lock)|fork(?:ed|ing)? .{0,60}(?:while|with).{0,40}threads?"),
        says("fork-hint", "libgomp|openmp", r"(?:libgomp|OpenMP|GNU OpenMP).{0,60}(?:fork|deadlock|hang)"),
        says("fork-deadlock", "fork()", r"fork\(\) called from a process (?:already |that is )?using|fork\(\).{0,80}\bis unsafe\b"),
        says("fork-deadlock", "forked", r"process has forked and you cannot use"),
        says("fork-deadlock", "fork", r"objc\[\d{1,9}\].{1,200}when fork\(\) was called|when fork\(\) was called.{0,200}Crashing instead|objc_initializeAfterForkError", sure=True),
        says("fork-deadlock", "deadlock", r"deadlock.{0,60}\bfork|\bfork\w{0,4}\b.{0,60}deadlock(?!s?, use)"),
        says("parent-gone", "parent", r"parent(?: process)?(?: \[?\d{1,9}\]?)?,? (?:has |is |was )?(?:died|dead|gone|exited|killed|disappeared|not alive|no longer|terminated|changed)"),
        says("parent-gone", "getppid", r"getppid\(\).{0,20}(?:== ?1|changed)"),
        says("parent-gone", "orphan|reparent|parent pid", r"orphan(?:ed)? (?:worker|process|rank|child)|reparented|parent pid (?:is )?(?:now )?1\b"),
        says("parent-gone", "driver|owner|scheduler|nanny|supervisor|launcher|controller|master", r"(?:driver|owner|scheduler|nanny|supervisor|launcher|controller|master)(?: process)? (?:has |was )?(?:died|exited unexpectedly|is dead|disappeared|gone away)"),
        says("parent-gone", "owner", r"OwnerDiedError|owner (?:of the (?:task|object) )?(?:has )?(?:died|exited)"),
        says("leaked", "resource_tracker", r"resource_tracker: There appear to be \d{1,9} leaked"),
    ),
    _exit_codes,
)  # fmt: skip
