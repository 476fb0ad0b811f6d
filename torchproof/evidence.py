"""What was proven where: one record per environment, written by a run, read by the pages.

Reads `_build/executed/<environment>/` and writes `_build/evidence/<environment>.json`; `record`
copies one into `evidence/`, which is committed. The form is fixed by evidence.schema.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchproof import gather, notebook
from torchproof.environment import Environment, as_json
from torchproof.judge import judge
from torchproof.notebook import Cell, Chapter, Question, tags
from torchproof.project import Project, ProjectError, dump, write

if TYPE_CHECKING:
    from torchproof.execute import Result

SCHEMA = 1
FIGURE_LIMIT = 60_000  # base64 characters of a figure that a record keeps

Record = dict[str, Any]


def collect(project: Project, place: Environment, names: list[str] | None = None) -> Record:
    """Gather what the chapters' last runs in one environment showed, and write the record.

    Args:
        names: chapters to read; the others stay as this run's record has them. By default all are read.
    """
    folder = project.executed / place.name
    path = project.run_evidence / f"{place.name}.json"
    before = _read(path) if names else None
    chapters: dict[str, Record] = before["chapters"] if isinstance(before, dict) else {}
    for source in sorted(project.chapters.glob("*.ipynb")):
        failed = folder / f"{source.stem}.failed.ipynb"
        last = failed if failed.exists() else folder / source.name
        if (not names or source.stem in names) and last.exists():
            chapters[source.stem] = _chapter(last, source.stem)
    record = {
        "schema": SCHEMA,
        "environment": {"name": place.name, **as_json(place)},
        "chapters": {name: chapters[name] for name in sorted(chapters)},
    }
    write(path, dump(record))
    return record


def held(project: Project, results: Iterable[Result]) -> list[str]:
    """For each statement that failed: where a record says that the very same cell held."""
    evidence, lines = load(project), []
    for failure in (failure for result in results for failure in result.failures if failure.cell):
        chapter = notebook.chapter(project.chapters / f"{failure.chapter}.ipynb")
        cell = next((cell for cell in chapter.code if cell["id"] == failure.cell), None)
        places = (
            [f"torch {e['torch']} ({e['device']})" for e, _ in evidence.current(chapter, cell)]
            if cell
            else []
        )
        if places:
            lines.append(
                f"chapters/{failure.chapter}.ipynb › cell {failure.cell}: the same code held on "
                f"{', '.join(places)}; state and prove both sides, or correct the statement"
            )
    return lines


def _chapter(path: Path, name: str) -> Record:
    """The record of one executed chapter."""
    executed = notebook.read(path)
    run = executed["metadata"]["torchproof_run"]
    chapter = notebook.split(name, executed)
    failed = {failure.cell for failure in judge(chapter, chapter.code, strict=False)}
    hashes = chapter.hashes()
    cells = []
    for cell in chapter.code:
        ran = cell["execution_count"] is not None
        entry: dict[str, Any] = {
            "id": cell["id"],
            "hash": hashes[cell["id"]],
            "outcome": "failed" if cell["id"] in failed else "passed" if ran else "not run",
            "assertions": _asserted(cell) if ran and cell["id"] not in failed else 0,
        }
        if {"gpu", "measurement"} & set(tags(cell)):
            entry["outputs"] = [_small(output) for output in cell["outputs"]]
        elif ran:
            entry["printed"] = notebook.digest(notebook.printed(cell))
            if lines := gather.errors(cell):
                entry["errors"] = lines
        cells.append(entry)
    return {
        "started": run["started"],
        "seconds": run["seconds"],
        "commit": run["commit"],
        "dirty": run["dirty"],
        "passed": run["passed"],
        "device": _device(chapter),
        "cells": cells,
    }


def _device(chapter: Chapter) -> str:
    """The `device` that the chapter's parameters cell had when it ran."""
    source = "\n".join(cell["source"] for cell in chapter.code if "parameters" in tags(cell))
    return "cuda" if 'device = "cuda"' in source else "cpu"


def _asserted(cell: Cell) -> int:
    """Assertions that a cell executed when it ran to its end."""
    count = notebook.assertions(cell["source"])
    if "gpu" not in tags(cell):
        return count.certain
    # A gpu cell asserts under `if device == "cuda"`; elsewhere it printed that it did nothing.
    skipped = any("not run here" in "".join(output.get("text", "")) for output in cell["outputs"])
    return 0 if skipped else count.certain + count.conditional


def _small(output: Cell) -> Cell:
    """An output without figures too large for a record."""
    data = {
        kind: value
        for kind, value in output.get("data", {}).items()
        if not kind.startswith("image/") or len("".join(value)) <= FIGURE_LIMIT * 4 // 3
    }
    return {**output, "data": data} if "data" in output else output


def record(project: Project, name: str) -> Path:
    """Keep this run's record of one environment in `evidence/`; returns where.

    Raises:
        ProjectError: there is no such record, or a chapter in it did not pass.
    """
    path = project.run_evidence / f"{name}.json"
    found = _read(path)
    if isinstance(found, str):
        raise ProjectError(found)
    failed = [chapter for chapter, entry in found["chapters"].items() if not entry["passed"]]
    if failed:
        raise ProjectError(f"{name}: {', '.join(failed)} did not pass; only a good run is kept")
    write(project.evidence / path.name, dump(found))
    return project.evidence / path.name


