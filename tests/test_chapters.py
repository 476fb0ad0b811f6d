"""The chapters of the book: each passes, each question stands alone, each comes out the same twice.

A chapter whose code was confirmed before on this machine is skipped; with CI=true nothing is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from pytest_notebook.nb_regression import NBRegressionFixture

from torchproof import notebook
from torchproof.execute import execute, key, locate
from torchproof.judge import Failure
from torchproof.project import Project, write

PROJECT = Project(ROOT)
NAMES = sorted(path.stem for path in PROJECT.chapters.glob("*.ipynb"))


@pytest.fixture(scope="session")
def failures() -> dict[str, tuple[Failure, ...]]:
    """What each chapter's run says, from one run of all of them; cached like any other run."""
    with PROJECT.lock():
        results = execute(PROJECT, PROJECT.select([]), locate(None, "cpu"))
    return {result.chapter: result.failures for result in results}


@pytest.fixture
def unconfirmed(request: pytest.FixtureRequest, failures: dict[str, tuple[Failure, ...]]) -> Iterator[Path]:
    """Path of the executed chapter; remembers that the test passed, and skips it when it had."""
    name = request.node.callspec.params["name"]
    assert not failures[name]
    path = PROJECT.executed / locate(None, "cpu").name / f"{name}.ipynb"
    confirmed = PROJECT.build / "confirmed" / f"{request.node.originalname}-{name}.txt"
    now = key(notebook.chapter(PROJECT.chapters / f"{name}.ipynb"), locate(None, "cpu"))
    if not os.environ.get("CI") and confirmed.exists() and confirmed.read_text() == now:
        pytest.skip("confirmed before: code and environment are unchanged")
    yield path
    if not request.session.testsfailed:
        write(confirmed, now)


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_holds(failures: dict[str, tuple[Failure, ...]], name: str) -> None:
    assert [str(failure) for failure in failures[name]] == []


@pytest.mark.parametrize("name", NAMES)
def test_each_question_stands_alone(unconfirmed: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "question_alone.py", unconfirmed],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    assert json.loads(done.stdout) == {}


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_the_same_twice(
    unconfirmed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as the runner sets it: two chapters share two cores
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # ipykernel behaves otherwise where it sees this
    # pytest-notebook executes a copy in a fresh folder and compares with what was stored.
    copy = tmp_path / unconfirmed.name
    shutil.copy(unconfirmed, copy)
    cells = json.loads(copy.read_text())["cells"]
    measured = [f"/cells/{n}/outputs" for n, cell in enumerate(cells) if "measurement" in notebook.tags(cell)]
    NBRegressionFixture(
        exec_timeout=240,
        exec_cwd=str(tmp_path),
        diff_ignore=("/metadata", "/cells/*/metadata", *measured),
        diff_color_words=False,
    ).check(copy)


def test_the_chapters_are_those_of_the_page_list() -> None:
    assert NAMES, "there is no chapter"
    listed = (ROOT / "_toc.yml").read_text()
    assert [name for name in NAMES if f"chapters/{name}\n" not in listed] == []
