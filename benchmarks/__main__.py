"""Time our build against stock Jupyter Book on the same chapters, in one run; print ratios.

    python -m benchmarks FOLDER [ROUNDS]

FOLDER holds ordinary notebooks, for example shared/trap-notebooks/good. Errors that a cell expects are
caught in it: our contract forbids them. Each round makes both books anew and times a cold build, one where
nothing changed and one after an edit of one code cell, builders in turn; the printed seconds are medians.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROMISED = {"cold": 0.7, "unchanged": 0.3, "one cell edited": 1.0}
STOCK = """\
title: Stock
execute: {execute_notebooks: cache}
only_build_toc_files: true
repository: {url: https://github.com/torchproof/torchproof, branch: main}
launch_buttons: {colab_url: https://colab.research.google.com}
"""


def chapters(source: Path, target: Path) -> list[str]:
    """Copy the notebooks of a folder, with expected errors caught; returns their names."""
    target.mkdir(parents=True)
    names = []
    for path in sorted(source.glob("*.ipynb")):
        value = json.loads(path.read_text(encoding="utf-8"))
        for cell in value["cells"]:
            if "raises-exception" in cell["metadata"].get("tags", []):
                cell["metadata"]["tags"].remove("raises-exception")
                lines = textwrap.indent("".join(cell["source"]), "    ")
                cell["source"] = f"try:\n{lines}\nexcept Exception as error:\n    print(type(error).__name__)"
        (target / path.name).write_text(json.dumps(value))
        names.append(path.stem)
    return names


def toc(names: list[str]) -> str:
    return "format: jb-book\nroot: index\nchapters:\n" + "".join(
        f"- file: chapters/{name}\n" for name in names
    )


def ours(folder: Path, source: Path) -> Callable[[], None]:
    """Make our book; returns the command that builds it."""
    names = chapters(source, folder / "chapters")
    (folder / "_toc.yml").write_text(toc(names))
    shutil.copytree(ROOT / "assets", folder / "assets")
    for name in ("_config.yml", "index.md"):
        shutil.copy(ROOT / name, folder / name)
    return lambda: run(folder, [sys.executable, "-m", "torchproof", "build", "--device", "cpu"])


def stock(folder: Path, source: Path) -> Callable[[], None]:
    """Make the same book for Jupyter Book alone; returns the command that builds it."""
    names = chapters(source, folder / "chapters")
    (folder / "_toc.yml").write_text(toc(names))
    (folder / "_config.yml").write_text(STOCK)
    (folder / "index.md").write_text("# Stock\n")
    main = "import sys; from jupyter_book.cli.main import main; sys.exit(main())"
    return lambda: run(folder, [sys.executable, "-c", main, "build", ".", "-W", "--keep-going"])


def run(folder: Path, command: list[str]) -> None:
    """Run a build; a failed one ends the benchmark with what it said."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:4])} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def edit(folder: Path, number: int) -> None:
    """Change the last code cell of the first chapter."""
    path = min((folder / "chapters").glob("*.ipynb"))
    value = json.loads(path.read_text(encoding="utf-8"))
    cell = [cell for cell in value["cells"] if cell["cell_type"] == "code"][-1]
    cell["source"] = "".join(cell["source"]) + f"\nassert {number} + 0 == {number}"
    path.write_text(json.dumps(value))


def main() -> int:
    """Print the table; status 1 when a promise was not kept."""
    if len(sys.argv) < 2 or not list(Path(sys.argv[1]).glob("*.ipynb")):
        sys.exit(f"{__doc__}\nFOLDER must hold notebooks")
    source, rounds = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    seconds: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as scratch:
            builds = {}
            for name, make in (("ours", ours), ("stock", stock)):
                (Path(scratch) / name).mkdir()
                builds[name] = make(Path(scratch) / name, source)
            for step in PROMISED:
                for name, build in builds.items():
                    if step == "one cell edited":
                        edit(Path(scratch) / name, number)
                    started = time.perf_counter()
                    build()
                    seconds.setdefault((step, name), []).append(time.perf_counter() - started)
    kept = True
    print(f"{'':16} {'ours':>8} {'stock':>8} {'ratio':>7}   promised")
    for step, most in PROMISED.items():
        here, there = (statistics.median(seconds[step, name]) for name in ("ours", "stock"))
        kept = kept and here / there <= most
        print(f"{step:16} {here:6.2f} s {there:6.2f} s {here / there:7.2f}   at most {most}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
