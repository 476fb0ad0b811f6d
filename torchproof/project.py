"""Where things are, and how files are written so that nothing half-finished is ever seen."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock


class ProjectError(Exception):
    """A mistake the person can mend; its text names the file and the remedy."""


class Project:
    """The folders of one book. Every step gets this and nothing global."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.chapters = self.root / "chapters"
        self.evidence = self.root / "evidence"
        self.build = self.root / "_build"
        self.executed = self.build / "executed"
        self.run_evidence = self.build / "evidence"
        self.book = self.build / "book"
        self.html = self.build / "html"

    def select(self, names: list[str]) -> list[Path]:
        """Paths of the chapters named (with or without folder and ending), or of all.

        Raises:
            ProjectError: a name has no notebook, or there is no chapter at all.
        """
        everything = {path.stem: path for path in sorted(self.chapters.glob("*.ipynb"))}
        if not everything:
            raise ProjectError(f"{self.chapters.name}/ holds no notebook: nothing to do")
        for name in names:
            if Path(name).stem not in everything:
                known = ", ".join(everything)
                raise ProjectError(f"chapters/{Path(name).stem}.ipynb does not exist; there are: {known}")
        wanted = {Path(name).stem for name in names} or set(everything)
        return [path for stem, path in everything.items() if stem in wanted]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold `_build` alone: a second build waits for the first. The lock dies with its process."""
        self.build.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(self.build / ".lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            print("another torchproof is working in _build; waiting for it to end", flush=True)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def git(self, *arguments: str) -> str | None:
        """Output of a git command in the project, or None where git or the repository is absent."""
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=self.root, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.rstrip("\n")


def write(path: Path, content: str | bytes) -> bool:
    """Write a file in one step, and only when its bytes differ. Returns whether it was written.

    Sphinx goes by modification times: an unchanged file must keep its own, a changed one must get
    a new one.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.read_bytes() == data:
            return False
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp makes files that only their owner can read; a web server could not serve the page.
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return True


def dump(value: Any) -> str:
    """JSON as notebooks and records are written here: one space of indent, readable characters."""
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
