"""The generated pages, their data, and the tabs, made from the fixture book."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import ROOT, copy_book
from test_build import ENVIRONMENT

from torchproof import inventory
from torchproof.evidence import collect
from torchproof.execute import execute, locate
from torchproof.project import Project, ProjectError
from torchproof.stage import stage


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The fixture book, executed once; tests copy what they change."""
    project = copy_book(tmp_path_factory.mktemp("pages") / "book")
    place = locate(None, "cpu")
    assert not any(result.failures for result in execute(project, project.select([]), place))
    collect(project, place)
    return project


@pytest.fixture
def project(executed: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy that a test may change."""
    monkeypatch.setenv("TORCHPROOF_REPOSITORY", "https://github.com/me/book")
    shutil.copytree(executed.root, tmp_path / "book")
    return Project(tmp_path / "book")


def _staged(project: Project) -> dict[str, str]:
    """Text of every staged page and data file."""
    stage(project, locate(None, "cpu"))
    paths = [
        *project.book.glob("*.md"),
        *project.book.glob("extra/**/*"),
        *project.book.glob("chapters/*.ipynb"),
    ]
    return {str(path.relative_to(project.book)): path.read_text() for path in paths if path.is_file()}


def _record(project: Project, name: str, torch: str, device: str, **changes: Any) -> None:
    """Another environment's record: this run's with another name, and changed entries of cells."""
    value = json.loads((project.run_evidence / f"{locate(None, 'cpu').name}.json").read_text())
    value["environment"].update(name=name, torch=torch, device=device)
    for entry in value["chapters"].values():
        for cell in entry["cells"]:
            cell.update(changes.get(cell["id"].replace("-", "_"), {}))
    project.evidence.mkdir(exist_ok=True)
    (project.evidence / f"{name}.json").write_text(json.dumps(value))


def test_questions_myths_errors_and_api(project: Project) -> None:
    pages = _staged(project)
    assert "3 questions" in pages["questions.md"]
    assert "[What does adding two tensors give?](#what-adds)" in pages["questions.md"]
    assert "A new tensor, element by element." in pages["questions.md"]
    assert re.search(
        r"\*\*You may hear:\*\* adding changes the first operand\n+"
        r"\*\*What is true:\*\* Addition returns a new tensor\.\n",
        pages["myths.md"],
    )
    assert "The size of tensor a (2) must match the size of tensor b (3)" in pages["errors.md"]
    assert "[Shapes that do not match are an error](#multiplies-wrong-shape)" in pages["errors.md"]
    assert re.search(
        r"torch\.linspace <span.*\n+- \[The sum of two lines is a line\]\(#draws-line\)", pages["api.md"]
    )


def test_an_error_shows_how_each_version_words_it(project: Project) -> None:
    other = [
        {"type": "RuntimeError", "match": "must match the size", "message": "a must match the size of b"}
    ]
    _record(project, "cpu-torch-2.11.0", "2.11.0", "CPU", multiplies_wrong_shape_code={"errors": other})
    assert "On torch 2.11.0:\n\n````text\na must match the size of b" in _staged(project)["errors.md"]


def test_pytorch_pages_come_from_the_chapters_and_the_inventory(project: Project) -> None:
    assert "PyTorch's own page" not in _staged(project)["api.md"]
    path = project.executed / locate(None, "cpu").name / "first.ipynb"
    link = "[linspace](https://docs.pytorch.org/docs/stable/generated/torch.linspace.html)"
    path.write_text(path.read_text().replace("It scrolls inside", f"See {link}. It scrolls inside"))
    assert "https://docs.pytorch.org/docs/stable/generated/torch.linspace.html" in _staged(project)["api.md"]
    shutil.copy(ROOT / "tests" / "torch.inv", inventory.path(project, locate(None, "cpu").torch))
    version = inventory.version(locate(None, "cpu").torch)
    assert f"https://docs.pytorch.org/docs/{version}/generated/torch.ones.html" in _staged(project)["api.md"]
    inventory.path(project, locate(None, "cpu").torch).write_text("<html>")
    with pytest.raises(ProjectError, match="no inventory"):
        stage(project, locate(None, "cpu"))


def test_verification_names_what_is_stale_and_what_never_ran_on_a_gpu(project: Project) -> None:
    page = _staged(project)["verification.md"]
    assert "2 of 2; 6 assertions" in page and "Nothing is stale." in page
    assert "- [What does a figure of it look like?](#what-draws): 1 cell\n" in page
    _record(project, "cpu-torch-2.11.0", "2.11.0", "CPU", adds_elements_code={"hash": "0" * 16})
    page = _staged(project)["verification.md"]
    assert "1 of 2, 1 stale; 5 assertions" in page
    assert "(#what-adds): its code has changed since it ran on torch 2.11.0, CPU" in page


def test_records_that_do_not_count_are_named(project: Project) -> None:
    value = json.loads((project.run_evidence / f"{locate(None, 'cpu').name}.json").read_text())
    value["chapters"]["renamed"] = value["chapters"]["first"]
    project.evidence.mkdir()
    (project.evidence / "a.json").write_text(json.dumps(value))  # a second record of this environment
    (project.evidence / "b.json").write_text("{")
    page = _staged(project)["verification.md"]
    assert "has a record of the chapter `renamed`, which the book does not have" in page
    assert "- b.json: not a record of ours" in page
    assert page.count("\n| `cpu-torch-") == 1


def test_no_evidence_at_all(project: Project) -> None:
    shutil.rmtree(project.run_evidence)
    pages = _staged(project)
    assert "nothing has run yet" in pages["verification.md"]
    assert "Proven on nothing yet; last run never" in pages["index.md"]
    assert "Not yet run anywhere" in pages["chapters/first.ipynb"]


def test_what_differs_on_another_torch_is_named(project: Project) -> None:
    _record(project, "cpu-torch-2.15.0", "2.15.0", "CPU", adds_elements_code={"printed": "0" * 16})
    pages = _staged(project)
    for name in ("changes.md", "verification.md"):
        assert "[Addition works element by element](#adds-elements)" in pages[name]
        assert "2.15.0" in pages[name]


def test_outputs_of_each_environment_stand_in_tabs(project: Project) -> None:
    assert "tab-set" not in _staged(project)["chapters/first.ipynb"]
    _record(project, "cpu-torch-2.11.0", "2.11.0", "CPU")
    page = _staged(project)["chapters/first.ipynb"]
    assert page.count("{tab-set}") == 1  # a CPU says of a gpu cell only that it did not run
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    ran = [
        {"output_type": "stream", "name": "stdout", "text": "total = tensor([2., 2.], device='cuda:0')\n"},
        {"output_type": "display_data", "data": {"image/png": png}, "metadata": {}},
        {"output_type": "execute_result", "data": {"text/html": "<b>2</b>"}, "metadata": {}},
        {"output_type": "execute_result", "data": {"text/plain": "plain"}, "metadata": {}},
    ]
    _record(
        project,
        "h200-torch-2.13.0",
        "2.13.0",
        "NVIDIA H200",
        draws_gpu_code={"outputs": ran, "assertions": 1},
    )
    page = _staged(project)["chapters/first.ipynb"]
    assert page.count("{tab-set}") == 2
    assert "{tab-item} NVIDIA H200" in page and "device='cuda:0'" in page
    assert "<b>2</b>" in page and "plain" in page
    assert "not run on a GPU yet" not in page
    assert len(list(project.book.glob("chapters/outputs/*.png"))) == 1
    command = [sys.executable, "-m", "torchproof", "build", "--device", "cpu"]
    done = subprocess.run(
        command, cwd=project.root, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    html = (project.html / "chapters" / "first.html").read_text()
    assert html.count('class="sd-tab-set') == 2 and "NVIDIA H200" in html


def test_removing_an_assertion_lowers_the_count_on_the_page(project: Project) -> None:
    assert "3 assertions" in _staged(project)["chapters/first.ipynb"]
    path = project.chapters / "first.ipynb"
    path.write_text(path.read_text().replace("\\nassert result is not a", ""))
    path.write_text(re.sub(r',\s*"assert result is not a"', "", path.read_text()))
    place = locate(None, "cpu")
    execute(project, project.select([]), place)
    collect(project, place)
    page = _staged(project)["chapters/first.ipynb"]
    assert "2 of 2 statements, 2 assertions" in page and "2 of 2 statements, 3 assertions" not in page


def test_the_data_has_its_schema_and_the_same_numbers(project: Project) -> None:
    pages = _staged(project)
    data = json.loads(pages["extra/questions.json"])
    jsonschema.Draft202012Validator(json.loads(pages["extra/questions.schema.json"])).validate(data)
    proofs = [question["proofs"][0] for question in data["questions"]]
    total = sum(proof["assertions"] for proof in proofs)
    assert f"<dd>{total}</dd>" in pages["index.md"]
    assert json.loads(pages["extra/badge.json"])["message"] == (
        f"{sum(p['statements'] for p in proofs)} statements, {total} assertions"
    )
    assert f"{total} assertions that ran" in pages["extra/llms.txt"]
    assert data["questions"][0]["url"] == "https://me.github.io/book/chapters/first.html#what-adds"


def test_the_markdown_twin_holds_code_and_output(project: Project) -> None:
    twin = _staged(project)["extra/chapters/first.md"]
    assert "## What does adding two tensors give?" in twin
    assert "```python\na, b = torch.tensor" in twin
    assert "```text\na + b = tensor([4., 6.])\n```" in twin
    assert "Figure: A straight line from (0, 0) to (1, 2)." in twin


def test_the_feed_is_atom(project: Project) -> None:
    root = ElementTree.fromstring(_staged(project)["extra/changes.xml"])
    assert root.tag == "{http://www.w3.org/2005/Atom}feed"
