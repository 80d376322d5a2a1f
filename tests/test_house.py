"""The rules of the house, where a test can hold them: imports flow one way, the recorder stays light, every room
has a map, names and sizes stay plain, and nothing of the machine it was written on is left in a file.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "lastwords"

# Data flows this way, so a room may import the ones to its left, and never one to its right.
FLOW = ["record", "watch", "evidence", "causes", "diagnosis", "show"]
# These stand outside the flow and use what any user could: names of the package `lastwords` itself.
GUESTS = {"survive", "replay", "engines"}

MAX_MAP_LINES = 30
MAX_SOURCE_LINES = 600


def allowed_rooms(room: str) -> set[str]:
    """The rooms, itself included, that a file in `room` may import."""
    if room == "commands":
        return {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    if room in FLOW:
        earlier = set(FLOW[: FLOW.index(room) + 1])
        return earlier | {"prevent"} if room == "causes" else earlier
    if room == "prevent":
        return {"prevent", "record", "watch", "evidence"}
    return {room}


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.target}"

    @property
    def room(self) -> str | None:
        """The room that is imported; None for the package's own names, its top modules and other packages."""
        parts = self.target.split(".")
        if parts[0] != "lastwords" or len(parts) < 2 or not (PACKAGE / parts[1]).is_dir():
            return None
        return parts[1]


def imports_of(file: Path) -> list[Import]:
    """Every import in the file, in functions and under TYPE_CHECKING too, and those spelt as a string."""
    package = ("lastwords", *file.parent.relative_to(PACKAGE).parts)
    found = []
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        line = getattr(node, "lineno", 0)
        found += [Import(file, line, target) for target in import_targets(node, package)]
    return found


