"""A tiny book built end to end, and its HTML; what a change costs; what an accident leaves."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, copy_book

from torchproof.execute import execute, locate
from torchproof.project import Project, ProjectError
from torchproof.render import render
from torchproof.stage import stage

COLAB = "https://colab.research.google.com/github/me/book/blob/main/chapters"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "TORCHPROOF_REPOSITORY": "https://github.com/me/book"}


def _build(project: Project) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchproof", "build"]
    return subprocess.run(
        command, cwd=project.root, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The fixture book, built once by the command a reader gives."""
    project = copy_book(tmp_path_factory.mktemp("built") / "fixture book")
    done = _build(project)
    assert done.returncode == 0, done.stdout + done.stderr
    return project


@pytest.fixture
def again(built: Project, tmp_path: Path) -> Project:
    """A copy of the built book that a test may change; Sphinx's state names paths, so it goes along."""
    shutil.copytree(built.root, tmp_path / "fixture book")
    return Project(tmp_path / "fixture book")


def _page(project: Project, name: str) -> str:
    return (project.html / name).read_text(encoding="utf-8")


def test_the_site_holds_what_ran(built: Project) -> None:
    first = _page(built, "chapters/first.html")
    for anchor in ("what-adds", "sum-question", "adds-elements", "adds-myth", "draws-gpu"):
        assert f'id="{anchor}"' in first
    assert re.search(r"Proven: 2 of 2 statements, 3 assertions on torch [\d.]+, CPU, <time", first)
    # What asserts only on a GPU is not counted on a CPU.
    assert "Proven: 3 of 4 statements" in first
    assert 'href="#what-adds"' in first
    assert f"{COLAB}/first.ipynb" in first
    assert "https://github.com/me/book/issues/new?title=Wrong%20statement%3A%20What%20does" in first
    # The figure and its text, the folded prediction, the cell that no GPU has seen, the parameter that ran.
    assert 'alt="A straight line from (0, 0) to (1, 2)."' in first
    assert re.search(r'<details class="[^"]*hide below-input', first)
    assert "This cell has not run on a GPU yet" in first
    assert re.search(r'device.*?=.*?"cpu"', re.sub(r"<[^>]+>", "", first.replace("&quot;", '"')))
    assert "Shapes that do not match" in _page(built, "chapters/second.html")


def test_the_landing_page_counts_from_the_evidence(built: Project) -> None:
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", _page(built, "index.html")))
    assert "questions 3" in text
    assert "statements, each with code that fails if it is false 7" in text
    assert "of them myths refuted 1" in text
    assert "assertions that ran 8" in text
    assert 'href="chapters/first.html#what-adds"' in _page(built, "index.html")


def test_nothing_of_the_machine_reaches_a_page_or_a_download(built: Project) -> None:
    pages = [*built.html.rglob("*.html"), *built.html.rglob("*.ipynb"), built.html / "searchindex.js"]
    assert len(pages) >= 6
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for trace in (
            str(built.root),
            str(Path.home()) + "/",
            "papermill",
            "torchproof_run",
            "injected-parameters",
        ):
            assert trace not in text, f"{trace} in {page.name}"


def test_no_page_asks_a_third_party(built: Project) -> None:
    for page in built.html.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link(?! rel="canonical")|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text()
        )
        assert loaded == [], page.name


def test_an_unchanged_book_executes_and_renders_nothing(built: Project) -> None:
    before = {path: path.stat().st_mtime_ns for path in built.html.rglob("*") if path.is_file()}
    done = _build(built)
    assert done.returncode == 0
    assert "2 chapters unchanged" in done.stdout and "nothing changed in" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in built.html.rglob("*") if path.is_file()} == before


def _edit(project: Project, old: str, new: str, chapter: str = "second") -> Path:
    path = project.chapters / f"{chapter}.ipynb"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def test_a_prose_edit_renders_and_executes_nothing(again: Project) -> None:
    _edit(again, "Zero times a finite number is zero.", "Zero times any finite number is zero.")
    done = _build(again)
    assert "2 chapters unchanged" in done.stdout and "rendered in" in done.stdout
    assert "any finite number" in _page(again, "chapters/second.html")


def test_a_code_edit_executes_that_chapter_alone_and_an_older_file_is_seen(again: Project) -> None:
    path = _edit(again, "torch.ones(2) * torch.ones(3)", "torch.ones(2) * torch.ones(4)")
    os.utime(path, (0, 0))  # as `cp -p` or an unpacked archive leaves it
    done = _build(again)
    assert "second: passed" in done.stdout and "first: " not in done.stdout
    assert "size of tensor a (2) must match the size of tensor b (4)" in _page(again, "chapters/second.html")


def test_a_changed_title_shows_on_every_page(again: Project) -> None:
    _edit(again, "# Second", "# Multiplication")
    assert _build(again).returncode == 0
    assert "Multiplication" in _page(again, "chapters/first.html")


