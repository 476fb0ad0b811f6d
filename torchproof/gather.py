"""What the code cells of a chapter show without being told: torch symbols used, errors expected."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator

from torchproof.notebook import Cell, printed, python

Error = dict[str, str | None]


def symbols(cells: Iterable[Cell]) -> dict[str, set[str]]:
    """The `torch` names that code cells use, by cell id.

    Names are followed through the imports of the cells above, so `nn.Linear` is
    `torch.nn.Linear`. Methods called on a value have no name that could be known without running.
    """
    known: dict[str, str] = {}
    found: dict[str, set[str]] = {}
    for cell in cells:
        nodes = _nodes(cell["source"])
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                known.update(_imported(node))
        found[cell["id"]] = set(_names(nodes, known))
    return found


@functools.cache
def _nodes(source: str) -> list[ast.AST]:
    """Every node of a code cell: walking a tree costs more than parsing it."""
    return list(ast.walk(ast.parse(python(source))))


def _imported(node: ast.AST) -> dict[str, str]:
    """What an import of torch binds, with the full names."""
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.split(".")[0]: alias.name if alias.asname else "torch"
            for alias in node.names
            if alias.name.split(".")[0] == "torch"
        }
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
        return {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {}


def _names(nodes: list[ast.AST], known: dict[str, str]) -> Iterator[str]:
    """Full dotted names in a cell; the longest of each chain."""
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner:
            parts, value = [], node
            while isinstance(value, ast.Attribute):
                parts.append(value.attr)
                value = value.value  # type: ignore[assignment]
            if isinstance(value, ast.Name) and value.id in known:
                yield ".".join([known[value.id], *reversed(parts)])
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def errors(cell: Cell) -> list[Error]:
    """The errors and warnings that a cell expects: type, `match=`, and the line it printed of the message.

    The message is None where the cell did not print it. A `match=` that comes from a loop is found
    among the texts of the cell that fit a printed line.
    """
    lines = printed(cell).splitlines()
    nodes = _nodes(cell["source"])
    found: list[Error] = []
    for node in nodes:
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("raises", "warns")
            and node.args
        ):
            continue
        match = next((keyword.value for keyword in node.keywords if keyword.arg == "match"), None)
        if isinstance(match, ast.Constant):
            pairs = [(ast.unparse(node.args[0]), str(match.value))]
        elif match is not None:
            pairs = [pair for pair in _looped(nodes, ast.unparse(node.args[0])) if _line(pair[1], lines, 1)]
        else:
            pairs = []
        for kind, pattern in pairs:
            entry: Error = {"type": kind.strip("()"), "match": pattern, "message": _line(pattern, lines)}
            if entry not in found:
                found.append(entry)
    return found


def _looped(nodes: list[ast.AST], kind: str) -> Iterator[tuple[str, str]]:
    """Texts of a cell's tuples, lists and dicts that may be a `match=`, with the error type before each."""
    for node in nodes:
        if isinstance(node, ast.Tuple | ast.List | ast.Dict):
            type_ = kind if re.search("Error|Warning|Exception", kind) else None
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.Name) and re.search("Error|Warning|Exception", child.id):
                    type_ = child.id
                elif type_ and isinstance(child, ast.Constant) and re.search("[a-zA-Z]{5}", str(child.value)):
                    yield type_, str(child.value)


def _line(pattern: str, lines: list[str], start: int = 0) -> str | None:
    """The first printed line that a `match=` fits at or after `start`, without the label before it."""
    for line in lines:
        try:
            hit = re.search(pattern, line)
        except re.error:
            return None
        if hit and hit.start() >= start:
            text = line[: hit.start()]
            label = re.match(
                r"\s*(?:[^:]{1,60}?(?:: +| {2,}|-> ))?(?:[\w.]*(?:Error|Warning|Exception):? +)?", text
            )
            return line[label.end() if label else 0 :].strip()
    return None