def _read(path: Path) -> Record | str:
    """One record, or why it cannot be used."""
    try:
        value: Record = json.loads(path.read_text(encoding="utf-8"))
        if value["schema"] != SCHEMA:
            return f"{path.name}: written in form {value['schema']}, this version reads form {SCHEMA}"
        for entry in value["chapters"].values():
            entry["started"], entry["passed"]
            for cell in entry["cells"]:
                cell["id"], cell["hash"], cell["outcome"], cell["assertions"]
        value["environment"]["name"], value["environment"]["torch"], value["environment"]["device"]
    except FileNotFoundError:
        return f"{path.name}: no such record; run `python -m torchproof execute` first"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{path.name}: not a record of ours ({type(error).__name__}: {error}); restore or delete it"
    return value


@dataclass
class Proof:
    """What one environment shows of one question."""

    environment: Record
    started: str
    statements: int  # those of which an assertion ran: a gpu cell proves nothing on a CPU
    assertions: int
    stale: bool

    @property
    def date(self) -> str:
        return self.started[:10]

    @property
    def torch(self) -> str:
        return str(self.environment["torch"]).split("+")[0]

    @property
    def device(self) -> str:
        return str(self.environment["device"])


@dataclass
class Evidence:
    """All records that can be used, newest run last, and what was refused."""

    records: list[Record] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    _hashes: dict[int, tuple[Chapter, dict[str, str]]] = field(default_factory=dict)
    _cells: dict[tuple[int, str], dict[str, Record]] = field(default_factory=dict)

    def hashes(self, chapter: Chapter) -> dict[str, str]:
        """A chapter's hashes, computed once for all of its questions."""
        if id(chapter) not in self._hashes:
            # The chapter is kept along: as long as it lives, no other can have its id.
            self._hashes[id(chapter)] = chapter, chapter.hashes()
        return self._hashes[id(chapter)][1]

    def cells(self, value: Record, chapter: str) -> dict[str, Record]:
        """The entries of one record's chapter by cell id, indexed once."""
        place = id(value), chapter
        if place not in self._cells:
            entries = value["chapters"].get(chapter, {"cells": []})["cells"]
            self._cells[place] = {entry["id"]: entry for entry in entries}
        return self._cells[place]

    def current(self, chapter: Chapter, cell: Cell) -> list[tuple[Record, Record]]:
        """Environment and entry of each record that holds this very cell as passed; one an environment."""
        expected = self.hashes(chapter)[cell["id"]]
        found: dict[str, tuple[Record, Record]] = {}
        for value in self.records:
            entry = self.cells(value, chapter.name).get(cell["id"])
            if entry and entry["hash"] == expected and entry["outcome"] == "passed":
                found[value["environment"]["name"]] = value["environment"], entry
        return sorted(found.values(), key=lambda item: _order(item[0]))

    def started(self, environment: str, chapter: str) -> str:
        """Day on which a chapter last ran in an environment."""
        dates = [
            value["chapters"][chapter]["started"][:10]
            for value in self.records
            if value["environment"]["name"] == environment and chapter in value["chapters"]
        ]
        return dates[-1] if dates else "never"

    def proofs(self, chapter: Chapter, question: Question) -> list[Proof]:
        """What each environment shows of a question; a stale one asserts nothing.

        A record counts while each cell of the question has the hash that ran.
        """
        hashes = self.hashes(chapter)
        code = [cell["id"] for cell in question.code]
        found: dict[str, Proof] = {}
        for value in self.records:
            entry = value["chapters"].get(chapter.name)
            if not entry:
                continue
            cells = self.cells(value, chapter.name)
            known = [cells[name] for name in code if name in cells]
            if not known:
                continue
            current = [c for c in known if c["hash"] == hashes[c["id"]] and c["outcome"] == "passed"]
            asserting = {c["id"] for c in current if c["assertions"]}
            proof = Proof(
                value["environment"],
                entry["started"],
                sum(any(c["id"] in asserting for c in s.cells) for s in question.statements),
                sum(cell["assertions"] for cell in current),
                len(current) != len(code),
            )
            name = value["environment"]["name"]
            if name not in found or not proof.stale or found[name].stale:
                found[name] = proof
        return sorted(found.values(), key=lambda proof: _order(proof.environment))

    def ran_on_gpu(self, chapter: Chapter, cell: Cell) -> bool:
        """Whether a record made on a GPU holds this very cell."""
        return any(environment["device"] != "CPU" for environment, _ in self.current(chapter, cell))


def _order(environment: Record) -> tuple[bool, list[int], str]:
    """CPUs first, then by torch's version."""
    numbers = [int(part) for part in re.findall(r"\d+", environment["torch"].split("+")[0])]
    return environment["device"] != "CPU", numbers, environment["device"]


def load(project: Project, folders: Iterable[Path] | None = None) -> Evidence:
    """Read the kept records and this run's; refuse by name what cannot be read."""
    result = Evidence()
    for folder in folders or (project.evidence, project.run_evidence):
        for path in sorted(folder.glob("*.json")):
            value = _read(path)
            if isinstance(value, str):
                result.refused.append(value)
            else:
                result.records.append(value)
    return result