def test_a_failing_chapter_stops_publication_and_keeps_the_last_site(again: Project) -> None:
    before = _page(again, "chapters/second.html")
    _edit(again, "torch.zeros(2))", "torch.ones(2))")
    done = _build(again)
    assert done.returncode == 1
    place = (
        "chapters/second.ipynb › What does multiplying a tensor by zero give? › Finite elements become zero"
    )
    assert f"{place} › cell multiplies-zero-code: AssertionError" in done.stdout
    assert "the site was not built" in done.stderr
    assert _page(again, "chapters/second.html") == before


def test_a_warning_stops_publication_and_keeps_the_last_site(again: Project) -> None:
    before = _page(again, "chapters/second.html")
    _edit(again, "Zero times a finite number is zero.", "See [nothing](nosuch.md).")
    done = _build(again)
    assert done.returncode == 1
    assert "Jupyter Book did not accept the book" in done.stderr and "nosuch.md" in done.stderr
    assert _page(again, "chapters/second.html") == before
    _edit(again, "See [nothing](nosuch.md).", "Zero times a finite number is zero.")
    assert _build(again).returncode == 0


@pytest.mark.parametrize(
    ("toc", "said"),
    [
        ("root: index\nchapters:\n- file: chapters/first\n", "_toc.yml does not list chapters/second"),
        ("root: index\nchapters:\n- file: chapters/third\n- file: chapters/first\n- file: chapters/second\n",
         "_toc.yml lists chapters/third, which does not exist"),
        ("a: [", "_toc.yml cannot be read"),
    ],
)  # fmt: skip
def test_a_wrong_page_list_is_named(again: Project, toc: str, said: str) -> None:
    (again.root / "_toc.yml").write_text(toc)
    with pytest.raises(ProjectError, match=said):
        stage(again, locate(None, "cpu"))


def test_a_chapter_without_a_good_run_is_named(book: Project) -> None:
    with pytest.raises(ProjectError, match=r"chapters/first\.ipynb has no good run yet"):
        stage(book, locate(None, "cpu"))


def test_a_page_that_is_gone_from_the_book_is_gone_from_the_site(again: Project) -> None:
    (again.chapters / "second.ipynb").unlink()
    (again.root / "_toc.yml").write_text("format: jb-book\nroot: index\nchapters:\n- file: chapters/first\n")
    assert _build(again).returncode == 0
    assert not (again.html / "chapters" / "second.html").exists()


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@github.com:me/book.git", "https://github.com/me/book"),
        ("https://github.com/me/book", "https://github.com/me/book"),
        ("https://token@github.com/me/book.git", "https://github.com/me/book"),
        ("/srv/git/book", "https://github.com/torchproof/torchproof"),
    ],
)
def test_the_repository_comes_from_the_remote(
    again: Project, monkeypatch: pytest.MonkeyPatch, remote: str, address: str
) -> None:
    for name in ("TORCHPROOF_REPOSITORY", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    subprocess.run(["git", "init", "-q"], cwd=again.root, check=True)
    subprocess.run(["git", "remote", "add", "origin", remote], cwd=again.root, check=True)
    stage(again, locate(None, "cpu"))
    assert f"url: {address}\n" in (again.book / "_config.yml").read_text()


def _site(project: Project) -> dict[str, bytes]:
    """Every file of the site but Sphinx's own state, with the date of the run left out of badges.

    The verification page, which search indexes, says how long each chapter took.
    """
    timed = ("verification.md", "verification.html", "searchindex.js")
    found = {}
    for path in sorted(project.html.rglob("*")):
        if path.is_file() and path.name not in (".buildinfo", "objects.inv", *timed):
            text = re.sub(rb"\d{4}-\d\d-\d\dT[\d:+]+", b"", path.read_bytes())
            found[str(path.relative_to(project.html))] = text
    return found


@pytest.mark.parametrize("moment", [0.3, 2.5, 5.0, 7.0])
def test_a_killed_build_run_again_gives_the_same_site(built: Project, tmp_path: Path, moment: float) -> None:
    project = copy_book(tmp_path / "fixture book")
    command = [sys.executable, "-m", "torchproof", "build"]
    with subprocess.Popen(
        command, cwd=project.root, env=ENVIRONMENT, stdout=subprocess.DEVNULL, start_new_session=True
    ) as running:
        time.sleep(moment)
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
    done = _build(project)
    assert done.returncode == 0, done.stdout + done.stderr
    undisturbed, disturbed = _site(built), _site(project)
    assert undisturbed.keys() == disturbed.keys()
    assert [name for name in undisturbed if undisturbed[name] != disturbed[name]] == []


def test_two_builds_at_once_do_not_harm_each_other(book: Project) -> None:
    command = [sys.executable, "-m", "torchproof", "build"]
    both = [
        subprocess.Popen(command, cwd=book.root, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [running.communicate(timeout=120)[0] for running in both]
    assert [running.returncode for running in both] == [0, 0]
    assert sum("another torchproof is working in _build" in text for text in told) == 1
    assert sum("first: passed" in text for text in told) == 1


def test_render_is_skipped_by_content(again: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHPROOF_REPOSITORY", "https://github.com/me/book")
    place = locate(None, "cpu")
    assert not any(result.failures for result in execute(again, again.select([]), place))
    stage(again, place)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Sphinx was started")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert render(again) is False
    state = json.loads((again.build / "rendered.json").read_text())
    assert set(state) == {"structure", "book"}
