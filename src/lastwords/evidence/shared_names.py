"""Names that all workers have, and each for itself: dictionaries and lists of a module or a class.

After a fork every process has its own copy. What one of them adds is in none of the others, and a look-up there fails.
This reads the file of the line that failed: is what it looked up made once, at the level of the module or the class, and
filled by another function?
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lastwords.evidence.model import PythonException, SharedName
from lastwords.evidence.source_code import lines_of

SOURCE = "the source file of the line that failed"
LOOK_UPS = ("KeyError", "IndexError")
LARGEST_SOURCE = 400_000
MAKERS = frozenset({"dict", "list", "set", "defaultdict", "OrderedDict", "Counter", "deque"})
CHANGES = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault",
    "update",
})  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef


def shared_name(exception: PythonException | None, started: float | None) -> SharedName | None:
    """Of a look-up that failed in a worker. None: it was none, or the file cannot be read any more."""
    if exception is None or exception.kind.rpartition(".")[2] not in LOOK_UPS or not exception.frames:
        return None
    frame = exception.frames[0]
    text = "\n".join(lines_of(frame.file, started))
    if not text or len(text) > LARGEST_SOURCE:
        return None
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    made = dict(_made(module))
    wanted = next((name for name in _looked_up(module, frame.line or 0) if name in made), None)
    changer = next(_changers(module, wanted, besides=frame.function), None) if wanted else None
    if wanted is None or changer is None:
        return None
    level, line = made[wanted]
    return SharedName(
        source=SOURCE, name=wanted, level=level, file=frame.file, line=line,
        changed_by=changer.name, changed_at=changer.lineno,
    )  # fmt: skip


def _made(module: ast.Module) -> Iterator[tuple[str, tuple[str, int]]]:
    """What is made once and can be changed: `module` or `class`, and the line."""
    for statement in module.body:
        for name in _assigned(statement):
            yield name, ("module", statement.lineno)
        if isinstance(statement, ast.ClassDef):
            for inner in statement.body:
                for name in _assigned(inner):
                    yield name, ("class", inner.lineno)


def _assigned(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets, value = [statement.target], statement.value
    else:
        return []
    is_made = isinstance(value, ast.Dict | ast.List | ast.Set) or (
        isinstance(value, ast.Call) and _last_name(value.func) in MAKERS
    )
    return [target.id for target in targets if isinstance(target, ast.Name)] if is_made else []


def _last_name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def _looked_up(module: ast.Module, line: int) -> Iterator[str]:
    for node in ast.walk(module):
        is_here = isinstance(node, ast.Subscript) and node.lineno <= line <= (node.end_lineno or node.lineno)
        if is_here and isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            name = _last_name(node.value)
            if name is not None:
                yield name


def _changers(module: ast.Module, wanted: str, besides: str) -> Iterator[Function]:
    """Functions that change it; not the one that failed, which would have changed its own copy."""
    for node in ast.walk(module):
        is_other = isinstance(node, Function) and node.name != besides
        if is_other and isinstance(node, Function) and any(_is_change(one, wanted) for one in ast.walk(node)):
            yield node


def _is_change(node: ast.AST, wanted: str) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in CHANGES and _last_name(node.func.value) == wanted
    is_item = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
    return is_item and isinstance(node, ast.Subscript) and _last_name(node.value) == wanted
