"""The handler's crates import only what may be called in a dying process."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Each is a bare system call, or on POSIX's or glibc's list of async-signal-safe functions.
# fmt: off
IN_THE_HANDLER = [
    "__errno_location", "pread", "pread64", "clock_gettime", "close", "fcntl", "fstat", "fstat64", "getpid",
    "getppid", "getuid", "gethostname", "getsockopt", "lseek", "lseek64", "mmap", "mmap64", "mprotect",
    "munmap", "nanosleep", "open", "open64", "openat", "prctl", "pwrite", "pwrite64", "read", "readlink", "rename",
    "sigaction", "sigaddset", "sigaltstack", "sigdelset", "sigemptyset", "sigfillset", "pthread_sigmask",
    "strnlen", "syscall", "unlink", "connect", "dup3", "fallocate", "fallocate64", "ftruncate",
    "ftruncate64", "sendmsg", "socket", "memcpy", "memset", "memmove", "memcmp", "strlen", "bcmp",
    "pthread_getspecific",
]
# Called at install, when a thread starts, or between items; never while a crash is recorded.
OUTSIDE_OF_IT = [
    "dl_iterate_phdr", "dladdr", "dlopen", "dlsym", "dlvsym", "pthread_atfork", "pthread_key_create",
    "pthread_setspecific",
]
# fmt: on
# Of Rust's own library: pure, or the abort of an `extern "C"` function, which never happens without a panic.
RUSTS_OWN = {
    "core::panicking::panic_cannot_unwind",
    "rust_eh_personality",
    "<core::ffi::c_str::CStr>::from_bytes_until_nul",
}


@pytest.fixture(scope="module")
def undefined() -> set[str]:
    if shutil.which("cargo") is None or shutil.which("nm") is None:
        pytest.skip("needs cargo and nm")
    build = [
        "cargo",
        "build",
        "--release",
        "--locked",
        "-q",
        "-p",
        "lastwords-blackbox",
        "-p",
        "lastwords-handler",
    ]
    subprocess.run(build, cwd=ROOT, check=True)
    libraries = [str(path) for path in (ROOT / "target" / "release").glob("liblastwords_*.rlib")
                 if "handler" in path.name or "blackbox" in path.name]  # fmt: skip
    assert libraries
    listed = subprocess.run(["nm", "-C", *libraries], capture_output=True, text=True, check=True).stdout
    symbols = [line.split(maxsplit=1)[-1] for line in listed.splitlines() if re.match(r"\s+U ", line)]
    return {symbol.removeprefix("U ").strip() for symbol in symbols}


def test_nothing_is_imported_that_allocates_or_locks(undefined: set[str]):
    ours = {symbol for symbol in undefined if "lastwords" in symbol or symbol.startswith("anon.")}
    assert undefined - ours - RUSTS_OWN - set(IN_THE_HANDLER) - set(OUTSIDE_OF_IT) == set()


def test_the_list_would_notice_an_allocation(undefined: set[str]):
    assert not {"malloc", "free", "realloc", "__rust_alloc", "pthread_mutex_lock", "printf"} & undefined
