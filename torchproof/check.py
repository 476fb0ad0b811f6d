"""Hold the sources against the contract of a chapter. Each rule has an id, shown in its messages."""

from __future__ import annotations

import functools
import importlib
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchproof import gather, notebook
from torchproof.judge import forbidden
from torchproof.notebook import (
    LEVELS,
    Cell,
    Chapter,
    Notebook,
    Question,
    heading,
    short_answer,
    tags,
)
from torchproof.project import Project, ProjectError, dump, write

CODE_LINES, SCRIPT_LINES, COLUMNS, ANSWER_WORDS, SETUP_LINES = 25, 60, 88, 60, 8
CODE_TAGS = {"parameters", "measurement", "gpu", "predict"}
METADATA = {
    "accelerator": "GPU",
    "colab": {"gpuType": "T4"},
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
}
FIGURE = re.compile(r"\bplt\.(subplots|subplot_mosaic|figure|show)\(")
DIRECTIVE = re.compile(r"(?m)^(?:`{3,}|:{3,})\{|\{[a-z:-]+\}`")
# Empty lines, and those by which a chapter that writes files enters a scratch folder in its setup cell.
SCRATCH = re.compile(r"\s*$|import (os|tempfile)$|\w+ = tempfile\.TemporaryDirectory\(|os\.chdir\(")
PROGRESS_BAR = re.compile(r"\b(?:import|from) (?:tqdm|rich\.progress|progressbar)\b")


@dataclass(frozen=True)
class Problem:
    """A departure from the contract: where, which rule, what to do."""

    chapter: str
    cell: str
    rule: str
    message: str

    def __str__(self) -> str:
        place = f" cell {self.cell}" if self.cell else ""
        return f"chapters/{self.chapter}.ipynb{place}: [{self.rule}] {self.message}"


Finding = tuple[str, str, str]  # cell id, rule, message with the remedy


def check(project: Project, paths: list[Path], *, fix: bool = False) -> list[Problem]:
    """Every problem of the chapters, in order; with `fix`, after mending what can be mended."""
    problems: list[Problem] = []
    sources: dict[Path, Notebook] = {}
    for path in sorted(project.chapters.glob("*.ipynb")):
        if fix and path in paths:
            _fix(project, path)
        try:
            sources[path] = notebook.read(path)
        except ProjectError as error:
            if path in paths:
                problems.append(Problem(path.stem, "", "readable", str(error)))
    chapters = {path: notebook.split(path.stem, source) for path, source in sources.items()}
    anchors = Counter(name for chapter in chapters.values() for name in _anchors(chapter))
    setups = Counter(_setup(chapter) for chapter in chapters.values())
    for path in (path for path in paths if path in chapters):
        chapter = chapters[path]
        problems += [Problem(path.stem, *finding) for finding in _chapter(path, sources[path], chapter)]
        for name in dict.fromkeys(_anchors(chapter)):
            if anchors[name] > 1:
                problems.append(
                    Problem(path.stem, name, "anchor", "this id is another heading's too; choose another")
                )
        if _setup(chapter) != setups.most_common(1)[0][0]:
            message = "but for imports, the setup cell is the same in every chapter; copy another's"
            problems.append(Problem(path.stem, "setup", "opening", message))
    return problems


def _anchors(chapter: Chapter) -> list[str]:
    """Ids under which the site has an address in this chapter, which is one for the whole book."""
    headings = [
        str(cell.get("id")) for cell in chapter.cells if (found := heading(cell)) and found[0] in (2, 3)
    ]
    return headings + [name for question in chapter.questions for name in question.also]


def _chapter(path: Path, source: Notebook, chapter: Chapter) -> Iterator[Finding]:
    """Every finding in one chapter."""
    yield from _format(path, source)
    yield from _ids(chapter)
    yield from _opening(chapter)
    if not chapter.questions:
        yield "", "question", "holds no question; add a cell that begins with `## `"
    for question in chapter.questions:
        yield from _question(question)
    for cell in chapter.cells:
        if cell["cell_type"] == "code":
            yield from _code(cell)
        else:
            yield from _prose(cell)
    yield from _resolves(chapter)


def _resolves(chapter: Chapter) -> Iterator[Finding]:
    """Each `torch` name of a `gpu` cell exists in the installed torch: a run on a CPU would not notice."""
    cells = [cell for cell in chapter.code if "id" in cell]
    try:
        used = gather.symbols(cells)
    except SyntaxError:
        return  # `_code` names it
    for cell in cells:
        for name in sorted(used[cell["id"]]) if "gpu" in tags(cell) else ():
            if not _exists(name):
                yield cell["id"], "resolves", f"the installed torch has no {name}; write a name that it has"


@functools.cache
def _exists(name: str) -> bool:
    """Whether a dotted name can be had by imports and attributes."""
    parts = name.split(".")
    try:
        value = importlib.import_module(parts[0])
    except ImportError:
        return True  # without torch there is nothing to hold the name against
    for number, part in enumerate(parts[1:], 2):
        if not hasattr(value, part):
            try:
                importlib.import_module(".".join(parts[:number]))
            except ImportError:
                return False
        value = getattr(value, part)
    return True


