"""The judge, by table: what a cell holds after a run, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import notebook

from torchproof.judge import Stop, judge
from torchproof.notebook import split

PRINTED = {"output_type": "stream", "name": "stdout", "text": "1\n"}
STDERR = {"output_type": "stream", "name": "stderr", "text": "careful\n"}
ERROR = {"output_type": "error", "ename": "ValueError", "evalue": "no\nmore", "traceback": []}
PATH = {"output_type": "stream", "name": "stdout", "text": "/home/me/book\n"}
FLOOD = {"output_type": "stream", "name": "stdout", "text": "x" * 20_001}
FIGURE = {"output_type": "display_data", "data": {"image/png": "x" * 400_001}, "metadata": {}}


def _judge(
    code: str,
    outputs: list[dict[str, Any]],
    count: int | None = 2,
    tags: str = "",
    stop: Stop | None = None,
    strict: bool = True,
) -> list[str]:
    value = notebook(code, tags={0: tags})
    source = split("chapter", value)
    for number, cell in enumerate(cell for cell in value["cells"] if cell["cell_type"] == "code"):
        cell["execution_count"] = 1 if number == 0 else count
    value["cells"][-1]["outputs"] = outputs
    found = judge(source, value["cells"], stop, ("/home/me",), strict)
    assert all(failure.remedy for failure in found)
    return [str(failure) for failure in found]


@pytest.mark.parametrize(
    ("code", "outputs", "said"),
    [
        ("print(1)", [PRINTED], None),
        ("f()", [ERROR], "ValueError: no;"),
        ("f()", [STDERR], "wrote to stderr: careful;"),
        ("f()", [PATH], "shows a path of this machine"),
        ("f()", [FLOOD], "printed 20,001 characters"),
        ("f()", [FIGURE], "has a figure over 400 kB"),
        ("!ls", [], "has a shell line"),
        ("x = !ls", [], "has a shell line"),
        ("assert not x != 1", [], None),
        ("%%bash\nls", [], "uses the magic %%bash"),
        ("%time f()", [], "uses the magic %time"),
        ("%%writefile a.py\nimport sys\nsys.exit(1)", [], None),
        ("%config X.y = 1", [], None),
        ("import sys\nsys.exit(0)", [], "calls sys.exit()"),
    ],
)
def test_one_cell(code: str, outputs: list[dict[str, Any]], said: str | None) -> None:
    found = _judge(code, outputs)
    if said is None:
        assert found == []
    else:
        assert len(found) == 1
        assert found[0].startswith("chapters/chapter.ipynb › Does it hold? › cell cell-0: ")
        assert said in found[0]


def test_a_cell_that_did_not_run_fails() -> None:
    assert "did not run" in _judge("f()", [], count=None)[0]


@pytest.mark.parametrize("tag", ["raises-exception", "skip-execution"])
def test_tags_that_hide_an_error_are_refused(tag: str) -> None:
    assert f"is tagged {tag}" in _judge("f()", [ERROR], tags=tag)[0]
    assert f"is tagged {tag}" in _judge("f()", [PRINTED], tags=tag)[0]


def test_a_stop_is_the_cause_and_hides_what_follows() -> None:
    found = _judge("f()", [ERROR], count=None, stop=Stop("cell-0", "timeout", "raise it"))
    assert found == ["chapters/chapter.ipynb › Does it hold? › cell cell-0: timeout; raise it"]


def test_stderr_is_allowed_outside_the_pinned_environment() -> None:
    assert _judge("f()", [STDERR], strict=False) == []
    assert _judge("f()", [ERROR], strict=False) != []


def test_a_chapter_without_parameters_cannot_choose_its_device() -> None:
    value = notebook("print(1)")
    value["cells"] = [cell for cell in value["cells"] if cell["id"] != "parameters"]
    for cell in value["cells"]:
        cell["execution_count"] = 1
    assert "no cell is tagged `parameters`" in str(judge(split("chapter", value), value["cells"])[0])
