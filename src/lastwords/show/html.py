"""The report as one HTML file: no script, nothing from elsewhere, light and dark as the reader's system is.

What a victim wrote has passed `clean` already, and every word is escaped here. The policy in the head forbids the
browser to load or run anything, should a word slip through all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from lastwords.causes import Step
from lastwords.diagnosis import Diagnosis
from lastwords.show.lines import Line, Section
from lastwords.show.quantities import utc
from lastwords.show.report import Report, report

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fdfdfc; --dim: #5f6670; --rule: #dcdfe3; --card: #f4f5f6;
  --bad: #b3261e; --warn: #8a5a00; --code: #0b5a75; --run: #1f6b33; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e7e9; --paper: #16181b; --dim: #9aa2ad; --rule: #33383f;
  --card: #1f2226; --bad: #ff8a80; --warn: #f0c060; --code: #7fd0ea; --run: #86d79a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1.25rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
article { border-top: 3px solid var(--bad); padding: 1rem 0 2.5rem; }
h1 { font-size: 1.2rem; margin: 0 0 1.5rem; }
h2 { font-size: 1.1rem; margin: 0; color: var(--bad); overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.5rem 0 .4rem; }
.verdict { font-weight: 600; margin: .2rem 0 0; }
.sentence { font-size: 1.2rem; font-weight: 600; margin: .6rem 0 1rem; }
p { margin: .25rem 0; overflow-wrap: anywhere; }
.label { color: var(--dim); margin-right: .6em; }
.dim { color: var(--dim); } .warn { color: var(--warn); } .strong { font-weight: 600; }
.code, pre, .label-code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .9rem; }
.code { color: var(--code); }
pre { background: var(--card); color: var(--run); border-radius: .3rem; padding: .5rem .75rem; margin: .35rem 0;
  overflow-x: auto; }
ol { padding-left: 1.4rem; } li { margin: .4rem 0; }
details { border-top: 1px solid var(--rule); padding: .4rem 0; }
summary { cursor: pointer; font-weight: 600; }
.depth { margin-left: 1.5rem; }
nav li { margin: .1rem 0; } a { color: inherit; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
OPEN = ("causes", "the death", "stack", "the hang")
"""Sections that are worth reading first; the others are folded."""


def render(diagnoses: Sequence[Diagnosis], *, program: str = "lastwords", title: str = "lastwords") -> str:
    reports = [report(one, full=True, program=program) for one in diagnoses]
    body = "\n".join([
        f"<h1>{escape(title)}</h1>",
        *_index(reports),
        *(_article(number, one, made) for number, (one, made) in enumerate(zip(diagnoses, reports, strict=True), 1)),
    ])  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _index(reports: Sequence[Report]) -> Iterator[str]:
    if len(reports) == 0:
        yield "<p>Nothing has died.</p>"
    elif len(reports) > 1:
        links = (
            f'<li><a href="#death-{number}">{escape(one.headline)}</a> '
            f'<span class="dim">{escape(one.verdict)}</span></li>'
            for number, one in enumerate(reports, 1)
        )
        yield f"<nav><ol>{''.join(links)}</ol></nav>"


def _article(number: int, diagnosis: Diagnosis, made: Report) -> str:
    when = utc(diagnosis.evidence.time)
    known = " · ".join(filter(None, [made.verdict, when, diagnosis.evidence.id]))
    parts = [
        f'<article id="death-{number}">',
        f"<h2>{escape(made.headline)}</h2>",
        f'<p class="verdict">{escape(known)}</p>',
        f'<p class="sentence">{escape(made.sentence)}</p>',
        *map(_line, (*made.proof, *made.doubts)),
        *_steps(made.steps),
        *(["<h3>Where</h3>"] if made.context else []),
        *map(_line, made.context),
        *map(_section, made.sections),
        "</article>",
    ]
    return "\n".join(parts)


def _steps(steps: Iterable[Step]) -> Iterator[str]:
    rows = [
        f"<li>{escape(step.text)}{f'<pre>{escape(step.command)}</pre>' if step.command else ''}</li>"
        for step in steps
    ]
    if rows:
        yield f"<h3>What to do</h3>\n<ol>{''.join(rows)}</ol>"


def _section(section: Section) -> str:
    is_open = " open" if section.title in OPEN else ""
    lines = "\n".join(map(_line, section.lines))
    return f"<details{is_open}><summary>{escape(section.title)}</summary>\n{lines}\n</details>"


def _line(line: Line) -> str:
    classes = " ".join(
        filter(None, [line.tone if line.tone != "plain" else "", "depth" if line.depth else ""])
    )
    label = f'<span class="label">{escape(line.label)}</span>' if line.label else ""
    return f"<p{f' class={chr(34)}{classes}{chr(34)}' if classes else ''}>{label}{escape(line.text)}</p>"
