"""Whether an executed chapter proves what it says, cell by cell.

papermill's own verdict passes notebooks that stopped half way, and fails those whose errors are
expected, so only what is in the cells counts here.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from torchproof.notebook import Cell, Chapter, python, tags

TEXT_LIMIT = 20_000  # characters a cell may print: about 200 lines, and search indexes all of them
IMAGE_LIMIT = 400_000  # base64 characters of one figure

REMEDIES = {
    "ModuleNotFoundError": "install it, or use what the contract lists: torch, numpy, matplotlib, pytest",
    "StdinNotImplementedError": "no one is there to answer input(); write the value into the cell",
    "AssertionError": "the statement does not hold here: correct the statement or the code",
    "KeyboardInterrupt": "the run was interrupted; start it again",
    "SystemExit": "a chapter must not exit: every later cell would stay unrun; delete the call",
    "CppCompileError": "compiling needs a C++ compiler: install g++ or clang",
    "InvalidCxxCompiler": "compiling needs a C++ compiler: install g++ or clang",
}
FORBIDDEN_TAGS = {
    "raises-exception": "catch the error with pytest.raises(Type, match=...) and print its first line",
    "skip-execution": "every cell of the book runs; delete the tag or the cell",
}
MAGICS = ("%%writefile ", "%config ")


@dataclass(frozen=True)
class Failure:
    """One reason why a chapter does not pass, ready to be printed on one line."""

    chapter: str
    cell: str
    reason: str
    remedy: str
    question: str = ""
    statement: str = ""

    def __str__(self) -> str:
        place = [f"chapters/{self.chapter}.ipynb", self.question, self.statement]
        place += [f"cell {self.cell}" if self.cell else ""]
        return f"{' › '.join(part for part in place if part)}: {self.reason}; {self.remedy}"


@dataclass(frozen=True)
class Stop:
    """Why execution ended before the last cell: where it was, what happened, what to do."""

    cell: str
    reason: str
    remedy: str


def judge(
    source: Chapter,
    executed: list[Cell],
    stop: Stop | None = None,
    private: tuple[str, ...] = (),
    strict: bool = True,
) -> list[Failure]:
    """Why an executed chapter does not pass: one failure a cell, none when it does.

    Args:
        source: the chapter as it was given to the kernel.
        executed: its cells with outputs, matched to the source's by id.
        stop: why the kernel ended early, where it did.
        private: paths of this machine that must not reach a page.
        strict: whether a line on stderr fails the chapter (true for the pinned CPU environment).
    """
    found: dict[str, Failure] = {}

    def fail(cell: str, reason: str, remedy: str) -> None:
        # The first reason is the cause; what follows from it would only hide it.
        found.setdefault(cell, Failure(source.name, cell, reason, remedy, *source.place(cell)))

    if not any("parameters" in tags(cell) for cell in source.code):
        fail(
            "",
            "no cell is tagged `parameters`",
            'add one with device = "auto"; the device cannot be chosen',
        )
    for cell in source.code:
        for reason, remedy in forbidden(cell):
            fail(cell["id"], reason, remedy)
    outputs = {cell["id"]: cell for cell in executed if cell["cell_type"] == "code"}
    unrun = [cell["id"] for cell in source.code if _unrun(cell, outputs)]
    if stop:
        later = [cell for cell in unrun if cell != stop.cell]
        fail(
            stop.cell,
            stop.reason + (f" ({len(later)} later cells did not run)" if later else ""),
            stop.remedy,
        )
    elif unrun:
        rest = f", nor did {len(unrun) - 1} more" if len(unrun) > 1 else ""
        fail(unrun[0], f"did not run{rest}", "find what ended the kernel before it")
    for cell in source.code:
        for reason, remedy in _outputs(outputs.get(cell["id"], cell), private, strict):
            fail(cell["id"], reason, remedy)
    return list(found.values())


def _unrun(cell: Cell, outputs: dict[str, Cell]) -> bool:
    """Whether a code cell with content has no number in the executed notebook."""
    return bool(cell["source"].strip()) and outputs.get(cell["id"], {}).get("execution_count") is None


def forbidden(cell: Cell) -> list[tuple[str, str]]:
    """What a code cell must not contain because it can turn a broken run green: (reason, remedy)."""
    found = [(f"is tagged {tag}", remedy) for tag, remedy in FORBIDDEN_TAGS.items() if tag in tags(cell)]
    source = cell["source"]
    if source.lstrip().startswith("%%writefile "):
        return found
    if re.search(r"(?m)^\s*(?:\w+\s*=\s*)?!", source):
        found.append(("has a shell line, whose failure nobody sees", "use subprocess.run([...], check=True)"))
    for line in re.findall(r"(?m)^\s*(%.*)$", source):
        if not line.startswith(MAGICS):
            found.append((f"uses the magic {line.split()[0]}", "only %%writefile and %config are allowed"))
    try:
        tree = ast.parse(python(source))
    except SyntaxError:
        return found
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for name in sorted(calls & {"sys.exit", "exit", "quit", "os._exit"}):
        found.append((f"calls {name}(), which leaves every later cell unrun", "delete the call"))
    return found


def _outputs(cell: Cell, private: tuple[str, ...], strict: bool) -> list[tuple[str, str]]:
    """What is wrong with the outputs of a cell that ran: (reason, remedy)."""
    found = []
    size = 0
    for output in cell["outputs"]:
        text, images = _content(output)
        size += len(text)
        if output["output_type"] == "error":
            name = output["ename"]
            line = (output["evalue"].strip().splitlines() or [""])[0][:200]
            found.append((f"{name}: {line}" if line else name, REMEDIES.get(name, "mend the cell")))
        elif strict and output.get("name") == "stderr":
            line = (text.strip().splitlines() or [""])[0][:160]
            found.append((f"wrote to stderr: {line}", "catch the warning with pytest.warns, or avoid it"))
        if output["output_type"] != "error" and any(path in text for path in private):
            found.append(("shows a path of this machine", "print the file's name, not its path"))
        if any(len(image) > IMAGE_LIMIT for image in images):
            found.append(
                (
                    f"has a figure over {IMAGE_LIMIT // 1000} kB",
                    "draw fewer points or a smaller figure",
                )
            )
    if size > TEXT_LIMIT:
        found.append((f"printed {size:,} characters; the limit is {TEXT_LIMIT:,}", "print what matters only"))
    return found


def _content(output: Cell) -> tuple[str, list[str]]:
    """Text and images of one output."""
    data = output.get("data", {})
    text = "".join(output.get("text", "")) + "".join(
        "".join(v) for k, v in data.items() if k.startswith("text/")
    )
    return text, ["".join(value) for kind, value in data.items() if kind.startswith("image/")]
