"""Time the stage step on books of 10, 100 and 1,000 chapters made from the test fixtures.

    python -m benchmarks.stage

Prints seconds per book and per chapter, first writing everything, then with nothing changed; work that grows
with the book alone keeps the time per chapter level. Each chapter is a copy of the executed fixture with ids
of its own, and each environment's record names all of them.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path

from torchproof import evidence
from torchproof.execute import execute, locate
from torchproof.project import Project
from torchproof.stage import stage

ROOT = Path(__file__).parent.parent


def book(folder: Path, template: str, count: int) -> Project:
    """A book of `count` chapters that have been executed, with two records.

    Args:
        template: text of an executed chapter, where NUMBER stands for what makes its ids unique.
    """
    project = Project(folder)
    place = locate(None, "cpu")
    names = [f"chapter{number}" for number in range(count)]
    for number, name in enumerate(names):
        text = template.replace("NUMBER", str(number))
        for path in (project.chapters, project.executed / place.name):
            path.mkdir(parents=True, exist_ok=True)
            (path / f"{name}.ipynb").write_text(text)
    files = "".join(f"  - file: chapters/{name}\n" for name in names)
    (folder / "_toc.yml").write_text(f"format: jb-book\nroot: index\nchapters:\n{files}")
    for name in ("_config.yml", "index.md"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "assets", folder / "assets")
    record = evidence.collect(project, place)
    record["environment"] = {**record["environment"], "name": "cpu-torch-2.11.0", "torch": "2.11.0"}
    project.evidence.mkdir()
    (project.evidence / "cpu-torch-2.11.0.json").write_text(json.dumps(record))
    return project


def executed(folder: Path) -> str:
    """Text of the executed fixture chapter, with NUMBER in every id."""
    project = Project(folder)
    shutil.copytree(ROOT / "tests" / "book" / "chapters", project.chapters)
    place = locate(None, "cpu")
    execute(project, project.select(["first"]), place)
    value = json.loads((project.executed / place.name / "first.ipynb").read_text(encoding="utf-8"))
    for cell in value["cells"]:
        cell["id"] += "-NUMBER"
        tags = cell["metadata"].get("tags", [])
        cell["metadata"]["tags"] = [f"{t}-NUMBER" if t.startswith("also:") else t for t in tags]
    return json.dumps(value)


def main() -> None:
    """Print the table."""
    print(f"{'chapters':>8} {'first s':>8} {'ms each':>8} {'again s':>8} {'ms each':>8}")
    with tempfile.TemporaryDirectory() as folder:
        template = executed(Path(folder) / "fixture")
        for count in (10, 100, 1000):
            project = book(Path(folder) / str(count), template, count)
            took = []
            for _ in range(2):
                start = time.perf_counter()
                stage(project, locate(None, "cpu"))
                took.append(time.perf_counter() - start)
            cells = "".join(f" {seconds:8.2f} {1000 * seconds / count:8.1f}" for seconds in took)
            print(f"{count:8}{cells}", flush=True)


if __name__ == "__main__":
    main()
