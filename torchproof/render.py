"""Render the staged book with Jupyter Book, only when it changed, and publish it in one step.

Reads `_build/book/`, writes `_build/html/`. Sphinx works in `_build/sphinx/`: a render that fails
leaves the last good site alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.metadata
import io
import json
import re
import shutil
import threading
from pathlib import Path

from torchproof import notebook
from torchproof.project import Project, ProjectError, dump, write

RENDERERS = (
    "jupyter-book",
    "sphinx",
    "myst-nb",
    "sphinx-book-theme",
    "pydata-sphinx-theme",
    "pygments",
)


def render(project: Project) -> bool:
    """Bring `_build/html` up to date. Returns whether Sphinx was started.

    Raises:
        ProjectError: Jupyter Book found an error or a warning; the last good site is kept.
    """
    state = project.build / "rendered.json"
    wanted = {"structure": _structure(project.book), "book": _hash(project.book)}
    done = _state(state)
    if done == wanted and (project.html / "index.html").exists():
        return False
    work = project.build / "sphinx"
    # Other pages show a changed title or page list in their sidebar, and Sphinx does not re-read
    # them; a render that was cut off leaves no state at all. Both start afresh.
    if done is None or done["structure"] != wanted["structure"]:
        shutil.rmtree(work, ignore_errors=True)
    state.unlink(missing_ok=True)
    accepted, log = _jupyter_book(project.book, work)
    write(project.build / "render.log", log)
    if not accepted:
        raise ProjectError(_explain(log, project.book))
    _publish(work / "_build" / "html", project.html)
    write(state, dump(wanted))
    return True


def warm() -> None:
    """Import what renders, in the background: kernels run in other processes meanwhile."""
    threading.Thread(target=importlib.import_module, args=("jupyter_book.sphinx",), daemon=True).start()


def _jupyter_book(book: Path, work: Path) -> tuple[bool, str]:
    """Run Jupyter Book with warnings as errors; returns whether it was content, and its log.

    In this process: another one would import nbformat and jsonschema again, which takes longer
    than to render a page.
    """
    import click
    from jupyter_book.cli.main import main

    log = io.StringIO()
    arguments = ["build", str(book), "--path-output", str(work), "-W", "-n", "--keep-going"]
    accepted = False
    with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        try:
            main.main(arguments, standalone_mode=False)
            accepted = True
        except (RuntimeError, SystemExit, click.ClickException) as error:
            print(f"ERROR: {error}")
    return accepted, re.sub(r"\x1b\[[0-9;]*m", "", log.getvalue())


def _publish(rendered: Path, html: Path) -> None:
    """Put a finished site in place of the last one."""
    fresh, old = html.with_name("html.new"), html.with_name("html.old")
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(rendered, fresh)
    if html.exists():
        html.rename(old)
    fresh.rename(html)
    shutil.rmtree(old, ignore_errors=True)


def _state(path: Path) -> dict[str, str] | None:
    try:
        value: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        value["structure"], value["book"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return value


def _hash(book: Path) -> str:
    """A hash of every staged file."""
    total = hashlib.sha256()
    for path in sorted(book.rglob("*")):
        if path.is_file():
            total.update(f"{path.relative_to(book)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _structure(book: Path) -> str:
    """A hash of what shows on every page: configuration, page list, titles, and who renders."""
    files = [book / "_config.yml", book / "_toc.yml", *sorted((book / "assets").rglob("*"))]
    parts = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.is_file()]
    parts += [notebook.chapter(path).title for path in sorted((book / "chapters").glob("*.ipynb"))]
    parts += [f"{name} {importlib.metadata.version(name)}" for name in RENDERERS]
    return notebook.digest(parts)


def _explain(log: str, book: Path) -> str:
    """The lines of Jupyter Book's log that say what is wrong, with names a person knows."""
    lines = [line for line in log.splitlines() if re.search(r"\b(WARNING|ERROR|CRITICAL)\b", line)]
    shown = [line.replace(f"{book}/", "") for line in dict.fromkeys(lines)][:20] or log.splitlines()[-8:]
    return "Jupyter Book did not accept the book (all of it in _build/render.log):\n  " + "\n  ".join(shown)
