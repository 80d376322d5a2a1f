"""Writes the pages that are made from the program itself; `--check` says which are stale and exits 1.

docs/causes/ has a page for each cause, docs/commands/ one for each command, docs/schema/ the JSON schema.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lastwords.causes import Cause, all_causes
from lastwords.commands._group import group
from lastwords.show.schema import schema

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FOLDERS = ("causes", "commands", "schema")


def pages() -> dict[Path, str]:
    causes = all_causes()
    found = {DOCS / "causes" / f"{cause.id}.md": cause_page(cause) for cause in causes}
    found[DOCS / "causes" / "README.md"] = cause_index(causes)
    named = list(command_pages())
    found |= {DOCS / "commands" / f"{name}.md": page for name, _, page in named}
    found[DOCS / "commands" / "README.md"] = command_index([(name, about) for name, about, _ in named])
    found[DOCS / "schema" / "lastwords-1.json"] = schema()
    return found


def cause_index(causes: tuple[Cause, ...]) -> str:
    rows = "\n".join(f"| [{cause.id}]({cause.id}.md) | {cause.title} |" for cause in causes)
    return f"# Causes\n\nWhy processes die, as lastwords names it.\n\n| id | what happened |\n|---|---|\n{rows}\n"


def cause_page(cause: Cause) -> str:
    weights = sorted(cause.weights.items(), key=lambda pair: -pair[1])
    rows = "\n".join(f"| {name.replace('_', ' ')} | {weight:+.1f} |" for name, weight in weights)
    return f"""# {cause.id}: {cause.title}

{cause.doc.strip()}

## What speaks for it and against it

In log-odds; before anything is known it stands at {cause.prior:+.1f}.

| sign | weight |
|---|---|
{rows}

Decided by: {", ".join(f"`{need}`" for need in cause.needs)}.

## See it

{animals("Deaths of this kind", cause.zoo)}
{animals("Deaths that look alike and are not", cause.near_misses)}
"""


def animals(heading: str, names: tuple[str, ...]) -> str:
    links = ", ".join(f"[{name}]({place(name)})" for name in names)
    return f"- {heading}: {links or 'none yet'}"


def place(name: str) -> str:
    """`text:NAME` is a file of texts, any other name an animal of the zoo."""
    kind, _, stem = name.partition(":")
    return f"../../tests/corpus/texts/{stem}.txt" if kind == "text" and stem else f"../../zoo/{name}/death.py"


def command_index(named: list[tuple[str, str]]) -> str:
    rows = "\n".join(f"| [{name}]({name}.md) | {about} |" for name, about in named)
    return (
        f"# Commands\n\n`lastwords [--home DIR] COMMAND`\n\n| command | what it does |\n|---|---|\n{rows}\n"
    )


def command_pages() -> Iterator[tuple[str, str, str]]:
    """Name, one line and page of each command; the page is what `--help` says."""
    # Not the terminal's width: pages must not depend on who makes them.
    context: dict[str, Any] = {"terminal_width": 90, "max_content_width": 90, "color": False}
    top = click.Context(group, info_name="lastwords", **group.context_settings, **context)
    for name in group.list_commands(top):
        command = group.get_command(top, name)
        assert command is not None
        with click.Context(command, info_name=name, parent=top, **context) as here:
            text = command.get_help(here)
        body = f"# lastwords {name}\n\n```text\n{text.rstrip()}\n```\n"
        yield name, command.get_short_help_str(limit=200), body


def stale(wanted: dict[Path, str]) -> list[str]:
    """What is missing, differs, or is no longer made."""
    wrong = [path for path, text in wanted.items() if not path.is_file() or path.read_text() != text]
    present = {path for folder in FOLDERS for path in (DOCS / folder).glob("*") if path.is_file()}
    return sorted(str(path.relative_to(ROOT)) for path in {*wrong, *(present - wanted.keys())})


def write(wanted: dict[Path, str]) -> None:
    for name in stale(wanted):
        path = ROOT / name
        if path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path])
        else:
            path.unlink()


def main() -> int:
    wanted = pages()
    if "--check" not in sys.argv[1:]:
        write(wanted)
        return 0
    wrong = stale(wanted)
    for name in wrong:
        print(f"{name}: stale, run make docs", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
