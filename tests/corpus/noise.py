"""The same death told otherwise: other numbers, hosts and paths, prefixes, colours, progress bars, lines around it."""

from __future__ import annotations

import random
import re

from tests.corpus import Case

PREFIXES = (
    "2031-04-05 06:07:{:02d},123 ",
    "[rank{}]: ",
    "({}) worker-7 | ",
    "I0405 06:07:{:02d}.000001 99 ",
    "\x1b[36m(RayWorker pid={})\x1b[0m ",
    "trainer-{}-xkq8 main ",
)
CHATTER = (
    "epoch {} step {} loss 0.{} lr 1e-{}",
    "INFO checkpoint {} saved in {} s, {} MB, shard {}",
    "GET /health HTTP/1.1 200 {} {} {} {}",
    "DEBUG cache hit {} miss {} size {} age {}",
    "\r {}%|####      | {}/{} [00:0{}<00:30, 9.8it/s]",
)
# What healthy jobs print on their way: words of trouble that no process dies of.
WARNINGS = (
    "Setting OMP_NUM_THREADS for each process to be 1 in default, to avoid your system being overloaded.",
    "UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number of worker is 8.",
    "W tensorflow/core/framework/cpu_allocator_impl.cc:80] Allocation of 1207959552 exceeds 10% of free system memory.",
    "W tensorflow/default/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0': cannot open shared object file",
    "[W socket.cpp:663] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99).",
    "A matching Triton is not available, some optimizations will not be enabled. Error caught was: No module named 'triton'",
    "apex not found, falling back (ModuleNotFoundError: No module named 'apex')",
    "wandb: Network error (ConnectionError), entering retry loop.",
    "DeprecationWarning: This process (pid=43) is multi-threaded, use of fork() may lead to deadlocks in the child.",
    "huggingface/tokenizers: Disabling parallelism to avoid deadlocks...",
    "ulimit -n 1024 (65535 are recommended, otherwise Too many open files may occur)",
    "args: Namespace(batch_size=8, on_oom='skip', message='killed: out of memory', signal='SIGKILL')",
    "skipping corrupt image 00017.jpg (image file is truncated)",
    "handlers installed for SIGTERM and SIGINT; will save a checkpoint if preempted",
    "Detected kernel version 4.4.0, which is below the recommended minimum; this can cause the process to hang.",
    "health check: 0 workers died, 0 restarted, 0 killed",
    "GPU 0: ECC errors: 0 corrected, 0 uncorrected",
)
# What is printed behind a death, by those who lost it and by those who had started it.
AFTERMATH = (
    "W1116 12:00:01.100 api.py:897] Sending process 4411 closing signal SIGTERM",
    "[rank1]:[W TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=4): Connection reset by peer",
    "[rank0]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0.",
    "UserWarning: resource_tracker: There appear to be 20 leaked semaphore objects to clean up at shutdown",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "srun: error: n1: task 1: Exited with exit code 1",
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
    "slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2031-05-09T00:00:00 ***",
    "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>",
    "wandb: Waiting for W&B process to finish... (failed 1). Press Ctrl-C to abort syncing.",
    "make: *** [Makefile:12: train] Error 1",
    "ERROR: Job failed: exit code 1",
    "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.",
)
# Numbers that mean something: codes, signals, errno, addresses, versions, percentages, Xids, bank numbers.
_FREE_NUMBER = re.compile(r"(?<![\w.\-:#=/(%\[])(\d{4,7})(?![\w.%:])")
_PID = re.compile(r"((?:pid|PID|JOB|Job|StepId)[ :=(]{1,2})(\d{2,9})")
_PATH = re.compile(r"/(?:srv|x|app|opt/env|home/u)/")


def reworded(case: Case, seed: int) -> str:
    """Other process numbers, sizes and places."""
    chance = random.Random(f"{case.name}{seed}")
    text = _PID.sub(lambda match: f"{match[1]}{chance.randint(1000, 4_000_000)}", case.log)
    text = _FREE_NUMBER.sub(
        lambda match: str(chance.randint(10 ** (len(match[1]) - 1), 9 * 10 ** (len(match[1]) - 1))), text
    )
    return _PATH.sub(f"/mnt/team{seed}/project/", text)


def prefixed(case: Case, seed: int) -> str:
    """Behind what collectors of logs put in front of each line."""
    chance = random.Random(f"{case.name}{seed}")
    prefix = chance.choice(PREFIXES).format(chance.randint(1, 50))
    return "\n".join(prefix + line for line in reworded(case, seed).split("\n"))


def coloured(case: Case, seed: int) -> str:
    chance = random.Random(f"{case.name}{seed}")
    lines = reworded(case, seed).split("\n")
    return "\n".join(f"\x1b[{chance.choice((1, 31, 33))}m{line}\x1b[0m" for line in lines)


def chatter(chance: random.Random, count: int) -> list[str]:
    numbers = (chance.randint(1, 999) for _ in iter(int, 1))
    return [chance.choice(CHATTER).format(*(next(numbers) for _ in range(4))) for _ in range(count)]


def surrounded(case: Case, seed: int, lines: int = 400) -> str:
    """In the middle of a healthy log, with some of its lines between."""
    chance = random.Random(f"{case.name}{seed}")
    before, after = chatter(chance, lines), chatter(chance, lines // 4)
    return "\n".join([*before, reworded(case, seed), *after])


def warned(case: Case, seed: int) -> str:
    """Behind warnings that its writer lived with."""
    chance = random.Random(f"{case.name}{seed}")
    return "\n".join([*chance.sample(WARNINGS, 6), *chatter(chance, 3), reworded(case, seed)])


def followed(case: Case, seed: int) -> str:
    """In front of what others print about the same death."""
    chance = random.Random(f"{case.name}{seed}")
    return "\n".join([reworded(case, seed).rstrip("\n"), *chance.sample(AFTERMATH, 4)])


def drowned(case: Case, seed: int) -> str:
    """In some megabytes."""
    return surrounded(case, seed, lines=40_000)


def shortened(case: Case, seed: int) -> str:
    """Without the lines that decide nothing; the rest in their order."""
    if not case.decisive:
        return reworded(case, seed)
    kept = [
        line
        for line in case.log.split("\n")
        if any(one.strip() and one.strip() in line for one in case.decisive)
    ]
    return "\n".join(kept) if kept else case.log


def as_json(case: Case, seed: int) -> str:
    """As a container runtime keeps it: one JSON object for each line."""
    return "\n".join(
        f'{{"log":"{line.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}\\n","stream":"stderr"}}'
        for line in reworded(case, seed).split("\n")
    )


CHANGES = (reworded, prefixed, coloured, surrounded, shortened)
