"""What a chapter's notebook contains: cells, questions, statements, assertions, hashes.

Notebooks are read with the json module: nbformat takes longer to import than an unchanged build
may last. `check` validates the sources with nbformat.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchproof.project import ProjectError

Cell = dict[str, Any]
Notebook = dict[str, Any]

LEVELS = ("core", "intermediate", "advanced")
COMPARISONS = {"assert_close", "assert_array_equal", "assert_allclose", "assert_equal"}


def read(path: Path) -> Notebook:
    """One notebook with every source as one string.

    Raises:
        ProjectError: the file is missing or is not a notebook.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ProjectError(_unreadable(path.name, error)) from error
    return parse(text, path.name)


def parse(text: str, name: str) -> Notebook:
    """The notebook that a text is.

    Raises:
        ProjectError: the text is not a notebook; `name` says which.
    """
    try:
        notebook: Notebook = json.loads(text)
        for cell in notebook["cells"]:
            cell["source"] = "".join(cell["source"])
            (
                cell["metadata"],
                cell["cell_type"],
            )  # both are required; a KeyError names the absent one
    except (ValueError, KeyError, TypeError) as error:
        raise ProjectError(_unreadable(name, error)) from error
    return notebook


def _unreadable(name: str, error: Exception) -> str:
    return (
        f"{name}: cannot be read as a notebook ({type(error).__name__}: {error}); "
        f"restore it with `git checkout -- chapters/{name}`"
    )


def tags(cell: Cell) -> list[str]:
    """Tags of a cell, in order."""
    return list(cell["metadata"].get("tags") or [])


def heading(cell: Cell) -> tuple[int, str] | None:
    """Level and text of the heading that begins a markdown cell, or None."""
    match = re.match(r"(#{1,6}) +(.*?)\s*#*\s*(?:\n|$)", cell["source"])
    if cell["cell_type"] != "markdown" or not match:
        return None
    return len(match[1]), match[2]


@dataclass
class Statement:
    """One `###` heading and the code cells that prove it."""

    id: str
    title: str
    cells: list[Cell] = field(default_factory=list)

    @property
    def myth(self) -> bool:
        return self.title.startswith("Myth:")


@dataclass
class Question:
    """One `##` heading with everything up to the next."""

    id: str
    title: str
    tags: list[str]
    cells: list[Cell] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)

    @property
    def level(self) -> str | None:
        return next((tag for tag in self.tags if tag in LEVELS), None)

    @property
    def also(self) -> list[str]:
        """Other ids under which this question is known."""
        return [tag.removeprefix("also:") for tag in self.tags if tag.startswith("also:")]

    @property
    def short_answer(self) -> str | None:
        """Text of the quotation that begins with **Short answer.**, or None."""
        return short_answer(self.cells[0]["source"])

    @property
    def code(self) -> list[Cell]:
        return [cell for cell in self.cells if cell["cell_type"] == "code"]


def short_answer(source: str) -> str | None:
    """Text of the block quote that begins with `**Short answer.**` in Markdown, or None."""
    match = re.search(r"(?m)^> ?\*\*Short answer\.\*\*((?:.*\n?)(?:^>.*\n?)*)", source)
    return " ".join(re.sub(r"(?m)^>", "", match[1]).split()) if match else None


@dataclass
class Chapter:
    """A notebook, split into its opening cells and its questions."""

    name: str
    title: str
    opening: list[Cell]
    questions: list[Question]
    metadata: dict[str, Any]

    @property
    def cells(self) -> list[Cell]:
        return self.opening + [cell for question in self.questions for cell in question.cells]

    @property
    def code(self) -> list[Cell]:
        return [cell for cell in self.cells if cell["cell_type"] == "code"]

    @property
    def alone(self) -> bool:
        """Whether the chapter starts processes itself and must not share the machine."""
        return bool(self.metadata.get("torchproof", {}).get("alone"))

    def place(self, cell_id: str) -> tuple[str, str]:
        """Titles of the question and the statement that a cell belongs to; empty where it has none."""
        for question in self.questions:
            if any(cell.get("id") == cell_id for cell in question.cells):
                for statement in question.statements:
                    if any(cell.get("id") == cell_id for cell in statement.cells):
                        return question.title, statement.title
                return question.title, ""
        return "", ""

    def hashes(self) -> dict[str, str]:
        """A hash per code cell, of all that its result depends on.

        That is the opening code cells (parameters, setup) and the code cells of its question up to
        it: a question stands alone, so no other question's code can change it.
        """
        opening = [cell["source"] for cell in self.opening if cell["cell_type"] == "code"]
        result = {}
        for cells in (
            [c for c in self.opening if c["cell_type"] == "code"],
            *(q.code for q in self.questions),
        ):
            above = [] if cells and cells[0] in self.opening else list(opening)
            for cell in cells:
                above.append(cell["source"])
                result[cell["id"]] = digest(above)
        return result


