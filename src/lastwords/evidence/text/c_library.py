"""What the C and C++ run-time libraries and the sanitizers print before they call abort()."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.reader import Reader, mention, says

_HEAP = (
    r"(?:free|realloc|malloc|calloc|munmap_chunk|malloc_consolidate|_int_free|unlink_chunk|sysmalloc|tcache_\w{1,20})"
    r"\(\): (?:invalid|corrupted|memory corruption|unaligned|double free|mismatching|unsorted|smallbin|largebin|too many)"
)

_FAILING = re.compile(r"Failing at address: (?P<address>0x[0-9a-f]{1,16}|\(nil\))")
LINES_OF_A_SIGNAL = 4


def _open_mpi(excerpt: Excerpt) -> Iterator[Mention]:
    """Open MPI's handler: the signal's name stands a few lines above the address, and may be another than SIGSEGV."""
    for index in excerpt.with_needle("failing at address", 20):
        found = _FAILING.search(excerpt.lines[index].text)
        above = excerpt.lines[max(0, index - LINES_OF_A_SIGNAL) : index]
        if found and any("Segmentation fault" in line.text for line in above):
            yield mention(
                "fault", excerpt, index, "Open MPI", {"signal": "SIGSEGV", "address": found["address"]}
            )


_ALLOCATOR = re.compile(
    r"#\d{1,3} .{0,80}\b(?:_int_(?:free|malloc|realloc|memalign)|malloc_(?:consolidate|printerr)|munmap_chunk|unlink_chunk|sysmalloc|c?free|realloc)\b"
)


def _allocator_gave_up(excerpt: Excerpt) -> Iterator[Mention]:
    """On a stack that a debugger prints, the words are not there: who called the function that prints them is."""
    for index in excerpt.with_needle("__libc_message", 4):
        below = excerpt.lines[index + 1 : index + 3]
        if any(_ALLOCATOR.search(line.text) for line in below):
            yield mention(
                "heap-corruption", excerpt, index, "C library", {"message": "the allocator gave up"}
            )


def _on_stacks(excerpt: Excerpt) -> Iterator[Mention]:
    yield from _open_mpi(excerpt)
    yield from _allocator_gave_up(excerpt)


READER = Reader(
    "C library",
    (
        says("heap-corruption", "(): ", rf"(?P<message>{_HEAP}[^\n]{{0,60}})"),
        says("heap-corruption", "double free", r"(?P<message>double free or corruption[^\n]{0,20}|double free detected[^\n]{0,20})"),
        says("heap-corruption", "corrupted", r"(?P<message>corrupted (?:double-linked list|size vs\. prev_size|unsorted chunks)[^\n]{0,30})"),
        says("heap-corruption", "malloc", r"malloc: \*{3} error for object|sysmalloc: assertion|malloc\.c:\d{1,6}: \w{1,40}: assertion"),
        says("heap-corruption", "invariant", r"(?P<message>break(?:s)? invariant[^\n]{0,60})"),
        says("heap-corruption", "heap corruption", r"(?:HEAP CORRUPTION DETECTED|heap corruption)"),
        says("heap-corruption", "memory corruption|glibc detected", r"glibc detected|malloc\(\): memory corruption"),
        says("heap-corruption", "pointer being freed was not allocated"),
        says("heap-corruption", "free", r"attempt(?:ing)? (?:to )?free"),
        says("heap-corruption", "malloc|scudo", r"(?:<jemalloc>|mimalloc|tcmalloc|snmalloc|Scudo)\b.{0,120}(?:corrupt|double|invalid|size mismatch)"),
        says("stack-smashing", "stack smashing detected"),
        says("stack-smashing", "buffer overflow detected"),
        # macOS names the kind of memory that the address is in, and knows where stacks end.
        says("stack-overflow", "stack guard|stack size exceeded", r"(?:VM Region Info.{0,200}|--> {1,8})STACK GUARD|Thread stack size exceeded due to"),
        says("cxx-terminate", "terminate called", r"instance of ['\"`‘](?P<type>[^'\"`’]{1,120})['\"`’]"),
        says("cxx-terminate", "terminate called", r"terminate called (?:without an active exception|recursively)"),
        says("cxx-terminate", "terminating", r"libc\+\+abi: terminating.{0,60}(?:exception of type (?P<type>\S{1,120})|exception)"),
        says("cxx-what", "what():", r"what\(\): {1,4}(?P<what>.{1,200})"),
        says("assert-failed", "assertion", r"\.(?:c|cc|cpp|cxx|h|hpp|hh|cu|cuh):\d{1,7}: .{0,300}Assertion [`'].{1,200}' failed"),
        says("assert-failed", "assert", r"\b[A-Z]{2,20}_ASSERT\w{0,12}\(.{1,300}\) failed|\bAssertion failed: .{1,300}(?:, file |, function )"),
        says("assert-failed", "fatal error condition", r"Fatal error condition occurred in \S{1,300}:\d{1,7}"),
        says("assert-failed", "assertion failed", r"\.(?:c|cc|cpp|cxx|h|hpp|hh|cu|cuh):\d{1,7}\] {1,4}assertion failed: "),
        says("assert-failed", "llvm error", r"\bLLVM ERROR: "),
        says("assert-failed", "check failed", r"\bF\d{4} .{0,200}Check failed|^F .{0,200}Check failed|Check failed: \S{1,100}"),
        says("assert-failed", "omp: error #13", r"OMP: Error #13: Assertion failure at \S{1,200}"),
        says("assert-failed", "raw: check", r"\bRAW: Check .{1,300} failed"),
        # On a stack that a debugger prints: whose words, if it had any, are not beside it.
        says("assert-failed", "assert", r"(?:^\s{0,8}#\d{1,3} |\bframe #\d{1,4}: ).{0,200}\b(?:__assert_(?:fail\w{0,8}|rtn)|\w{1,30}_assertion_failed)\b"),
        says("signal", "raise (sig", r"^\s{0,8}#\d{1,3} .{0,80}raise \(sig=(?:sig@entry=)?6\)", signal="SIGABRT"),
        says("signal", "signo=", r"^\s{0,8}#\d{1,3} .{0,80}pthread_kill\w{0,20} \(.{0,80}signo=(?:signo@entry=)?6\b", signal="SIGABRT"),
        says("assert-failed", "panicked at", r"thread '.{1,80}' .{0,20}panicked at"),
        says("assert-failed", "fatal", r"(?:pybind11|libprotobuf|absl).{0,60}fatal"),
        says("bad-alloc", "bad_alloc", r"std::bad_alloc|bad_alloc"),
        says("bad-alloc", "length_error", r"'std::length_error'"),
        says("sanitizer", "addresssanitizer", r"AddressSanitizer: (?P<bug>[\w-]{1,60})"),
        says("sanitizer", "undefinedbehaviorsanitizer", r"UndefinedBehaviorSanitizer: (?P<bug>[\w-]{1,60})"),
        says("sanitizer", "threadsanitizer", r"ThreadSanitizer: (?P<bug>heap-use-after-free)"),
        says("signal", "sanitizer: fpe", signal="SIGFPE"),
        says("signal", "runtime error: division by zero", signal="SIGFPE"),
        says("fault", "sanitizer: segv", r"Sanitizer: SEGV on unknown address (?P<address>0x[0-9a-f]{1,16})", signal="SIGSEGV"),
        says("native-frame", " in ", r"^\s{0,8}#\d{1,3} {1,4}0x[0-9a-f]{1,16} in (?P<function>[\w:~<>]{2,200}).{0,200}?(?:\((?P<library>[^\s()+]{1,200})\+0x|$)"),
        says("native-frame", " in ", r"^0x[0-9a-f]{6,16} in (?P<function>[\w:~<>]{2,200}) ?\("),
        # Valgrind puts what the block was on a line of its own, under the access.
        says("sanitizer", "bytes inside a block", r"bytes inside a block of size [\d,]{1,20} free'd", bug="heap-use-after-free"),
        says("sanitizer", "a block of size", r"bytes (?:after|before) a block of size [\d,]{1,20} alloc'd", bug="heap-buffer-overflow"),
        says("heap-corruption", "invalid free()", r"==\d{1,9}== Invalid free\(\)", message="Invalid free()"),
        says("trap-here", "=>", r"=> {0,2}(?:0x)?[0-9a-f]{4,16}\b.{0,120}[\s:](?:ud2[ab]?|ud1|int3|hlt|brk|udf|bkpt)\b"),
        # AVX and later, BMI, MOVBE: what an older CPU does not know.
        says("newer-instruction", "=>", r"=> {0,2}(?:0x)?[0-9a-f]{4,16}\b.{0,120}(?:[\s:]v[a-z]{3,16}\d{0,3}[a-z]{0,3}\s|%[yz]mm\d|\b(?:shlx|shrx|sarx|rorx|mulx|pdep|pext|andn|bextr|lzcnt|tzcnt|movbe|adcx|adox)\b)"),
        # The kernel prints the bytes of the code, and puts the one at which it stopped into brackets: 0f 0b is ud2.
        says("trap-here", "code:", r"\bCode: (?:[0-9a-f]{2} ){0,64}<(?:0f> 0b|cc>)"),
        says("native-frame", "line 0, in", r"File \"<unknown>\", line 0, in (?P<function>(?!0x)[\w:~]{2,200})"),
        says("data-race", "threadsanitizer", r"ThreadSanitizer: data race"),
        says("stack-overflow", "stack usage", r"\bC stack usage.{0,40}too close to the limit"),
        says("stack-overflow", "overflow", r"AddressSanitizer: stack-overflow|stack overflow|has overflowed its stack", unless=r"(?-i:Stack Overflow)|stackoverflow|rstack"),
        says("stack-overflow", "#", r"^\s{0,8}#(?P<depth>[1-9]\d{3,6}) {1,4}(?:0x[0-9a-f]{4,16} in )?[\w:~<]{2,200}.{0,20}\("),
        says("null-argument", "=0x0", r"^\s{0,8}(?:#0 .{1,200}|0x[0-9a-f]{6,16} in \S{1,200} )\(.{0,200}\b\w{1,40}=0x0\b"),
        says("recursion-raised", "setrecursionlimit", r"setrecursionlimit\((?:[1-9][\d_]{4,12}|10 ?\*\* ?[4-9]|\d{1,3}e[4-9])"),
        says("not-writable", "writ|mmap_mode", r"(?:array|tensor|buffer|memory).{0,30} not writ(?:e)?able|mmap_mode ?= ?['\"]r['\"]"),
        says("stack-overflow", "recursive|recover from stack", r"Cannot recover from stack overflow|_Py_CheckRecursiveCall|_Py_EnterRecursiveCall"),
        says("bus-place", "bus error:", r"Bus error: (?P<why>[\w ]{1,60})"),
        says("fault", "segmentation fault:", r"Segmentation fault: (?P<why>[\w ]{1,60}) at address (?P<address>0x[0-9a-f]{1,16})", signal="SIGSEGV"),
        says("fault", "*** sigsegv", r"\*\*\* SIGSEGV \(@(?P<address>0x[0-9a-f]{1,16})\) received by PID (?P<pid>\d{1,9})", signal="SIGSEGV"),
        says("fault", "exc_bad_access", r"EXC_BAD_ACCESS \(code=(?:\d{1,4}|EXC_\w{1,20}), address=(?P<address>0x[0-9a-f]{1,16})", signal="SIGSEGV"),
        says("fault", "kern_", r"KERN_(?:INVALID_ADDRESS|PROTECTION_FAILURE) at (?P<address>0x[0-9a-f]{1,16})", signal="SIGSEGV"),
        says("fault", "si_addr", r"SIGSEGV.{0,80}si_addr[:= ]{1,3}(?P<address>0x[0-9a-f]{1,16})", signal="SIGSEGV"),
        says("native-frame", "+0x", r"(?P<library>[^\s/()]{1,120}\.so[\d.]*)\((?P<function>[\w]{0,120})\+0x"),
        # The program's own, in the form of backtrace_symbols(3).
        says("native-frame", "+0x", r"(?:^|[\s/])(?P<library>[\w.-]{1,120})\((?P<function>[A-Za-z_]\w{1,120})\+0x[0-9a-f]{1,8}\) ?\[0x", unless=r"\.so[\d.]*\("),
        says("native-frame", "#", r"#\d{1,3} {1,4}0x[0-9a-f]{6,16} (?:n/a|(?P<function>[\w:~]{2,200})) \((?P<library>[^\s()+]{1,120}) \+ 0x"),
        says("native-frame", "frame #", r"frame #\d{1,4}: 0x[0-9a-f]{6,16} (?P<library>[^\s`]{1,120})`(?P<function>[\w:~<>,* ]{2,200})"),
        says("native-frame", "()  ???", r"0x[0-9a-f]{6,16}\s{1,4}(?P<function>[\w:]{2,120})\(\)"),
        says("native-frame", "@ ", r"@ {1,8}0x[0-9a-f]{6,16} {1,4}(?:\(unknown\) {1,4})?(?P<function>[\w:~<>]{2,200})"),
    ),
    _on_stacks,
)  # fmt: skip
