"""Write the book to render: chapters with their outputs and badges, pages made from the evidence.

Reads `_build/executed/<environment>/`, the evidence and the templates; writes `_build/book/`.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import yaml

from torchproof import notebook, pages
from torchproof.environment import Environment
from torchproof.evidence import Evidence, load
from torchproof.notebook import Cell, Chapter, Notebook, Question, heading, tags
from torchproof.pages import Book
from torchproof.project import Project, ProjectError, dump, write

TEMPLATES = Path(__file__).parent / "templates"


def stage(project: Project, place: Environment) -> Evidence:
    """Write `_build/book/` from this environment's run; returns the evidence that the pages show.

    Raises:
        ProjectError: a chapter of `_toc.yml` has no good run, or a configuration file is wrong.
    """
    config = _config(project)
    templates = _templates(project)
    executed: dict[str, Notebook] = {}
    for name in _listed(project):
        path = project.executed / place.name / f"{name}.ipynb"
        if not path.exists():
            raise ProjectError(
                f"chapters/{name}.ipynb has no good run yet; `python -m torchproof execute {name}`"
            )
        executed[name] = notebook.read(path)
    book = Book(
        project,
        place,
        [notebook.split(name, value) for name, value in executed.items()],
        load(project),
        repository=config["repository"]["url"],
        site=config["html"]["baseurl"],
    )
    written: set[Path] = set()

    def put(path: str, content: str | bytes) -> None:
        write(project.book / path, content)
        written.add(project.book / path)

    for chapter in book.chapters:
        page, figures = _page(book, chapter, executed[chapter.name], templates)
        put(f"chapters/{chapter.name}.ipynb", dump(page))
        for name, figure in figures.items():
            put(f"chapters/{name}", figure)
    for name, content in _made(book, templates).items():
        put(name, content)
    put("_config.yml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    put("_toc.yml", (project.root / "_toc.yml").read_bytes())
    for path in sorted((project.root / "assets").rglob("*")):
        if path.is_file():
            put(str(path.relative_to(project.root)), path.read_bytes())
    _remove_others(project.book, written)
    return book.evidence


def _templates(project: Project) -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES, project.root]),
        autoescape=False,  # the templates write Markdown; what is not ours passes `| e`
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["quote"] = lambda text: quote(text, safe="")
    return templates


def _made(book: Book, templates: jinja2.Environment) -> dict[str, str]:
    """The landing page, the generated pages and the data beside them, by path in the staged book."""
    context: dict[str, Any] = {
        "chapters": book.summaries,
        "total": book.total,
        "evidence": book.evidence,
        "repository": book.repository,
        "site": book.site,
        "torch": book.place.torch.split("+")[0],
        "history": pages.history(book),
        "differs": pages.differs(book),
    }
    contexts: dict[str, dict[str, Any]] = {
        "questions": {},
        "myths": {"myths": pages.myths(book)},
        "errors": {"errors": pages.errors(book)},
        "api": {"api": pages.api(book), "everywhere": pages.EVERYWHERE},
        "verification": pages.verification(book),
        "changes": {},
    }
    made = {
        f"{name}.md": templates.get_template(f"{name}.md.j2").render(**context, **own)
        for name, own in contexts.items()
    }
    made["index.md"] = templates.get_template("index.md").render(**context)
    for name in ("changes.xml", "llms.txt"):
        made[f"extra/{name}"] = templates.get_template(f"{name}.j2").render(**context)
    return made | {f"extra/{name}": content for name, content in pages.files(book).items()}


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
        config["repository"]["url"], config["html"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ProjectError(
            f"_config.yml: {type(error).__name__}: {error}; it must name html and repository: url"
        ) from error
    url = config["repository"]["url"] = _repository(project) or config["repository"]["url"]
    # Where a repository's pages are by default; what a feed, a sitemap and data need as an absolute address.
    owner, name = url.rstrip("/").split("/")[-2:]
    site = os.environ.get("TORCHPROOF_SITE") or f"https://{owner}.github.io/{name}"
    config["html"]["baseurl"] = site.rstrip("/") + "/"
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
    book: Book, chapter: Chapter, executed: Notebook, templates: jinja2.Environment
) -> tuple[Notebook, dict[str, bytes]]:
    """One chapter as it is rendered: anchors, badges, tabs and notes added, nothing of the run's metadata.

    Returns:
        The notebook, and the figures of other environments by their path beside it.
    """
    questions = {question.id: question for question in chapter.questions}
    cells: list[Cell] = []
    figures: dict[str, bytes] = {}
    colab = book.repository.replace("https://github.com/", "https://colab.research.google.com/github/")
    colab = f"{colab}/blob/main/chapters/{chapter.name}.ipynb"

    def add(cell: Cell, source: str) -> None:
        name = f"{cell['id'][:58]}-note"
        cells.append({"cell_type": "markdown", "id": name, "metadata": {}, "source": source.strip()})

    for cell in chapter.cells:
        kept = {
            **cell,
            "metadata": {k: v for k, v in cell["metadata"].items() if k in ("tags", "mystnb")},
        }
        found = heading(cell)
        if found and found[0] == 3:
            kept["source"] = f"({cell['id']})=\n{cell['source']}"
        if found and found[0] == 2:
            kept["source"] = _question(book, chapter, questions[cell["id"]], cell, templates)
        if "predict" in tags(cell):
            kept["metadata"]["tags"] = [*tags(cell), "hide-output"]
        cells.append(kept)
        if cell["cell_type"] == "code" and {"gpu", "measurement"} & set(tags(cell)):
            tabs = _tabs(book, chapter, cell, figures)
            if len(tabs) > 1:
                kept["outputs"] = []
                alt = cell["metadata"].get("mystnb", {}).get("image", {}).get("alt", "")
                add(cell, templates.get_template("tabs.md.j2").render(tabs=tabs, alt=" ".join(alt.split())))
            if "gpu" in tags(cell) and not book.evidence.ran_on_gpu(chapter, cell):
                add(cell, templates.get_template("not-on-gpu.md.j2").render(colab=colab))
    metadata = {
        name: executed["metadata"][name]
        for name in ("kernelspec", "language_info")
        if name in executed["metadata"]
    }
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, figures


def _question(
    book: Book, chapter: Chapter, question: Question, cell: Cell, templates: jinja2.Environment
) -> str:
    """Source of a question's cell with its anchors and its badge."""
    first, _, rest = cell["source"].partition("\n")
    badge = templates.get_template("badge.md.j2").render(
        chapter=chapter,
        question=question,
        proofs=book.proofs[chapter.name, question.id],
        gpu=any("gpu" in tags(c) for c in question.code),
        repository=book.repository,
    )
    anchors = "".join(f"({name})=\n" for name in [cell["id"], *question.also])
    return f"{anchors}{first}\n\n{badge.strip()}\n\n{rest.strip()}"


