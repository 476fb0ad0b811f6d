"""Reading chapters: assertions, short answers, questions, hashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT

from torchproof import notebook
from torchproof.project import ProjectError

FIRST = ROOT / "tests" / "book" / "chapters" / "first.ipynb"


@pytest.mark.parametrize(
    ("source", "certain", "conditional", "problems"),
    [
        ("assert x == 1", 1, 0, 0),
        ("for i in y:\n    assert f(i)", 1, 0, 0),
        ("with f():\n    assert x", 1, 0, 0),
        ("if device == 'cuda':\n    assert x", 0, 1, 0),
        ("def f():\n    assert x", 0, 0, 0),
        ("class A:\n    assert x", 0, 0, 0),
        ("assert (x == 1, 'message')", 0, 0, 1),
        ("assert 1 + 1 == 2", 0, 0, 1),
        ("torch.testing.assert_close(a, b)", 1, 0, 0),
        ("with pytest.raises(ValueError, match='no'):\n    f()", 1, 0, 0),
        ("with pytest.raises(ValueError):\n    f()", 0, 0, 1),
        ("with pytest.warns(UserWarning):\n    f()", 0, 0, 1),
        ("try:\n    assert x\nexcept Exception:\n    pass", 0, 0, 1),
        ("try:\n    assert x\nexcept (OSError, AssertionError):\n    pass", 0, 0, 1),
        ("try:\n    assert x\nexcept OSError:\n    pass", 1, 0, 0),
        ("%config X = 1\nassert x", 1, 0, 0),
        ("%%writefile a.py\nassert x", 0, 0, 0),
        ("print(1)", 0, 0, 0),
    ],
)
def test_assertions(source: str, certain: int, conditional: int, problems: int) -> None:
    found = notebook.assertions(source)
    assert (found.certain, found.conditional, len(found.problems)) == (certain, conditional, problems)


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("## Q?\n\n> **Short answer.** Yes.\n> It does.\n\nMore.", "Yes. It does."),
        ("## Q?\n\nAn answer.", None),
        ("## Q?\n\n> **Short answer** Yes.", None),
    ],
)
def test_short_answer(source: str, answer: str | None) -> None:
    assert notebook.short_answer(source) == answer


def test_chapter_is_split_by_question_and_statement() -> None:
    chapter = notebook.chapter(FIRST)
    assert chapter.title == "First"
    assert [question.id for question in chapter.questions] == ["what-adds", "what-draws"]
    adds = chapter.questions[0]
    assert (adds.level, adds.also) == ("core", ["sum-question"])
    assert [(s.id, s.myth, [c["id"] for c in s.cells]) for s in adds.statements] == [
        ("adds-elements", False, ["adds-elements-code"]),
        ("adds-myth", True, ["adds-myth-code"]),
    ]
    assert chapter.place("adds-myth-code") == (adds.title, adds.statements[1].title)
    assert chapter.place("setup") == ("", "")


def _hashes(change: str) -> dict[str, str]:
    source = notebook.read(FIRST)
    for cell in source["cells"]:
        if cell["id"] == change:
            cell["source"] += "\n# changed"
    return notebook.split("first", source).hashes()


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        ("adds-elements-code", {"adds-elements-code", "adds-myth-code"}),
        ("adds-myth-code", {"adds-myth-code"}),
        ("draws-gpu-code", {"draws-gpu-code"}),
        ("adds-elements", set()),
    ],
)
def test_a_change_makes_stale_the_later_cells_of_its_question(change: str, stale: set[str]) -> None:
    before, after = _hashes("nothing"), _hashes(change)
    assert {name for name in before if before[name] != after[name]} == stale


def test_a_change_of_setup_makes_all_but_parameters_stale() -> None:
    before, after = _hashes("nothing"), _hashes("setup")
    assert {name for name in before if before[name] == after[name]} == {"parameters"}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"cells": [{"source": "x"}]}'])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.ipynb"
    path.write_text(text)
    with pytest.raises(ProjectError, match=r"broken\.ipynb: cannot be read as a notebook .*git checkout"):
        notebook.read(path)
