"""Run each question of a chapter after parameters and setup only, each in a process of its own.

Started by test_chapters.py with the path of a notebook; prints a JSON object of what failed, by question.
The opening cells run once, and each question in a fork of that process: torch is imported once a chapter.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

os.environ["MPLBACKEND"] = "agg"

from IPython.core.interactiveshell import InteractiveShell

from torchproof import notebook


def run(shell: InteractiveShell, cells: list[notebook.Cell]) -> str | None:
    """Run cells until one fails; returns its id and error."""
    for cell in cells:
        result = shell.run_cell(cell["source"])  # type: ignore[no-untyped-call]
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            return f"{cell['id']}: {''.join(traceback.format_exception_only(error)).strip()}"
    return None


def main() -> None:
    chapter = notebook.chapter(Path(sys.argv[1]))
    output = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    shell = InteractiveShell.instance()
    opening = run(shell, [cell for cell in chapter.opening if cell["cell_type"] == "code"])
    failed = {"(opening)": opening} if opening else {}
    sys.path.insert(0, "")  # a kernel imports from its working directory, where %%writefile writes
    for question in chapter.questions:
        with tempfile.TemporaryDirectory() as folder:
            told = Path(folder) / "failed.txt"
            child = os.fork()
            if child == 0:
                work = Path(folder) / "work"
                work.mkdir()
                os.chdir(work)
                told.write_text(run(shell, question.code) or "")
                os._exit(0)
            os.waitpid(child, 0)
            error = told.read_text() if told.exists() else "its process died"
            if error:
                failed[question.id] = error
    json.dump(failed, output)
    output.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
