"""Fixtures: a scratch copy of the small book in tests/book, and notebooks made from a few cells."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchproof.project import Project

ROOT = Path(__file__).parent.parent


def cell(source: str, name: str, *tags: str, kind: str = "code") -> dict[str, Any]:
    """One cell as it stands in a source notebook."""
    made: dict[str, Any] = {
        "cell_type": kind,
        "id": name,
        "metadata": {"tags": list(tags)} if tags else {},
        "source": source,
    }
    if kind == "code":
        made.update(execution_count=None, outputs=[])
    return made


def notebook(*code: str, tags: dict[int, str] | None = None, kernel: str = "python3") -> dict[str, Any]:
    """A notebook with a parameters cell and the given code cells, named cell-0, cell-1, ..."""
    cells = [
        cell("# A chapter", "title", kind="markdown"),
        cell('device = "auto"', "parameters", "parameters"),
        cell("## Does it hold?", "question", "core", kind="markdown"),
    ]
    for number, source in enumerate(code):
        cells.append(cell(source, f"cell-{number}", *(tags or {}).get(number, "").split()))
    spec = {"display_name": "Python 3", "language": "python", "name": kernel}
    return {"cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project in a folder whose name has a space."""
    (tmp_path / "a book" / "chapters").mkdir(parents=True)
    return Project(tmp_path / "a book")


@pytest.fixture
def put(project: Project) -> Callable[[str, dict[str, Any]], Path]:
    """Write a chapter into the empty project."""

    def write(name: str, value: dict[str, Any]) -> Path:
        path = project.chapters / f"{name}.ipynb"
        path.write_text(json.dumps(value))
        return path

    return write


def copy_book(target: Path) -> Project:
    """The fixture book with the real configuration, landing page and assets."""
    shutil.copytree(ROOT / "tests" / "book", target)
    shutil.copytree(ROOT / "assets", target / "assets")
    for name in ("_config.yml", "index.md"):
        shutil.copy(ROOT / name, target / name)
    return Project(target)


@pytest.fixture
def book(tmp_path: Path) -> Project:
    """A scratch copy of the fixture book, not yet executed."""
    return copy_book(tmp_path / "fixture book")
