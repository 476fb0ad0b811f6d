"""Environments of other torch versions: announced, made once, reused, and not stopped by a broken one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from torchproof import versions
from torchproof.execute import locate
from torchproof.project import Project, ProjectError


@pytest.fixture
def home(book: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A book with one list, and an empty folder for its environment."""
    monkeypatch.setenv("TORCHPROOF_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("JUPYTER_PATH", "")
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    (book.root / "environments").mkdir()
    (book.root / "environments" / "old.txt").write_text("# python 3.12\nnosuch==1\n")
    return tmp_path / "environments"


def _there(book: Project, home: Path, name: str) -> None:
    """An environment as if it had been made: this very Python with a kernel of that name."""
    python = [sys.executable, "-m", "ipykernel", "install", "--prefix", str(home / name), "--name", name]
    subprocess.run(python, check=True, capture_output=True)
    shutil.copy(book.root / "environments" / f"{name}.txt", home / name / "made-from.txt")


def test_the_shipped_lists_pin_everything_and_name_their_python() -> None:
    found = versions.versions(Project(ROOT), [])
    assert [version.name for version in found] == ["torch-2.11", "torch-2.15"]
    for version in found:
        assert version.python in ("3.12", "3.13")
        lines = [line for line in version.list.read_text().splitlines() if not line.startswith("#")]
        assert all("==" in line for line in lines)
        assert any(line.startswith(f"torch=={version.name.removeprefix('torch-')}.") for line in lines)


def test_sizes_or_presence_are_said_before_anything_starts(
    book: Project, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (version,) = versions.versions(book, [])
    assert "its size could not be asked for" in versions.announce(version)
    monkeypatch.setattr(versions, "_download", lambda _: 2_500_000_000)
    assert "fetches up to 2.5 GB and takes about 5.0 GB" in versions.announce(version)
    assert "GB are free" in versions.announce(version)
    _there(book, home, "old")
    assert "is there already" in versions.announce(version)
    version.list.write_text("# python 3.12\nnosuch==2\n")
    assert not version.ready


def test_a_broken_one_is_named_and_does_not_stop_the_others(
    book: Project, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from torchproof.__main__ import app

    (book.root / "environments" / "same.txt").write_text("# python 3.12\nnumpy==2\n")
    _there(book, home, "same")
    monkeypatch.chdir(book.root)
    assert app(["versions", "old", "same"], standalone_mode=False) == 1
    told = capfd.readouterr()
    assert "environments/old.txt: the environment was not made" in told.err
    assert "did not hold or could not run: old" in told.err
    # The other one ran the book in the kernel of its name, and its record is kept.
    assert (book.evidence / f"{locate(None, 'cpu').name}.json").exists()


def test_an_unknown_name_or_a_list_without_python_is_named(book: Project, home: Path) -> None:
    with pytest.raises(ProjectError, match=r"environments/new\.txt does not exist; there are: old"):
        versions.versions(book, ["new"])
    (book.root / "environments" / "old.txt").write_text("torch==1\n")
    with pytest.raises(ProjectError, match="its first line must be like"):
        versions.versions(book, [])[0].python  # noqa: B018