def digest(value: Any) -> str:
    """A short hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def chapter(path: Path) -> Chapter:
    """Read one chapter.

    Raises:
        ProjectError: the file cannot be read as a notebook.
    """
    return split(path.stem, read(path))


def split(name: str, notebook: Notebook) -> Chapter:
    """Group a notebook's cells by question and statement."""
    result = Chapter(name, name, [], [], notebook.get("metadata", {}))
    for cell in notebook["cells"]:
        found = heading(cell)
        if found and found[0] == 1 and not result.questions:
            result.title = found[1]
        if found and found[0] == 2:
            result.questions.append(Question(cell.get("id", ""), found[1], tags(cell)))
        if not result.questions:
            result.opening.append(cell)
            continue
        question = result.questions[-1]
        question.cells.append(cell)
        if found and found[0] == 3:
            question.statements.append(Statement(cell.get("id", ""), found[1]))
        if question.statements and cell["cell_type"] == "code":
            question.statements[-1].cells.append(cell)
    return result


def printed(cell: Cell) -> str:
    """What a cell printed, without escape sequences."""
    text = "".join("".join(o.get("text", "")) for o in cell["outputs"] if o["output_type"] == "stream")
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def python(source: str) -> str:
    """The Python of a code cell: magics left out, a cell that begins with %% empty."""
    return "" if source.lstrip().startswith("%%") else re.sub(r"(?m)^%.*$", "", source)


@dataclass(frozen=True)
class Assertions:
    """What a cell asserts: `certain` run whenever the cell ends, `conditional` stand under an `if`."""

    certain: int
    conditional: int
    problems: tuple[str, ...]


def assertions(source: str) -> Assertions:
    """Count the assertions of a code cell that has run to its end.

    One counts when it stands at the cell's own level (in a `for` or `with`, not in a function or class).

    Raises:
        SyntaxError: the source is not Python.
    """
    found: list[bool] = []
    problems: list[str] = []

    def visit(node: ast.AST, conditional: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                continue
            if isinstance(child, ast.Try) and any(_swallows(handler) for handler in child.handlers):
                problems.append("an `except` here would swallow an AssertionError; name the exception")
                continue
            found.extend(_assertion(child, conditional, problems))
            visit(child, conditional or isinstance(child, ast.If))

    visit(ast.parse(python(source)), False)
    return Assertions(found.count(False), found.count(True), tuple(problems))


def _swallows(handler: ast.ExceptHandler) -> bool:
    names = {n.id for n in ast.walk(handler.type) if isinstance(n, ast.Name)} if handler.type else set()
    return handler.type is None or bool(names & {"Exception", "BaseException", "AssertionError"})


def _assertion(node: ast.AST, conditional: bool, problems: list[str]) -> Iterator[bool]:
    """Yield `conditional` when the node is an assertion that can fail; report one that cannot."""
    if isinstance(node, ast.Assert):
        if isinstance(node.test, ast.Tuple):
            problems.append("`assert` on a tuple is always true; remove the parentheses")
        elif any(isinstance(n, ast.Name | ast.Call | ast.Attribute) for n in ast.walk(node.test)):
            yield conditional
        else:
            problems.append("`assert` on constants cannot fail; assert what PyTorch returned")
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        if isinstance(owner, ast.Name) and owner.id == "pytest" and node.func.attr in {"raises", "warns"}:
            if any(keyword.arg == "match" for keyword in node.keywords):
                yield conditional
            else:
                problems.append(f"pytest.{node.func.attr} without match= accepts any message; add match=")
        elif node.func.attr in COMPARISONS:
            yield conditional
