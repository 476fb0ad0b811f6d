"""The pages and data that are made, not written: questions, myths, errors, API, verification, changes.

Everything here derives from the executed chapters, the evidence and git; templates/ gives it its form.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from torchproof import gather, inventory, notebook
from torchproof.changes import Change, changes
from torchproof.environment import Environment
from torchproof.evidence import Evidence, Proof
from torchproof.notebook import Cell, Chapter, Question, Statement, heading, tags
from torchproof.project import Project, dump

SCHEMA = Path(__file__).with_name("questions.schema.json")
SHORTEST = 10  # characters of a `match=` that can stand for a message no cell prints
EVERYWHERE = 12  # a symbol that proves more statements than this is listed by question


@dataclass
class Book:
    """The chapters as they were executed, and all that is known about them."""

    project: Project
    place: Environment
    chapters: list[Chapter]
    evidence: Evidence
    repository: str
    site: str

    @cached_property
    def proofs(self) -> dict[tuple[str, str], list[Proof]]:
        """What each environment shows of each question."""
        return {
            (chapter.name, question.id): self.evidence.proofs(chapter, question)
            for chapter, question in self.questions()
        }

    @cached_property
    def summaries(self) -> list[dict[str, Any]]:
        """The numbers of each chapter."""
        return [self._summary(chapter) for chapter in self.chapters]

    @cached_property
    def total(self) -> dict[str, Any]:
        """The book's numbers: the sums of the chapters'."""
        return {
            **{
                name: sum(summary[name] for summary in self.summaries)
                for name in ("statements", "myths", "assertions")
            },
            "questions": sum(len(chapter.questions) for chapter in self.chapters),
            "environments": sorted(
                {place for summary in self.summaries for place in summary["environments"]}
            ),
            "date": max((summary["date"] for summary in self.summaries if summary["date"]), default=None),
        }

    def _summary(self, chapter: Chapter) -> dict[str, Any]:
        proofs = [self.proofs[chapter.name, question.id] for question in chapter.questions]
        current = [proof for found in proofs for proof in found if not proof.stale]
        return {
            "name": chapter.name,
            "title": chapter.title,
            "questions": chapter.questions,
            "statements": sum(max((p.statements for p in found), default=0) for found in proofs),
            "myths": sum(s.myth for question in chapter.questions for s in question.statements),
            "assertions": sum(max((p.assertions for p in found), default=0) for found in proofs),
            "environments": {(proof.torch, proof.device) for proof in current},
            "date": max((proof.date for proof in current), default=None),
        }

    def questions(self) -> Iterator[tuple[Chapter, Question]]:
        """Every question with its chapter, in the book's order."""
        for chapter in self.chapters:
            for question in chapter.questions:
                yield chapter, question

    def statements(self) -> Iterator[tuple[Chapter, Question, Statement]]:
        """Every statement with its question and chapter, in the book's order."""
        for chapter, question in self.questions():
            for statement in question.statements:
                yield chapter, question, statement


def below(question: Question, statement: Statement) -> str:
    """The first sentence below a statement's heading: for a myth, what is true."""
    cell = next(cell for cell in question.cells if cell.get("id") == statement.id)
    text = cell["source"].partition("\n")[2].strip().split("\n\n")[0]
    sentence: str = re.split(r"(?<=[.!?])\s+(?=[A-Z`*\[])", " ".join(text.split()))[0]
    return sentence


