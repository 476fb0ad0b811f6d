"""The statements in git, commit by commit."""

from __future__ import annotations

import json
import subprocess

import pytest

from torchproof.changes import changes
from torchproof.project import Project


def _git(project: Project, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, *arguments], cwd=project.root, check=True, capture_output=True)


def _commit(project: Project, before: str, after: str) -> None:
    path = project.chapters / "second.ipynb"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    _git(project, "commit", "-qam", "edit")


@pytest.fixture
def repository(book: Project) -> Project:
    """The fixture book as a repository with one commit."""
    _git(book, "init", "-q")
    _git(book, "add", ".")
    _git(book, "commit", "-qm", "first")
    return book


def test_added_reworded_overturned_and_removed(repository: Project) -> None:
    assert {change["kind"] for change in changes(repository)} == {"added"}
    assert len(changes(repository)) == 8
    _commit(repository, "Finite elements become zero", "Finite elements become a zero")
    _commit(repository, "Finite elements become a zero", "Myth: all elements become zero")
    _commit(repository, '"multiplies-zero"', '"multiplies-naught"')
    found = changes(repository)[:4]
    assert [(change["kind"], change["id"]) for change in found] == [
        ("removed", "multiplies-zero"),
        ("added", "multiplies-naught"),
        ("overturned", "multiplies-zero"),
        ("reworded", "multiplies-zero"),
    ]
    assert found[2]["before"] == "Finite elements become a zero"


def test_only_new_commits_are_read(repository: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    before = changes(repository)
    assert json.loads((repository.build / "changes.json").read_text())["changes"] == before[::-1]
    monkeypatch.setattr("torchproof.changes._commit", lambda *_: pytest.fail("read a known commit again"))
    assert changes(repository) == before


def test_rewritten_history_is_read_anew(repository: Project) -> None:
    _commit(repository, "Finite elements become zero", "Something else")
    assert changes(repository)[0]["kind"] == "reworded"
    _git(repository, "reset", "-q", "--hard", "HEAD~1")
    assert {change["kind"] for change in changes(repository)} == {"added"}


def test_a_chapter_that_was_deleted_or_broken_in_the_past(repository: Project) -> None:
    _commit(repository, '"cells"', '"sells"')
    _commit(repository, '"sells"', '"cells"')
    assert {change["kind"] for change in changes(repository)} == {"added"}
    _git(repository, "rm", "-q", "chapters/second.ipynb")
    _git(repository, "commit", "-qm", "delete")
    assert {change["kind"] for change in changes(repository)[:2]} == {"removed"}


def test_without_git_there_is_no_history(book: Project) -> None:
    assert changes(book) == []