def _format(path: Path, source: Notebook) -> Iterator[Finding]:
    """The file: valid nbformat 4.5, no outputs, the metadata that Colab and Jupyter need."""
    import nbformat

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of missing and double ids; `_ids` names the cells
            nbformat.validate(json.loads(path.read_text(encoding="utf-8")))
    except nbformat.ValidationError as error:
        yield (
            "",
            "valid",
            f"{error.message[:120]}; open and save it in JupyterLab, or restore it from git",
        )
    if (source.get("nbformat"), source.get("nbformat_minor")) != (4, 5):
        yield "", "valid", "must be nbformat 4.5; `check --fix` sets it"
    for name, value in METADATA.items():
        if source["metadata"].get(name) != value:
            yield "", "metadata", f"{name} must be {json.dumps(value)}; `check --fix` sets it"
    for cell in source["cells"]:
        if cell.get("outputs") or cell.get("execution_count"):
            yield (
                cell.get("id", ""),
                "stripped",
                "carries outputs or a count; `check --fix` removes them",
            )


def _ids(chapter: Chapter) -> Iterator[Finding]:
    """Ids are permanent anchors and what outputs are carried by."""
    for number, cell in enumerate(chapter.cells):
        if "id" not in cell:
            yield (
                f"{number} of the file",
                "id",
                "has no id; `check --fix` restores it from git, else write one of words",
            )
        elif not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", cell["id"]) or not re.search(
            "[a-z]{2}", cell["id"]
        ):
            yield (
                cell["id"],
                "id",
                "ids are lower-case words joined by hyphens; a reader sees them in addresses",
            )
    for name, count in Counter(cell.get("id") for cell in chapter.cells).items():
        if name is not None and count > 1:
            yield name, "id", "is used twice; give the newer cell another"


def _opening(chapter: Chapter) -> Iterator[Finding]:
    """Title, parameters cell, setup cell: in this order and nothing else."""
    kinds = [cell["cell_type"] for cell in chapter.opening]
    if kinds[:3] != ["markdown", "code", "code"] or len(kinds) > 3:
        yield (
            "",
            "opening",
            "a chapter opens with a title cell, the parameters cell and the setup cell",
        )
        return
    title, parameters, setup = chapter.opening
    if not (found := heading(title)) or found[0] != 1:
        yield (
            title.get("id", ""),
            "opening",
            "the first cell begins with `# ` and the chapter's title",
        )
    if tags(parameters) != ["parameters"] or not re.match(r'device = "auto"', parameters["source"]):
        yield (
            parameters.get("id", ""),
            "opening",
            'is tagged `parameters` and begins with device = "auto"',
        )
    if len([line for line in setup["source"].splitlines() if not SCRATCH.match(line)]) > SETUP_LINES:
        yield setup.get("id", ""), "opening", f"the setup cell has at most {SETUP_LINES} lines"


def _setup(chapter: Chapter) -> str:
    """The setup cell without imports and without what enters a scratch folder."""
    if len(chapter.opening) < 3:
        return ""
    lines = chapter.opening[2]["source"].splitlines()
    return "\n".join(
        line for line in lines if not re.match(r"import |from ", line) and not SCRATCH.match(line)
    )


def _question(question: Question) -> Iterator[Finding]:
    """A question: its form, its short answer, a proof for every statement."""
    if not question.title.endswith("?"):
        yield question.id, "question", "a question ends with `?`"
    if len([tag for tag in question.tags if tag in LEVELS]) != 1:
        yield question.id, "level", f"has exactly one of the tags {', '.join(LEVELS)}"
    if len(question.also) > 2:
        yield question.id, "also", "answers at most two other questions; split it"
    answer = question.short_answer
    if answer is None:
        yield (
            question.id,
            "short-answer",
            "needs a quotation that begins with **Short answer.** in its own cell",
        )
    elif len(answer.split()) > ANSWER_WORDS:
        yield (
            question.id,
            "short-answer",
            f"has {len(answer.split())} words; cut it to {ANSWER_WORDS}",
        )
    if not question.statements:
        yield question.id, "statement", "has no statement; add a cell that begins with `### `"
    for statement in question.statements:
        if not any(_asserts(cell) for cell in statement.cells):
            yield (
                statement.id,
                "proof",
                "no code cell before the next heading asserts it; add an assertion that can fail",
            )


def _asserts(cell: Cell) -> bool:
    try:
        count = notebook.assertions(cell["source"])
    except SyntaxError:
        return False
    return bool(count.certain or ("gpu" in tags(cell) and count.conditional))