def myths(book: Book) -> dict[str, list[dict[str, Any]]]:
    """Popular statements that are false by chapter, each with the sentence that is true."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for chapter, question, statement in book.statements():
        if statement.myth:
            said = statement.title.removeprefix("Myth:").strip()
            true = below(question, statement)
            found[chapter.title].append(
                {"question": question, "statement": statement, "said": said, "true": true}
            )
    return found


def errors(book: Book) -> dict[str, list[dict[str, Any]]]:
    """Expected errors and warnings by type: message as the pin words it, other versions', where proven.

    Entries with one message are one; a `match=` whose message no cell prints stands for itself.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for chapter, question, statement in book.statements():
        for cell in statement.cells:
            for entry in gather.errors(cell):
                # A type that is a variable's name says nothing to a reader.
                named = re.search("Error|Warning|Exception|Unsupported", str(entry["type"]))
                type_, match = str(entry["type"]) if named else "Exception", str(entry["match"])
                if not entry["message"] and len(match) < SHORTEST:
                    continue
                message = entry["message"] or re.sub(r"[\\^$]|\(\?i\)|\.\*", " ", match).strip()
                key = type_, re.sub(r"\W+", " ", message).lower()
                place = found.setdefault(
                    key, {"message": message, "whole": bool(entry["message"]), "others": {}, "places": []}
                )
                if (statement, question) not in [(s, q) for s, q, _ in place["places"]]:
                    place["places"].append((statement, question, chapter))
                for environment, record in book.evidence.current(chapter, cell):
                    for other in record.get("errors", []):
                        if other["match"] == match and other["message"] not in (None, message):
                            place["others"].setdefault(other["message"], environment["torch"].split("+")[0])
    types: dict[str, list[dict[str, Any]]] = defaultdict(list)
    whole = [(type_, value["message"].lower()) for (type_, _), value in found.items() if value["whole"]]
    for (type_, _), value in found.items():
        text = value["message"].lower()
        # What no cell printed is part of a message that another cell did print.
        if not value["whole"] and (hit := next((m for t, m in whole if t == type_ and text in m), None)):
            target = next(v for (t, _), v in found.items() if t == type_ and v["message"].lower() == hit)
            target["places"] += [p for p in value["places"] if p[0] not in [q[0] for q in target["places"]]]
            continue
        types[type_].append(value)
    return {
        type_: sorted(types[type_], key=lambda value: value["message"].lower()) for type_ in sorted(types)
    }


def api(book: Book) -> list[dict[str, Any]]:
    """Each torch symbol of the code cells: the statements proven with it, PyTorch's page of it."""
    places: dict[str, list[tuple[Question, Statement]]] = defaultdict(list)
    for chapter in book.chapters:
        used = gather.symbols(chapter.code)
        for question in chapter.questions:
            for statement in question.statements:
                for symbol in sorted(set().union(*(used[cell["id"]] for cell in statement.cells), set())):
                    places[symbol].append((question, statement))
    pages = {**linked(book.chapters), **inventory.load(book.project, book.place.torch)}
    return [
        {
            "name": symbol,
            "group": symbol.rpartition(".")[0],
            "url": pages.get(symbol),
            "count": len(found),
            "statements": found if len(found) <= EVERYWHERE else [],
            "questions": list({question.id: question for question, _ in found}.values()),
        }
        for symbol, found in sorted(places.items(), key=lambda item: item[0].lower())
        if symbol != "torch" and not re.search(r"\._|\.__", symbol)
    ]


def linked(chapters: list[Chapter]) -> dict[str, str]:
    """PyTorch's pages that the chapters' own prose links, by symbol."""
    found: dict[str, str] = {}
    for chapter in chapters:
        for cell in chapter.cells:
            if cell["cell_type"] == "markdown":
                for url in re.findall(r"\((https://docs\.pytorch\.org/docs/[^)\s]+)\)", cell["source"]):
                    symbol = url.partition("#")[2] or url.rpartition("/")[2].removesuffix(".html")
                    if symbol.startswith("torch."):
                        found.setdefault(symbol, url)
    return found


def verification(book: Book) -> dict[str, Any]:
    """Environments, and by chapter how many questions each has proven; what is stale or never ran."""
    environments: dict[str, dict[str, Any]] = {}
    for value in book.evidence.records:
        name = value["environment"]["name"]
        seen = environments.setdefault(name, {**value["environment"], "chapters": {}})
        seen["chapters"] |= value["chapters"]  # a later record of one environment wins, chapter by chapter
    names = {chapter.name for chapter in book.chapters}
    rows = []
    for chapter in book.chapters:
        cells = {}
        for name, environment in environments.items():
            proofs = [
                proof
                for question in chapter.questions
                for proof in book.proofs[chapter.name, question.id]
                if proof.environment["name"] == name
            ]
            if proofs:
                entry = environment["chapters"][chapter.name]
                stale = sum(proof.stale for proof in proofs)
                cells[name] = {
                    "proven": len(proofs) - stale,
                    "stale": stale,
                    "assertions": sum(proof.assertions for proof in proofs),
                    "seconds": entry["seconds"],
                    "started": entry["started"],
                    "commit": (entry["commit"] or "unknown")[:10],
                    "dirty": entry["dirty"],
                }
        rows.append({"chapter": chapter, "cells": cells})
    never = [
        (question, sum("gpu" in tags(c) and not book.evidence.ran_on_gpu(chapter, c) for c in question.code))
        for chapter, question in book.questions()
    ]
    return {
        "environments": environments,
        "rows": rows,
        "stale": [
            (question, proof)
            for chapter, question in book.questions()
            for proof in book.proofs[chapter.name, question.id]
            if proof.stale
        ],
        "gpu": [(question, count) for question, count in never if count],
        "gone": sorted(
            {(e["name"], c) for e in environments.values() for c in e["chapters"] if c not in names}
        ),
        "refused": book.evidence.refused,
    }


