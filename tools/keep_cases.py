"""Lets animals of the zoo die and keeps what they leave behind as tests/cases/NAME.json.

`python tools/keep_cases.py DEATH...`. What belongs to this machine alone (paths, host, control groups, curves) is
replaced by words that are the same everywhere, so that a case says the same wherever it is read.
"""

from __future__ import annotations

import json
import re
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lastwords.evidence import Evidence  # noqa: E402 (as below)
from lastwords.evidence.store import Store  # noqa: E402
from zoo import keeper  # noqa: E402 (it lies beside this folder, not in the package)

MOST_FRAMES = 16
CASES = ROOT / "tests" / "cases"
REPLACED = (
    (re.escape(sysconfig.get_path("purelib")), "/usr/lib/python3/dist-packages"),
    (rf"{re.escape(str(ROOT))}/zoo/jobs", "/srv/job"),
    (rf"{re.escape(str(ROOT))}/zoo/[a-z0-9-]+/", "/srv/job/"),
    (rf"{re.escape(str(ROOT))}/target/zoo/[^/\"]+", "/srv/job"),
    (re.escape(str(ROOT)), "/srv/job"),
    (re.escape(sysconfig.get_path("stdlib")), "/usr/lib/python3.11"),
    (re.escape(str(Path(sys.base_prefix) / "lib")), "/usr/lib"),
    (re.escape(sys.base_prefix), "/usr"),
    (r"/sys/fs/cgroup/(\w+)/[\w/-]+", r"/sys/fs/cgroup/\1/job"),
    (r"=/zoo-\d+", "=/job"),
    (r"/tmp/zoo-disk-\w+", "/mnt/data"),
    (r"/tmp/[\w.-]+", "/tmp/shard-7.bin"),
    (r"/[\w./-]*/registry/src/[\w.-]+/", "/usr/src/"),
)


def keep(death: str) -> None:
    jobs = keeper.jobs(death)
    with tempfile.TemporaryDirectory() as home:
        keeper.run(death, "pool" if "pool" in jobs else jobs[0], Path(home))
        evidence = Store(home).all()[-1]  # the first one: an item that is tried again may die again
    case = cleaned(msgspec.to_builtins(evidence))
    msgspec.convert(case, Evidence)
    (CASES / f"{death}.json").write_text(f"{json.dumps(case, indent=2, ensure_ascii=False)}\n")


def cleaned(case: dict[str, Any]) -> dict[str, Any]:
    case.pop("id", None)
    case.pop("notes", None)
    own = case["process"]["pid"]
    case["process"] = {
        **case["process"],
        "pid": 4711,
        "parent": 4700,
        "host": "node-7",
        "command": ["python", "job.py"],
    }
    for name in ("sender_pid", "thread"):  # abort() sends its signal to itself: that must be seen
        if case.get("fault", {}).get(name) == own:
            case["fault"][name] = 4711
    if "machine" in case:
        case["machine"].pop("place", None)
    if "memory" in case:
        case["memory"].pop("curve", None)
    for stack in (case.get("native_stack"), *case.get("hang", {}).get("threads", ())):
        if stack is not None and "frames" in stack:
            stack["frames"] = stack["frames"][:MOST_FRAMES]
    text = json.dumps(case, ensure_ascii=False)
    for pattern, words in REPLACED:
        text = re.sub(pattern, words, text)
    cleaned_case: dict[str, Any] = json.loads(text)
    return cleaned_case


def main() -> int:
    for death in sys.argv[1:] or keeper.animals():
        if lack := keeper.missing(death):
            print(f"{death}: {lack}", file=sys.stderr)
        else:
            keep(death)
    return 0


if __name__ == "__main__":
    sys.exit(main())
