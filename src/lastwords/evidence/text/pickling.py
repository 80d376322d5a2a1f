"""What cannot be sent to another process: arguments, results, exceptions, and those that do not come back whole."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

# What was pickled with another version of an installed package; what the job's own files lack was never there.
_OF_A_PACKAGE = r"on <module '[\w.]{1,120}' from '[^']{0,300}(?:site|dist)-packages"

READER = Reader(
    "pickle",
    (
        says("unpicklable", "pickle", r"(?:can't|cannot|can not|unable to|could not|couldn't) (?:be )?(?:un)?pickled?\b:? ?(?:the )?(?P<what>.{0,120})"),
        says("unpicklable", "can't get", r"Can't get (?:local )?object '(?P<what>.{1,120}?)'"),
        says("unpicklable", "can't get attribute", r"Can't get attribute '(?P<what>[^']{1,120})' on <", unless=_OF_A_PACKAGE),
        says("version-mismatch", "can't get attribute", rf"Can't get attribute '[^']{{1,120}}' {_OF_A_PACKAGE}"),
        says("unpicklable", "can't get local object", r"Can't get local object '(?P<what>[^']{1,120})'"),
        says("unpicklable", "error sending result", r"Error sending result: '(?P<what>.{1,80})"),
        says("unpicklable", "picklingerror", r"\bPicklingError"),
        says("unpicklable", "picklable|pickleable", r"(?:is |are )?not pickle?able"),
        says("unpicklable", "unpicklable"),
        says("unpicklable", "picklable", r"must be picklable|should be picklable|isn't picklable"),
        says("unpicklable", "serializ", r"(?:could not|cannot|failed to|unable to|can't|not) (?:be )?serializ(?:e|ed|able)|Could not serialize object|Task not serializable|was not serializable", unless="JSON"),
        says("unpicklable", "serializ", r"(?:un|non-)serializable|failed to serialize|Error when serializ|deserializ\w{1,8} (?:failed|error)", unless="JSON|HeaderDeserialization|safetensors"),
        says("unpicklable", "reduce|copyreg", r"__reduce(?:_ex)?__|cannot reduce|copyreg"),
        says("unpicklable", "should only be shared between processes through inheritance"),
        says("unpicklable", "no default __reduce__", r"no default __reduce__ due to non-trivial __cinit__"),
        says("rebuild-failed", "__init__() missing", r"__init__\(\) missing \d required (?:positional|keyword-only) arguments?(?=.{0,400})"),
        says("unpicklable", "unpickl|unserialize", r"(?:failed to|un-?serialize|could not|cannot|error|while|when) unpickl|unpickl\w{1,4} (?:failed|error)|failed to unserialize", unless="truncated|invalid load key"),
        says("unpicklable", "un-serialize", r"(?:task|result) has failed to un-serialize"),
        says("unpicklable", "pickle|cannot serialize", r"too large to pickle|cannot serialize a bytes object larger than 4 ?GiB|OverflowError: cannot serialize"),
        says("unpicklable", "struct.error", r"struct\.error: '[iI]' format requires -?2147483648"),
        says("unpicklable", "cowardly", r"Cowardly refusing to serialize non-leaf tensor"),
        says("unpicklable", "recursion", r"(?:pickl|recursion).{0,60}(?:maximum recursion depth exceeded while pickling)"),
        says("rebuilt", "raise exception|exc_type|reraise", r"raise exception$|exception = self\.exc_type|data\.reraise\(\)|\.reraise\("),
        says("sending", "forkingpickler", r"ForkingPickler"),
        says("sending", "cloudpickle", r"cloudpickle"),
    ),
)  # fmt: skip