def differs(book: Book) -> list[tuple[Question, Statement, list[str]]]:
    """Statements whose cells print something else on another torch of the same kind of device.

    What a measurement or a GPU printed is shown in tabs and not compared.
    """
    found = []
    for chapter, question, statement in book.statements():
        others = set()
        for cell in statement.cells:
            here = notebook.digest(notebook.printed(cell))
            if {"gpu", "measurement"} & set(tags(cell)):
                continue
            for environment, entry in book.evidence.current(chapter, cell):
                same = (environment["device"] == "CPU") == (book.place.device == "CPU")
                if same and entry.get("printed", here) != here:
                    others.add(environment["torch"].split("+")[0])
        if others:
            found.append((question, statement, sorted(others)))
    return found


def history(book: Book) -> list[dict[str, Any]]:
    """What git says about the statements: one entry a day and chapter, newest first."""
    there = {statement.id for _, _, statement in book.statements()}
    titles = {chapter.name: chapter.title for chapter in book.chapters}
    entries = []

    def place(change: Change) -> tuple[str, str]:
        return change["date"], change["chapter"]

    # Sorted, because a day's commits may touch chapters in turn; stable, so the newest stays first.
    for (date, chapter), found in groupby(sorted(changes(book.project), key=place, reverse=True), place):
        kinds: dict[str, list[Change]] = defaultdict(list)
        for change in found:
            kinds[change["kind"]].append({**change, "link": "yes" if change["id"] in there else ""})
        entries.append(
            {
                "date": date,
                "chapter": chapter,
                "title": titles.get(chapter, chapter),
                "kinds": {k: kinds[k] for k in ("overturned", "reworded", "added", "removed") if k in kinds},
            }
        )
    return entries


def data(book: Book) -> dict[str, Any]:
    """`questions.json`: every question with its answer, statements, and where they were proven."""
    return {
        "schema": 1,
        "torch": book.place.torch.split("+")[0],
        "questions": [
            {
                "chapter": chapter.name,
                "id": question.id,
                "also": question.also,
                "level": question.level,
                "question": question.title,
                "short_answer": question.short_answer,
                "url": f"{book.site}chapters/{chapter.name}.html#{question.id}",
                "statements": [{"id": s.id, "text": s.title, "myth": s.myth} for s in question.statements],
                "proofs": [
                    {
                        "torch": proof.torch,
                        "device": proof.device,
                        "started": proof.started,
                        "statements": proof.statements,
                        "assertions": proof.assertions,
                        "stale": proof.stale,
                    }
                    for proof in book.proofs[chapter.name, question.id]
                ],
            }
            for chapter, question in book.questions()
        ],
    }


def badge(book: Book) -> dict[str, Any]:
    """What a README badge shows, in the form that shields.io reads."""
    total = book.total
    message = f"{total['statements']} statements, {total['assertions']} assertions"
    return {"schemaVersion": 1, "label": "executed", "message": message, "color": "blue"}


def twin(chapter: Chapter) -> str:
    """A chapter as plain Markdown, with what its cells printed."""
    return "\n\n".join(part for cell in chapter.cells for part in _parts(cell)) + "\n"


def _parts(cell: Cell) -> Iterator[str]:
    if cell["cell_type"] == "markdown":
        found = heading(cell)
        yield cell["source"] + (f"\n\nPermanent id: {cell['id']}" if found and found[0] == 2 else "")
        return
    yield f"```python\n{cell['source']}\n```"
    if text := notebook.printed(cell).rstrip():
        yield f"```text\n{text}\n```"
    if alt := cell["metadata"].get("mystnb", {}).get("image", {}).get("alt"):
        yield f"Figure: {alt}"


def files(book: Book) -> dict[str, str]:
    """Files beside the pages, by their path in the site; those that a template makes are not here."""
    return {
        "questions.json": dump(data(book)),
        "questions.schema.json": dump(json.loads(SCHEMA.read_text(encoding="utf-8"))),
        "badge.json": dump(badge(book)),
        **{f"chapters/{chapter.name}.md": twin(chapter) for chapter in book.chapters},
    }