def import_targets(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [name.name for name in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            base = (
                ".".join((*package[: len(package) - level + 1], *filter(None, [module]))) if level else module
            )
            # `from lastwords import evidence` imports the room; `from lastwords.evidence import Death` does too.
            return [f"{base}.{name.name}" for name in names]
        case ast.Call(
            func=ast.Name(id="__import__" | "import_module"), args=[ast.Constant(value=str(name)), *_]
        ):
            return [name]
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
            return [name]
    return []


def python_files(room: str) -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


def rooms() -> list[str]:
    return sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__")


@cache
def tracked_files() -> tuple[Path, ...]:
    """The files of the repository: those git knows, and new ones it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    files = (ROOT / name.decode() for name in listing.stdout.split(b"\0") if name)
    return tuple(sorted({file for file in files if file.is_file() and not file.is_symlink()}))


def test_imports_follow_the_flow():
    wrong = [
        str(found)
        for room in rooms()
        for file in python_files(room)
        for found in imports_of(file)
        if found.room is not None and found.room not in allowed_rooms(room)
    ]
    assert not wrong, "imports against the flow:\n" + "\n".join(wrong)


def test_only_the_command_line_imports_commands():
    top = [file for file in PACKAGE.glob("*.py") if file.name != "__main__.py"]
    wrong = [str(found) for file in top for found in imports_of(file) if found.room == "commands"]
    assert not wrong, "\n".join(wrong)


def test_guests_use_the_public_api():
    wrong = [
        str(found)
        for room in GUESTS
        for file in python_files(room)
        for found in imports_of(file)
        if found.room is None and found.target.startswith("lastwords._")
    ]
    assert not wrong, "private names:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("import lastwords.show.text", "lastwords.show.text"),
        ("from lastwords import show", "lastwords.show"),
        ("from lastwords.show import text", "lastwords.show.text"),
        ("from ..show import text", "lastwords.show.text"),
        ("def late():\n    from lastwords.show import text", "lastwords.show.text"),
        ("importlib.import_module('lastwords.show')", "lastwords.show"),
        ("__import__('lastwords.show')", "lastwords.show"),
    ],
)
def test_every_way_to_import_is_seen(line: str, target: str):
    nodes = ast.walk(ast.parse(line))
    assert [found for node in nodes for found in import_targets(node, ("lastwords", "evidence"))] == [target]


def test_recorder_imports_the_standard_library_alone():
    ours = re.compile(r"lastwords(\.record(\..+)?|\._native(\..+)?)?")
    wrong = [
        str(found)
        for file in python_files("record")
        for found in imports_of(file)
        if found.target.split(".")[0] not in sys.stdlib_module_names
        and not ours.fullmatch(found.target)
        # A name of the package itself, not a room or a module of it.
        and not (found.target.count(".") == 1 and found.room is None and is_package_name(found.target))
    ]
    assert not wrong, "a worker would load more than it may:\n" + "\n".join(wrong)


def is_package_name(target: str) -> bool:
    head, name = target.split(".")
    return head == "lastwords" and not (PACKAGE / f"{name}.py").exists()


@pytest.mark.parametrize("module", ["lastwords", "lastwords.record"])
def test_bare_import_is_light(module: str):
    """What a worker loads: the standard library, lastwords' recorder and its native module."""
    code = f"import sys; before = set(sys.modules); import {module}; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    may = re.compile(r"lastwords(\.record(\..+)?|\._\w+)?")
    wrong = [
        name
        for name in sorted(loaded.split())
        if name.split(".")[0] not in sys.stdlib_module_names and not may.fullmatch(name)
    ]
    assert not wrong, f"import {module} loads {wrong}"


def folders_with_a_map() -> list[Path]:
    return [PACKAGE / room for room in rooms()] + sorted(
        path.parent for path in (ROOT / "crates").glob("*/Cargo.toml")
    )


@pytest.mark.parametrize("folder", folders_with_a_map(), ids=lambda folder: str(folder.relative_to(ROOT)))
def test_folder_has_a_map(folder: Path):
    readme = folder / "README.md"
    assert readme.is_file(), (
        f"{readme.relative_to(ROOT)} is missing: say what is where, in {MAX_MAP_LINES} lines"
    )
    lines = len(readme.read_text().splitlines())
    assert 0 < lines <= MAX_MAP_LINES, f"{readme.relative_to(ROOT)} has {lines} lines"


def test_no_file_is_named_for_nothing():
    vague = re.compile(r"(utils?|helpers?|manager\w*|misc|common)\.(py|rs)")
    wrong = [str(file.relative_to(ROOT)) for file in tracked_files() if vague.fullmatch(file.name)]
    assert not wrong, f"a name that says what is inside, please: {wrong}"


def test_no_source_file_is_too_long():
    source = {".py", ".pyi", ".rs", ".c", ".sh", ".ts", ".tsx", ".js", ".css"}
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text().splitlines())
        for file in tracked_files()
        if file.suffix in source
    }
    wrong = {name: lines for name, lines in lengths.items() if lines > MAX_SOURCE_LINES}
    assert not wrong, f"over {MAX_SOURCE_LINES} lines: {wrong}"


# Put together here, so that this file is no exception to its own rule.
TRACES = {
    "a path of one machine": rf"(?<![\w.\-])/{'work'}/|(?<![\w.\-])/{'root'}/",
    "a package registry's address": "|".join(
        re.escape(".".join(parts))
        for parts in [
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("download", "pytorch", "org"),
            ("static", "crates", "io"),
            ("index", "crates", "io"),
            ("registry", "npmjs", "org"),
            ("deb", "debian", "org"),
        ]
    ),
    "an index option": "|".join(
        "--" + name for name in ["index-" + "url", "extra-index-" + "url", "find-" + "links"]
    ),
}


def test_no_file_remembers_the_machine_it_was_written_on():
    wrong = []
    for file in tracked_files():
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        for what, pattern in TRACES.items():
            wrong += [
                f"{file.relative_to(ROOT)}:{text.count(chr(10), 0, hit.start()) + 1}: {what}: {hit.group()}"
                for hit in re.finditer(pattern, text)
            ]
    assert not wrong, "\n".join(wrong)


def test_every_dependency_is_pinned():
    """Names and versions, and no address to fetch them from."""
    pin = re.compile(r"[a-z0-9][a-z0-9._-]*==[0-9][\w.+!]*( ; .+)?")
    wrong = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not pin.fullmatch(line)]
    assert not wrong, wrong
