"""Builds and versions that do not go together, and what a build says about the CPU that it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lastwords.evidence.model import Mention
from lastwords.evidence.text.excerpt import Excerpt
from lastwords.evidence.text.reader import Reader, mention, says

_ASKED = re.compile(r"grep\b.{0,40}\b(?P<feature>avx\w{0,8}|fma|sse\w{0,4}|f16c|bmi[12]?|popcnt)\b.{0,80}cpuinfo|cpuinfo.{0,80}grep\b.{0,40}\b(?P<other>avx\w{0,8}|fma|sse\w{0,4}|f16c|popcnt)\b")  # fmt: skip
_IMPORT = re.compile(
    r"^\s*(?:>>>\s*)?(?:import|from) (?P<module>[A-Za-z_]\w{0,60})|python\S{0,12} -[mc] ['\"]?(?:import )?(?P<run>[A-Za-z_]\w{0,60})"
)


def _cpu_answers(excerpt: Excerpt) -> Iterator[Mention]:
    """Somebody asked /proc/cpuinfo for a feature, and the next line says 0."""
    for index in excerpt.with_needle("cpuinfo", 40):
        asked = _ASKED.search(excerpt.lines[index].text)
        following = excerpt.lines[index + 1].text.strip() if index + 1 < len(excerpt.lines) else ""
        if asked and following == "0":
            feature = asked["feature"] or asked["other"]
            yield mention("cpu-lacks", excerpt, index, "cpuinfo", {"feature": feature})


def _imports(excerpt: Excerpt) -> Iterator[Mention]:
    for index in [*excerpt.with_needle("import ", 20), *excerpt.with_needle("python", 20)]:
        found = _IMPORT.search(excerpt.lines[index].text)
        if found:
            yield mention(
                "importing", excerpt, index, "python", {"module": found["module"] or found["run"] or ""}
            )


def _both(excerpt: Excerpt) -> Iterator[Mention]:
    yield from _cpu_answers(excerpt)
    yield from _imports(excerpt)


READER = Reader(
    "versions",
    (
        says("cpu-lacks", "compiled to use", r"(?:The (?P<library>\w{1,40}) library )?was compiled to use (?P<feature>[\w .,]{1,80}?) instructions?,? but"),
        says("cpu-lacks", "built using", r"built using (?P<feature>\w{1,20}) instructions,? which your CPU"),
        says("cpu-lacks", "missing required cpu feature", r"Missing required CPU features?"),
        says("cpu-lacks", "cpu|processor|machine", r"(?:your|this|the) (?:CPU|processor|machine)[\w ]{0,30} (?:does ?n[o']t|doesn't|lacks|without|not) (?:have |support )?.{0,40}\b(?P<feature>AVX\w{0,8}|SSE[\w.]{0,4}|FMA\d?|F16C|BMI\d?|POPCNT|X86_V\d)"),
        says("cpu-lacks", "baseline optimizations", r"built with baseline optimizations.{0,80}(?:machine|CPU) does ?n[o']t support"),
        says("cpu-lacks", "built with baseline optimizations"),
        says("cpu-lacks", "cpu|machine|processor", r"(?:your|this|the) (?:CPU|processor|machine) does ?n[o']t support:"),
        says("cpu-lacks", "cpu", r"(?:no|without|missing|lack(?:s|ing)?|not support(?:ed|ing)?|requires?|needs?) (?:support for )?(?P<feature>AVX\w{0,8}|SSE4\w{0,4}|FMA3?|F16C)\b.{0,60}(?:CPU|processor|host|node|machine)"),
        says("cpu-lacks", "cpu|processor", r"\b(?:requires?|needs?) a (?:CPU|processor) (?:with|that (?:has|supports?)) (?P<feature>\S{1,12})|\bCPU (?:does not|doesn't) support (?P<level>x86-64-v\d)"),
        says("cpu-lacks", "avx", r"(?P<feature>AVX\w{0,8})(?: instructions?)? (?:is |are )?(?:not (?:supported|available|detected|found)|unsupported|missing|required)"),
        says("abi-conflict", "compiled against", r"module (?:was )?compiled against (?:ABI|API) version"),
        says("abi-conflict", "compiled using numpy", r"compiled using NumPy 1\.x cannot be run"),
        says("abi-conflict", "size changed", r"numpy\.\w{1,20} size changed|size changed,? may indicate binary incompatib"),
        says("abi-conflict", "multiarray failed to import", r"numpy[\w.]{0,20}\.multiarray failed to import"),
        says("abi-conflict", "omp: error #15", r"OMP: Error #15"),
        says("abi-conflict", "found lib", r"Initializing lib\w{1,20}\.\S{1,12}, but found lib"),
        says("abi-conflict", "omp: warning", r"OMP: Warning #\d{1,4}.{0,80}(?:already|libiomp|multiple)"),
        says("abi-conflict", "already", r"generic_type: .{0,120}already (?:registered|defined)|(?:file|extension|kernel|op) .{0,100}already (?:registered|exists in database)"),
        says("abi-conflict", "static tls", r"cannot (?:allocate memory in|load any more objects? with) static TLS"),
        says("abi-conflict", "mkl", r"MKL_THREADING_LAYER=\w{1,12} is incompatible|Intel MKL FATAL ERROR|Intel oneMKL FATAL ERROR"),
        says("abi-conflict", "loaded|multiple copies|implemented in both", r"loaded twice|multiple copies of|both .{0,80}and .{0,80} libraries? (?:are|were) loaded|Class \w{1,60} is implemented in both"),
        says("abi-conflict", "incompatib|abi", r"binary incompatib|ABI (?:mismatch|incompatib)|incompatible ABI"),
        says("abi-conflict", "descriptors cannot", r"descriptors cannot (?:not )?be created directly"),
        says("abi-conflict", "libprotobuf", r"libprotobuf.{0,80}(?:version verification failed|was compiled against|generated_message)"),
        says("abi-conflict", "compiled with different cuda", r"compiled with different CUDA versions?"),
        says("abi-conflict", "found", r"Found (?:Intel OpenMP|two) .{0,80}(?:loaded|OpenMP)"),
        says("abi-conflict", "magic number|hdf5", r"Bad magic number .{0,20}openssl|library versions? mismatch.{0,20}HDF5|HDF5 .{0,40}header files.{0,80}library"),
        says("version-mismatch", "different version", r"Python in worker has different version (?P<worker>[\d.(), ]{1,12}) than that in driver (?P<driver>[\d.(), ]{1,12})"),
        says("version-mismatch", "mismatch", r"\bversions? (?:\S{1,12} )?mismatch"),
        says("version-mismatch", " but ", r"\b(?:loaded|runtime|installed|found|linked|running|using)\b.{0,80}\bv?\d{1,4}\.\d[\w.+]{0,16},? but .{0,80}\b(?:compiled|built|expect(?:s|ed)?|requires?|needs?|linked)\b.{0,40}\bv?\d{1,4}\.\d"),
        says("version-warning", "mismatched versions", r"Mismatched versions found"),
        says("version-mismatch", "different version", r"(?:running|using|has|have|uses) (?:a )?different versions? (?:of )?"),
        says("version-mismatch", "pickle protocol", r"unsupported pickle protocol: (?P<protocol>\d)"),
        says("version-mismatch", "marshal data", r"bad marshal data"),
        says("version-mismatch", "bad magic number", r"bad magic number in '"),
        says("version-mismatch", "unknown opcode", r"SystemError: unknown opcode"),
        says("version-mismatch", "code()|codetype", r"code\(\) (?:takes|argument \d|expected)|CodeType"),
        says("version-mismatch", "driver version is insufficient", r"driver version is insufficient for CUDA runtime version"),
        says("version-mismatch", "driver on your system is too old", r"NVIDIA driver on your system is too old"),
        says("version-mismatch", "version mismatch", r"Driver/library version mismatch"),
        says("version-mismatch", "incompatible", r"(?:is|are) incompatible with (?:the )?(?:installed |current |cluster |server |this )?(?:version|python|torch|cluster|pyspark|client)|incompatible (?:client|server|library|package|wire|RPC) versions?"),
        says("version-mismatch", "does not exist", r"operator torchvision::nms does not exist"),
        says("attribute-missing", "no attribute", r"module '(?P<module>[\w.]{1,80})' has no attribute"),
        says("version-mismatch", "is required|versionconflict", r"(?P<need>[\w.-]{1,60}[<>=~!]{1,2}[\w.*]{1,20}(?:,[<>=!~\w.*]{1,20})?) is required for a normal functioning|VersionConflict"),
        says("version-mismatch", "class", r"UnsupportedClassVersionError|Unsupported class file major version \d\d"),
        says("version-mismatch", "local class", r"local class incompatible: stream classdesc serialVersionUID"),
        says("version-mismatch", "local class incompatible"),
        says("version-mismatch", "versions are", r"versions are (?:incompatible|not compatible|mismatched)"),
        says("version-mismatch", "minor versions", r"cannot run with different minor versions"),
    ),
    _both,
)  # fmt: skip
