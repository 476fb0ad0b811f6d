"""The contract's rules, each broken once in the fixture chapter and named."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, cell

from torchproof.check import check
from torchproof.project import Project

Cells = dict[str, dict[str, Any]]


def _edit(path: Path, change: Callable[[Cells, dict[str, Any]], object]) -> None:
    value = json.loads(path.read_text())
    for item in value["cells"]:
        item["source"] = "".join(item["source"])
    change({item["id"]: item for item in value["cells"]}, value)
    path.write_text(json.dumps(value))


def _rules(project: Project, name: str = "first") -> list[tuple[str, str]]:
    return [(problem.rule, problem.cell) for problem in check(project, project.select([name]))]


def _add(source: str) -> Callable[[Cells, dict[str, Any]], None]:
    def change(cells: Cells, value: dict[str, Any]) -> None:
        cells["adds-elements-code"]["source"] += f"\n{source}"

    return change


def _set(name: str, source: str) -> Callable[[Cells, dict[str, Any]], None]:
    def change(cells: Cells, value: dict[str, Any]) -> None:
        cells[name]["source"] = source

    return change


def _tag(name: str, *tags: str) -> Callable[[Cells, dict[str, Any]], None]:
    def change(cells: Cells, value: dict[str, Any]) -> None:
        cells[name]["metadata"] = {"tags": list(tags)}

    return change


CODE, QUESTION = "adds-elements-code", "what-adds"
ANSWER = "> **Short answer.** Yes."


@pytest.mark.parametrize(
    ("rule", "where", "change"),
    [
        ("valid", "", lambda cells, value: value.update(nbformat_minor=4)),
        ("metadata", "", lambda cells, value: value["metadata"].pop("accelerator")),
        ("stripped", CODE, lambda cells, value: cells[CODE].update(execution_count=1)),
        ("id", "Bad_Id", lambda cells, value: cells[CODE].update(id="Bad_Id")),
        ("id", "setup", lambda cells, value: cells[CODE].update(id="setup")),
        ("id", "9 of the file", lambda cells, value: value["cells"][9].pop("id")),
        ("opening", "", lambda cells, value: value["cells"].pop(1)),
        ("opening", "parameters", _set("parameters", 'device = "cpu"')),
        ("opening", "setup", _set("setup", "\n".join(f"x{i} = {i}" for i in range(9)))),
        ("question", QUESTION, _set(QUESTION, f"## A title\n\n{ANSWER}")),
        ("level", QUESTION, _tag(QUESTION)),
        ("level", QUESTION, _tag(QUESTION, "core", "advanced")),
        ("also", QUESTION, _tag(QUESTION, "core", "also:a", "also:b", "also:c")),
        ("short-answer", QUESTION, _set(QUESTION, "## What?")),
        ("short-answer", QUESTION, _set(QUESTION, f"## What?\n\n> **Short answer.** {'word ' * 61}")),
        ("statement", "what-none", lambda cells, value: value["cells"].append(
            cell(f"## What?\n\n{ANSWER}", "what-none", "core", kind="markdown"))),
        ("proof", "adds-elements", _set(CODE, "print(1)")),
        ("anchor", "what-multiplies", lambda cells, value: cells["adds-elements"].update(id="what-multiplies")),
        ("anchor", QUESTION, _tag(QUESTION, "core", "also:what-adds")),
        ("length", CODE, _add("\n".join(f"x{i} = 1" for i in range(25)))),
        ("width", CODE, _add("x = 1  # " + "x" * 88)),
        ("tag", CODE, _tag(CODE, "slow")),
        ("forbidden", CODE, _tag(CODE, "raises-exception")),
        ("forbidden", CODE, _add("!ls")),
        ("forbidden", CODE, _add("%time f()")),
        ("forbidden", CODE, _add("import sys\nsys.exit(0)")),
        ("forbidden", CODE, _add("from tqdm.auto import tqdm")),
        ("python", CODE, _add("x = = 1")),
        ("assertion", CODE, _add("assert (a, 'always true')")),
        ("alt", "draws-line-code", lambda cells, value: cells["draws-line-code"].update(metadata={})),
        ("proof", "draws-gpu-code", _set("draws-gpu-code", "print('not run here')")),
        ("gpu", "draws-gpu-code", _set("draws-gpu-code", "if device == 'cuda':\n    assert device")),
        ("resolves", "draws-gpu-code", _set("draws-gpu-code",
            "assert torch.cuda.memory_usage_of_all  # not run here")),
        ("heading", "adds-myth", _set("adds-myth", "text\n\n### Adding is quick")),
        ("heading", "adds-myth", _set("adds-myth", "### One\n\n### Two")),
        ("heading", "adds-myth", _set("adds-myth", "### One\n\n# Another title")),
        ("commonmark", "adds-myth", _set("adds-myth", "### One\n\n```{note}\nHello\n```")),
        ("commonmark", "adds-myth", _set("adds-myth", "### One\n\nSee {doc}`second`.")),
        ("follow-up", "adds-followups", _set("adds-followups", "<details><summary>Why?</summary>\nSo.\n</details>")),
    ],
)  # fmt: skip
def test_each_rule(
    book: Project, rule: str, where: str, change: Callable[[Cells, dict[str, Any]], object]
) -> None:
    assert _rules(book) == []
    _edit(book.chapters / "first.ipynb", change)
    assert (rule, where) in _rules(book)


def test_a_heading_in_a_code_fence_is_none(book: Project) -> None:
    _edit(
        book.chapters / "first.ipynb", _set("adds-myth", "### One\n\n```python\n# a comment\n## another\n```")
    )
    assert _rules(book) == []


def test_setup_is_the_same_in_every_chapter(book: Project) -> None:
    third = book.chapters / "third.ipynb"
    third.write_bytes((book.chapters / "second.ipynb").read_bytes())
    _edit(third, _set("setup", "import torch\nprint(torch.__version__)"))
    assert ("opening", "setup") in _rules(book, "third")
    assert ("opening", "setup") not in _rules(book, "second")


def test_an_unreadable_chapter_is_named_and_the_others_are_checked(book: Project) -> None:
    (book.chapters / "first.ipynb").write_text("{")
    found = check(book, book.select([]))
    assert [(p.chapter, p.rule) for p in found] == [("first", "readable")]


def _git(project: Project, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.invalid"]
    subprocess.run(["git", *identity, *arguments], cwd=project.root, check=True, capture_output=True)


def test_fix_restores_what_a_notebook_editor_changed(book: Project) -> None:
    _git(book, "init", "-q")
    _git(book, "add", "chapters")
    _git(book, "commit", "-qm", "sources")
    path = book.chapters / "first.ipynb"
    original = path.read_bytes()

    def colab(cells: Cells, value: dict[str, Any]) -> None:
        value["metadata"].update(kernelspec={"name": "torch211", "display_name": "x"}, widgets={})
        value["nbformat_minor"] = 0
        for number, item in enumerate(value["cells"]):
            item.pop("id") if number % 2 else item.update(id=f"c0ffee{number:02d}")
            if item["cell_type"] == "code":
                item["execution_count"] = number
                item["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "1"}]
                item["metadata"]["colab"] = {"base_uri": "x"}

    _edit(path, colab)
    assert _rules(book) != []
    assert check(book, book.select(["first"]), fix=True) == []
    assert path.read_bytes() == original


def test_fix_never_renames_an_id(book: Project) -> None:
    _git(book, "init", "-q")
    _git(book, "add", "chapters")
    _git(book, "commit", "-qm", "sources")
    path = book.chapters / "first.ipynb"
    _edit(path, _set(CODE, "assert torch.ones(1) == 1"))
    _edit(path, lambda cells, value: value["cells"].append(cell("print(2)", "new-cell")))
    check(book, book.select(["first"]), fix=True)
    names = [item["id"] for item in json.loads(path.read_text())["cells"]]
    assert CODE in names and names[-1] == "new-cell"


def test_the_chapters_of_the_book_keep_the_contract() -> None:
    project = Project(ROOT)
    assert [str(problem) for problem in check(project, project.select([]))] == []
