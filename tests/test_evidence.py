"""Records: what is written, what counts, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import ROOT

from torchproof import evidence, notebook
from torchproof.evidence import collect, load, record
from torchproof.execute import execute, locate
from torchproof.project import Project, ProjectError


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The fixture book, executed once; tests copy what they change."""
    from conftest import copy_book

    project = copy_book(tmp_path_factory.mktemp("evidence") / "book")
    place = locate(None, "cpu")
    assert not any(result.failures for result in execute(project, project.select([]), place))
    collect(project, place)
    return project


@pytest.fixture
def project(executed: Project, tmp_path: Path) -> Project:
    """A copy that a test may change."""
    import shutil

    shutil.copytree(executed.root, tmp_path / "book")
    return Project(tmp_path / "book")


def _file(project: Project) -> Path:
    return project.run_evidence / f"{locate(None, 'cpu').name}.json"


def _value(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_file(project).read_text())
    return found


def test_a_record_says_what_ran_where(project: Project) -> None:
    value = _value(project)
    assert value["environment"]["device"] == "CPU"
    first = value["chapters"]["first"]
    assert first["passed"] and first["device"] == "cpu" and first["seconds"] > 0
    cells = {cell["id"]: cell for cell in first["cells"]}
    assert {cell["outcome"] for cell in first["cells"]} == {"passed"}
    assert [cells[n]["assertions"] for n in ("setup", "adds-elements-code", "adds-myth-code")] == [0, 1, 2]
    # A gpu cell that did nothing has asserted nothing; its output and a measurement's are kept.
    assert cells["draws-gpu-code"]["assertions"] == 0
    assert {name for name, cell in cells.items() if "outputs" in cell} == {
        "draws-gpu-code",
        "draws-time-code",
    }


def test_records_have_the_form_of_the_schema(project: Project) -> None:
    validator = jsonschema.Draft202012Validator(
        json.loads((ROOT / "torchproof" / "evidence.schema.json").read_text())
    )
    validator.check_schema(validator.schema)
    kept = sorted((ROOT / "evidence").glob("*.json"))
    for path in [_file(project), *kept]:
        assert [error.message for error in validator.iter_errors(json.loads(path.read_text()))] == []
    broken = _value(project)
    broken["chapters"]["first"]["cells"][0]["assertions"] = "2"
    assert not validator.is_valid(broken)


def test_the_same_run_gives_the_same_record(project: Project) -> None:
    before = _file(project).read_bytes()
    place = locate(None, "cpu")
    execute(project, project.select([]), place)
    collect(project, place)
    assert _file(project).read_bytes() == before


def _change(project: Project, name: str) -> notebook.Chapter:
    source = notebook.read(project.executed / locate(None, "cpu").name / "first.ipynb")
    for cell in source["cells"]:
        if cell["id"] == name:
            cell["source"] += "\n# changed"
    return notebook.split("first", source)


@pytest.mark.parametrize(
    ("change", "stale", "assertions"),
    [
        ("nothing", [False, False], [3, 3]),
        ("adds-elements-code", [True, False], [0, 3]),
        ("adds-myth-code", [True, False], [1, 3]),
        ("setup", [True, True], [0, 0]),
        ("adds-elements", [False, False], [3, 3]),
    ],
)
def test_a_record_counts_while_the_hash_is_equal(
    project: Project, change: str, stale: list[bool], assertions: list[int]
) -> None:
    chapter = _change(project, change)
    found = [load(project).proofs(chapter, question) for question in chapter.questions]
    assert [[proof.stale for proof in proofs] for proofs in found] == [[value] for value in stale]
    assert [proofs[0].assertions for proofs in found] == assertions


def test_no_evidence_proves_nothing(project: Project) -> None:
    _file(project).unlink()
    chapter = _change(project, "nothing")
    assert load(project).proofs(chapter, chapter.questions[0]) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a record of ours (JSONDecodeError"),
        ('{"schema": 99}', "written in form 99, this version reads form 1"),
        ('{"schema": 1}', "not a record of ours (KeyError"),
        ("[]", "not a record of ours (TypeError"),
    ],
)
def test_a_file_that_is_no_record_is_refused_by_name_and_the_rest_is_used(
    project: Project, text: str, said: str
) -> None:
    project.evidence.mkdir()
    (project.evidence / "bad.json").write_text(text)
    found = load(project)
    assert len(found.records) == 1
    assert len(found.refused) == 1
    assert found.refused[0].startswith("bad.json: ") and said in found.refused[0]


def test_record_keeps_a_good_run(project: Project) -> None:
    name = locate(None, "cpu").name
    assert record(project, name).read_bytes() == _file(project).read_bytes()
    # Kept and fresh records of one environment are one proof, not two.
    chapter = _change(project, "nothing")
    assert len(load(project).proofs(chapter, chapter.questions[0])) == 1


def test_record_refuses_a_failed_run_and_an_unknown_name(project: Project) -> None:
    value = _value(project)
    value["chapters"]["first"]["passed"] = False
    _file(project).write_text(json.dumps(value))
    with pytest.raises(ProjectError, match="first did not pass"):
        record(project, locate(None, "cpu").name)
    with pytest.raises(ProjectError, match=r"nosuch\.json: no such record"):
        record(project, "nosuch")


def test_a_gpu_record_proves_the_very_cell(project: Project) -> None:
    chapter = _change(project, "nothing")
    (cell,) = (cell for cell in chapter.code if cell["id"] == "draws-gpu-code")
    assert not load(project).ran_on_gpu(chapter, cell)
    value = _value(project)
    value["environment"].update(device="NVIDIA H200", name="h200-torch-2.13.0")
    (project.run_evidence / "h200-torch-2.13.0.json").write_text(json.dumps(value))
    assert load(project).ran_on_gpu(chapter, cell)
    cell["source"] += "\n# changed"
    assert not load(project).ran_on_gpu(chapter, cell)


def test_a_failed_cell_is_recorded_as_such(project: Project) -> None:
    path = project.chapters / "second.ipynb"
    text = path.read_text().replace("torch.zeros(2))", "torch.ones(2))")
    path.write_text(text)
    place = locate(None, "cpu")
    execute(project, project.select([]), place)
    chapter = collect(project, place)["chapters"]["second"]
    assert not chapter["passed"]
    outcomes = {cell["id"]: cell["outcome"] for cell in chapter["cells"]}
    assert outcomes["multiplies-zero-code"] == "failed"
    assert outcomes["multiplies-wrong-shape-code"] == "passed"
    assert evidence.SCHEMA == 1
