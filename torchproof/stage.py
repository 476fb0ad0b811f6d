"""Write the book to render: chapters with their outputs and badges, pages made from the evidence.

Reads `_build/executed/<environment>/`, the evidence and the templates; writes `_build/book/`.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import yaml

from torchproof import notebook
from torchproof.environment import Environment
from torchproof.evidence import Evidence, load
from torchproof.notebook import Cell, Chapter, Notebook, heading, tags
from torchproof.project import Project, ProjectError, dump, write

TEMPLATES = Path(__file__).parent / "templates"


def stage(project: Project, place: Environment) -> Evidence:
    """Write `_build/book/` from this environment's run; returns the evidence that the pages show.

    Raises:
        ProjectError: a chapter of `_toc.yml` has no good run, or a configuration file is wrong.
    """
    evidence = load(project)
    config = _config(project)
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES, project.root]),
        autoescape=False,  # the templates write Markdown; what is not ours passes `| e`
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["quote"] = lambda text: quote(text, safe="")
    names = _listed(project)
    chapters: list[Chapter] = []
    written: set[Path] = set()

    def put(path: Path, content: str | bytes) -> None:
        write(path, content)
        written.add(path)

    for name in names:
        path = project.executed / place.name / f"{name}.ipynb"
        if not path.exists():
            raise ProjectError(
                f"chapters/{name}.ipynb has no good run yet; `python -m torchproof execute {name}`"
            )
        executed = notebook.read(path)
        chapter = notebook.split(name, executed)
        chapters.append(chapter)
        page = _page(chapter, executed, evidence, templates, config["repository"]["url"])
        put(project.book / "chapters" / f"{name}.ipynb", dump(page))
    pages = [_summary(chapter, evidence) for chapter in chapters]
    put(
        project.book / "index.md",
        templates.get_template("index.md").render(
            chapters=pages,
            evidence=evidence,
            total=_total(pages),
            repository=config["repository"]["url"],
        ),
    )
    put(project.book / "_config.yml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    put(project.book / "_toc.yml", (project.root / "_toc.yml").read_bytes())
    for path in sorted((project.root / "assets").rglob("*")):
        if path.is_file():
            put(
                project.book / "assets" / path.relative_to(project.root / "assets"),
                path.read_bytes(),
            )
    _remove_others(project.book, written)
    return evidence


def _listed(project: Project) -> list[str]:
    """Names of the chapters in `_toc.yml`, which must list every notebook.

    Raises:
        ProjectError: a chapter is missing on either side, or the file cannot be read.
    """
    try:
        toc = yaml.safe_load((project.root / "_toc.yml").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ProjectError(f"_toc.yml cannot be read: {error}") from error
    listed = re.findall(r"chapters/([\w-]+)", str(toc))
    there = [path.stem for path in project.select([])]
    for name in there:
        if name not in listed:
            raise ProjectError(f"_toc.yml does not list chapters/{name}; add `- file: chapters/{name}`")
    for name in listed:
        if name not in there:
            raise ProjectError(f"_toc.yml lists chapters/{name}, which does not exist; remove the line")
    return listed


def _config(project: Project) -> dict[str, Any]:
    """`_config.yml` with the address of the repository that this checkout belongs to."""
    try:
        config: dict[str, Any] = yaml.safe_load((project.root / "_config.yml").read_text(encoding="utf-8"))
        config["repository"]["url"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ProjectError(
            f"_config.yml: {type(error).__name__}: {error}; it must name repository: url"
        ) from error
    config["repository"]["url"] = _repository(project) or config["repository"]["url"]
    return config


def _repository(project: Project) -> str | None:
    """Address from TORCHPROOF_REPOSITORY, the CI provider or the git remote, when it is a web one."""
    if found := os.environ.get("TORCHPROOF_REPOSITORY"):
        return found.rstrip("/")
    if found := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{found}"
    remote = project.git("remote", "get-url", "origin") or ""
    match = re.fullmatch(
        r"(?:https://(?:[^@/]+@)?|git@|ssh://git@)([\w.-]+)[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?",
        remote,
    )
    return f"https://{match[1]}/{match[2]}" if match else None


def _page(
    chapter: Chapter,
    executed: Notebook,
    evidence: Evidence,
    templates: jinja2.Environment,
    repository: str,
) -> Notebook:
    """One chapter as it is rendered: anchors, badges and notes added, nothing of the run's metadata."""
    questions = {question.id: question for question in chapter.questions}
    cells: list[Cell] = []
    colab = repository.replace("https://github.com/", "https://colab.research.google.com/github/")
    colab = f"{colab}/blob/main/chapters/{chapter.name}.ipynb"
    for cell in chapter.cells:
        kept = {
            **cell,
            "metadata": {k: v for k, v in cell["metadata"].items() if k in ("tags", "mystnb")},
        }
        found = heading(cell)
        if found and found[0] in (2, 3):
            kept["source"] = f"({cell['id']})=\n{cell['source']}"
        if found and found[0] == 2:
            question = questions[cell["id"]]
            first, _, rest = cell["source"].partition("\n")
            badge = templates.get_template("badge.md.j2").render(
                chapter=chapter,
                question=question,
                proofs=evidence.proofs(chapter, question),
                gpu=any("gpu" in tags(c) for c in question.code),
                repository=repository,
            )
            anchors = "".join(f"({name})=\n" for name in [cell["id"], *question.also])
            kept["source"] = f"{anchors}{first}\n\n{badge.strip()}\n\n{rest.strip()}"
        if "predict" in tags(cell):
            kept["metadata"]["tags"] = [*tags(cell), "hide-output"]
        cells.append(kept)
        if cell["cell_type"] == "code" and "gpu" in tags(cell) and not evidence.ran_on_gpu(chapter, cell):
            note = templates.get_template("not-on-gpu.md.j2").render(colab=colab)
            cells.append(
                {
                    "cell_type": "markdown",
                    "id": f"{cell['id'][:58]}-note",
                    "metadata": {},
                    "source": note.strip(),
                }
            )
    metadata = {
        name: executed["metadata"][name]
        for name in ("kernelspec", "language_info")
        if name in executed["metadata"]
    }
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _summary(chapter: Chapter, evidence: Evidence) -> dict[str, Any]:
    """The numbers of one chapter, from the evidence."""
    proofs = {question.id: evidence.proofs(chapter, question) for question in chapter.questions}
    current = [proof for found in proofs.values() for proof in found if not proof.stale]
    return {
        "name": chapter.name,
        "title": chapter.title,
        "questions": chapter.questions,
        "statements": sum(max((p.statements for p in found), default=0) for found in proofs.values()),
        "myths": sum(s.myth for question in chapter.questions for s in question.statements),
        "assertions": sum(max((p.assertions for p in found), default=0) for found in proofs.values()),
        "environments": {(proof.torch, proof.device) for proof in current},
        "date": max((proof.date for proof in current), default=None),
    }


def _total(pages: list[dict[str, Any]]) -> dict[str, Any]:
    """The book's numbers: the sums of the chapters'."""
    return {
        "questions": sum(len(page["questions"]) for page in pages),
        "statements": sum(page["statements"] for page in pages),
        "myths": sum(page["myths"] for page in pages),
        "assertions": sum(page["assertions"] for page in pages),
        "environments": sorted({place for page in pages for place in page["environments"]}),
        "date": max((page["date"] for page in pages if page["date"]), default=None),
    }


def _remove_others(folder: Path, written: set[Path]) -> None:
    """Delete what an earlier run staged and this one did not."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and path not in written:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            shutil.rmtree(path)