def _tabs(book: Book, chapter: Chapter, cell: Cell, figures: dict[str, bytes]) -> list[dict[str, Any]]:
    """What a measurement or GPU cell showed in each environment; this run comes first.

    A GPU cell says on every CPU only that it did not run, so one CPU is enough.
    """
    shown = [(book.place.name, book.place.device, book.place.torch, "this run", cell["outputs"])]
    for environment, entry in book.evidence.current(chapter, cell):
        other = environment["name"] != book.place.name
        if other and not ("gpu" in tags(cell) and environment["device"] == book.place.device):
            started = book.evidence.started(environment["name"], chapter.name)
            outputs = entry.get("outputs", [])
            shown.append((environment["name"], environment["device"], environment["torch"], started, outputs))
    devices = [device for _, device, *_ in shown]
    tabs = []
    for name, device, torch, date, outputs in shown:
        short = torch.split("+")[0]
        label = f"{device}, torch {short}" if devices.count(device) > 1 else device
        parts = list(_parts(outputs, f"outputs/{chapter.name}-{cell['id']}-{name}", figures))
        tabs.append({"label": label, "torch": short, "date": date, "parts": parts})
    return tabs


def _parts(outputs: list[Cell], name: str, figures: dict[str, bytes]) -> Iterator[tuple[str, str]]:
    """Text, HTML and figures of a cell's outputs; figures are put into `figures`."""
    for number, output in enumerate(outputs):
        data = output.get("data", {})
        if "text" in output:
            yield "text", re.sub(r"\x1b\[[0-9;]*m", "", "".join(output["text"])).rstrip("\n")
        elif "image/png" in data:
            path = f"{name}-{number}.png"
            figures[path] = base64.b64decode("".join(data["image/png"]))
            yield "image", path
        elif "text/html" in data:
            yield "html", "".join(data["text/html"])
        elif "text/plain" in data:
            yield "text", "".join(data["text/plain"])


def _remove_others(folder: Path, written: set[Path]) -> None:
    """Delete what an earlier run staged and this one did not."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and path not in written:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            shutil.rmtree(path)