def _code(cell: Cell) -> Iterator[Finding]:
    """A code cell: its size, its tags, its assertions, its figure."""
    name, source = cell.get("id", ""), cell["source"]
    script = source.lstrip().startswith("%%writefile")
    limit = SCRIPT_LINES if script else CODE_LINES
    if (lines := len(source.splitlines())) > limit:
        yield name, "length", f"has {lines} lines; split it, at most {limit}"
    if wide := [n for n, line in enumerate(source.splitlines(), 1) if len(line) > COLUMNS]:
        yield name, "width", f"line {wide[0]} is wider than {COLUMNS} columns; break it"
    for tag in tags(cell):
        if tag not in CODE_TAGS and tag not in ("raises-exception", "skip-execution"):
            yield (
                name,
                "tag",
                f"{tag} is no tag of the contract; known: {', '.join(sorted(CODE_TAGS))}",
            )
    for reason, remedy in forbidden(cell):
        yield name, "forbidden", f"{reason}; {remedy}"
    if script:
        return
    if PROGRESS_BAR.search(source):
        yield name, "forbidden", "draws a progress bar, which dirties the page; print the result"
    try:
        count = notebook.assertions(source)
    except SyntaxError as error:
        yield name, "python", f"line {error.lineno}: {error.msg}"
        return
    for problem in count.problems:
        yield name, "assertion", problem
    if "gpu" in tags(cell) and not count.certain + count.conditional:
        yield (
            name,
            "proof",
            "a gpu cell asserts what it shows, under the `if` that asks for the device",
        )
    if "gpu" in tags(cell) and "not run here" not in source:
        yield name, "gpu", "elsewhere it prints one line that ends with `not run here`"
    if FIGURE.search(source) and not cell["metadata"].get("mystnb", {}).get("image", {}).get("alt"):
        yield name, "alt", "draws a figure: say what it shows in the metadata mystnb.image.alt"


def _prose(cell: Cell) -> Iterator[Finding]:
    """A Markdown cell: headings begin cells, follow-ups fold, nothing only the site understands."""
    name, source = cell.get("id", ""), cell["source"]
    text = re.sub(r"(?ms)^(`{3,})(?!\{).*?^\1\s*$", "", source)
    heads = [match.start() for match in re.finditer(r"(?m)^#{2,3} ", text)]
    if heads and (len(heads) > 1 or heads[0] != 0):
        yield name, "heading", "a question or statement heading begins a cell of its own; split it"
    if re.search(r"(?m)^# ", text) and not text.startswith("# "):
        yield name, "heading", "the chapter has one title, in its first cell"
    if DIRECTIVE.search(source):
        yield name, "commonmark", "a directive or role shows as raw text in Colab; write CommonMark"
    if "**Short answer" in source and short_answer(source) is None:
        yield name, "short-answer", "begins with `> **Short answer.**`"
    for block in re.findall(r"(?s)<details>.*?(?:</details>|\Z)", source):
        if not re.fullmatch(r"<details>\s*<summary>[^<>\n]+</summary>\n\n.+\n\n</details>", block, re.DOTALL):
            yield (
                name,
                "follow-up",
                "write <details><summary>Question?</summary>, empty line, answer, empty line, </details>",
            )


def _fix(project: Project, path: Path) -> None:
    """Strip outputs, set metadata, restore lost ids from git. Never renames an id that is in git."""
    try:
        value: Notebook = json.loads(path.read_text(encoding="utf-8"))
        cells: list[Cell] = value["cells"]
        value["metadata"].update(METADATA)
    except (ValueError, KeyError, TypeError, AttributeError):
        return  # `check` names it
    value["nbformat"], value["nbformat_minor"] = 4, 5
    lost = _lost_ids(project, path, cells)
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
        for noise in ("execution", "collapsed", "ExecuteTime", "outputId", "colab", "papermill"):
            cell["metadata"].pop(noise, None)
        source = "".join(cell["source"])
        cell["source"] = source.splitlines(keepends=True)
        if name := lost.get(_look(cell)):
            # nbformat's own order of keys, so that a restored file is the same bytes as in git.
            cells[number] = {
                "cell_type": cell["cell_type"],
                **{k: v for k, v in cell.items() if k not in ("cell_type", "id")},
                "id": name,
            }
    for noise in ("papermill", "widgets", "torchproof_run"):
        value["metadata"].pop(noise, None)
    write(path, dump(_sorted(value)))


def _sorted(value: Any) -> Any:
    """Keys in order at every level, as nbformat writes them."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _look(cell: Cell) -> tuple[str, str]:
    return cell["cell_type"], "".join(cell["source"])


def _lost_ids(project: Project, path: Path, cells: list[Cell]) -> dict[tuple[str, str], str]:
    """Ids that git knows and the file has lost, by the source of their cells."""
    text = project.git("show", f"HEAD:./{path.relative_to(project.root).as_posix()}")
    if text is None:
        return {}
    try:
        known = json.loads(text)["cells"]
    except (ValueError, KeyError):
        return {}
    present = {cell.get("id") for cell in cells}
    sources = Counter(_look(cell) for cell in known)
    return {
        _look(cell): cell["id"]
        for cell in known
        if cell.get("id") and cell["id"] not in present and sources[_look(cell)] == 1
    }
