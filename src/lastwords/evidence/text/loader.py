"""The dynamic loader and the import system: libraries and modules that are missing, foreign or at odds."""

from __future__ import annotations

from lastwords.evidence.text.hedges import PAGING_FILE
from lastwords.evidence.text.reader import Reader, says

_RUNTIME = (
    r"version [`'\"]?(?P<version>(?:GLIBCXX|CXXABI|GOMP|OMP|VERSION)_[\d.]{1,12}\w{0,2})['\"]? not found"
)
# The system's copy, and no environment around that brings one of its own.
_SYSTEMS_OWN = (
    r"^(?!.{0,600}(?:conda|mamba|miniforge|/envs/)).{0,300}?(?<![\w./-])/(?:usr/)?(?:local/)?lib(?:32|64)?/(?:[\w-]{1,40}-linux-gnu\w{0,8}/)?[\w.+-]{1,60}: "
    + _RUNTIME
)

READER = Reader(
    "loader",
    (
        says("wrong-machine", "exec format error"),
        says("wrong-machine", "errno 8", r"\[Errno 8\] Exec format|Errno 8\] "),
        says("wrong-machine", "cannot execute binary file"),
        # What Android's and other small shells say of a program that was built for a wider or another CPU.
        says("wrong-machine", "not executable", r"not executable: (?P<found>\d\d-bit ELF) file"),
        says("wrong-machine", "wrong elf class", r"wrong ELF class: (?P<found>ELFCLASS\d\d)"),
        says("wrong-machine", "invalid elf header"),
        says("wrong-machine", "incompatible architecture", r"\(have '(?P<found>[\w,]{1,40})', need '(?P<needed>[\w,]{1,40})"),
        says("wrong-machine", "wrong architecture", r"mach-o,? but wrong architecture|wrong architecture"),
        says("wrong-machine", "bad cpu type", r"Bad CPU type in executable"),
        says("wrong-machine", "does not match the detected host platform", r"platform \((?P<found>[\w/]{1,40})\) does not match"),
        says("wrong-machine", "not a valid win32 application"),
        says("wrong-machine", "winerror 193"),
        says("wrong-machine", "not a supported wheel on this platform"),
        says("wrong-machine", "no matching manifest for", r"no matching manifest for (?P<needed>\S{1,60})"),
        says("wrong-machine", "musl", r"ld-musl-[\w-]{1,20}\.so.{0,40}(?:no such file|not found)|libc\.musl-[\w.-]{1,30}.{0,60}(?:no such file|cannot open|not found)"),
        says("wrong-machine", "qemu", r"qemu-(?:x86_64|aarch64|arm|i386).{0,20}: could not open|qemu: uncaught target signal"),
        says("wrong-machine", "rosetta error", r"rosetta error: (?:failed to open elf|unimplemented)"),
        says("wrong-machine", "phentsize|em_", r"phentsize not the expected size|is for EM_\w{2,16} \(\d{1,3}\) instead of EM_"),
        says("wrong-machine", "elf", r"unsupported ELF (?:machine|file)|ELF load command .{0,40}"),
        says("wrong-machine", "error loading shared library", r"Error loading shared library ld-linux\S{0,40}"),
        says("wrong-machine", "error relocating", r"Error relocating \S{0,300}-linux-gnu\S{0,40}: \S{1,200}: symbol not found", found="a build for glibc", needed="musl"),
        says("library-missing", "error loading shared library", r"Error loading shared library (?P<library>(?!ld-linux)[\w.+-]{1,120})"),
        says("symbol-undefined", "error relocating", r"Error relocating .{1,200}: (?P<symbol>[\w@.$]{1,200}): symbol not found", unless=r"-linux-gnu"),
        says("symbol-missing", "not found", r"version [`'\"]?(?P<version>(?:GLIBC|GCC|OPENSSL)_[\d.]{1,12}\w{0,2})['\"]? not found"),
        says("symbol-missing", "not found", _SYSTEMS_OWN),
        says("runtime-too-old", "not found", rf"(?P<library>[^\s:]{{1,300}}): {_RUNTIME}", unless=_SYSTEMS_OWN.replace("?P<version>", "?:")),
        says("symbol-undefined", "undefined symbol", r"undefined symbol: (?P<symbol>[\w@.$]{1,200})"),
        says("symbol-undefined", "symbol not found", r"symbol not found(?: in flat namespace)?:? ?'?(?P<symbol>[\w.$]{1,200})", unless=r"Error relocating \S{0,300}-linux-gnu"),
        says("symbol-undefined", "specified procedure could not be found"),
        # The loader itself is not there: the program is for another machine, or for another C library.
        says("wrong-machine", "ld-linux", r"(?P<needed>ld-linux[\w-]{0,12}\.so\.\d)['\"]?: (?:cannot open shared object file|No such file)"),
        says("library-missing", "cannot open shared object file", r"(?P<library>[\w.+-]{1,120}): cannot open shared object file", unless=r"ld-linux[\w-]{0,12}\.so"),
        says("library-missing", "not found", r"(?P<library>\blib[\w.+-]{1,80}\.so[\d.]{0,12})(?: =>| was| is|:)? not found"),
        says("library-missing", "library not loaded", r"Library not loaded: ['\"]?(?P<library>[^\s'\"]{1,200})"),
        says("library-missing", "dll load failed", r"DLL load failed(?: while importing (?P<library>\w{1,80}))?", unless=PAGING_FILE),
        says("library-missing", "could not find module", r"Could not find module '(?P<library>.{1,200}?)' \(or one of its dependencies\)"),
        # The reason that follows may be that it is there, and does not fit.
        says("library-missing", "load", r"Could(?:n't| not) load (?:dynamic )?(?:shared )?library:? '?(?P<library>[\w.+-]{1,120})", unless=r"undefined symbol"),
        says("library-missing", "unable to load", r"Unable to load (?:any of \{)?(?P<library>lib[\w.+-]{1,120})"),
        says("library-missing", "no such file|shared libraries", r"(?:exec|env|bash|sh|execve)[:\s].{0,80}(?:python|java|node)\S{0,20}['\"]?: No such file or directory|error while loading shared libraries"),
        says("module-missing", "no module named", r"No module named:? ['\"]?(?P<module>[\w.-]{1,120})"),
        says("module-missing", "modulenotfounderror"),
        says("module-missing", "notfounderror|distributionnotfound|package metadata", r"PackageNotFoundError|DistributionNotFound|No package metadata was found"),
        says("module-missing", "importerror", r"ImportError: .{0,200}(?:must be installed|(?:is|are) not installed|(?:pip|conda) install\b)"),
        says("module-missing", "command not found", r"(?P<module>python\S{0,6}|pip\S{0,3}|conda|java|torchrun|ray|spark-submit): command not found"),
        says("module-missing", "cannot run program", r"Cannot run program \"(?P<module>[^\"]{1,80})\".{0,20}error=2"),
        says("module-missing", "executable file not found", r"executable file not found in \$PATH"),
        says("module-missing", "java_home|java gateway|java_gateway", r"JAVA_HOME is not set|JAVA_GATEWAY_EXITED|Java gateway process exited before"),
        says("name-missing", "cannot import name", r"cannot import name '(?P<name>\w{1,80})' from '?(?P<module>[\w.]{1,120})"),
        says("abi-conflict", "linked both", r"is being linked both statically and dynamically into"),
        says("shadowed", "partially initialized module", r"partially initialized module '(?P<module>[\w.]{1,80})'"),
    ),
)  # fmt: skip
