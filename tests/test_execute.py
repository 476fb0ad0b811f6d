"""Running chapters: verdicts of real kernels, the cache, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import ROOT, notebook

from torchproof import environment
from torchproof import execute as module
from torchproof.execute import Result, execute, key, locate
from torchproof.project import Project, ProjectError, write

Put = Callable[[str, dict[str, Any]], Path]

# The traps that were met in the field (shared/trap-notebooks/traps), each as its smallest notebook:
# cells, tags, and the one line that the judge must say; None passes.
AFTER = "print('after')"
TRAPS: dict[str, tuple[list[str], dict[int, str], str | None]] = {
    "bang-fails": (["!exit 3"], {}, "cell-0: has a shell line"),
    "bigmem": (["x = bytearray(256 * 1024**2)\nprint(len(x))"], {}, None),
    "cwd": (["import os\nprint(os.getcwd())\nopen('made.txt', 'w').close()"], {}, "cell-0: shows a path"),
    "error": (["1/0", AFTER, "[][1]"], {}, "cell-0: ZeroDivisionError: division by zero"),
    "exit0": (["import os", "os._exit(0)", AFTER], {}, "cell-1: calls os._exit()"),
    "hang": (["import time\ntime.sleep(3600)", AFTER], {}, "cell-0: timeout: still running after 6 s"),
    "hang-c": (["import ctypes\nctypes.PyDLL(None).sleep(3600)", AFTER], {}, "cell-0: timeout"),
    "ignore-sigint": (
        ["import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(3600)", AFTER],
        {},
        "cell-0: timeout",
    ),
    "kill": (
        ["print(1)", "import os\nos.kill(os.getpid(), 9)", AFTER],
        {},
        "cell-1: the kernel died (1 later",
    ),
    "lines": (["for i in range(30_000): print('line', i)"], {}, "cell-0: printed"),
    "magic-fails": (["%%bash\nfalse"], {}, "cell-0: uses the magic %%bash"),
    "orphan": (["import subprocess\np = subprocess.Popen(['sleep', '987'])"], {}, None),
    "raises-but-ok": (["print(1)"], {0: "raises-exception"}, "cell-0: is tagged raises-exception"),
    "skip": (["1/0", AFTER], {0: "skip-execution"}, "cell-0: is tagged skip-execution"),
    "stderr": (["import warnings\nwarnings.warn('careful')"], {}, "cell-0: wrote to stderr"),
    "stderr-c": (["import os\nos.write(2, b'raw\\n')"], {}, "cell-0: wrote to stderr: raw"),
    "stdin": (["input('name? ')"], {}, "cell-0: StdinNotImplementedError"),
    "stdin-sub": (
        ["import subprocess\nprint(subprocess.run(['cat'], check=True, capture_output=True).stdout)"],
        {},
        None,
    ),
    "sysexit": (["import sys\nsys.exit(0)", AFTER], {}, "cell-0: calls sys.exit()"),
    "sysexit-hidden": (["raise SystemExit(0)", AFTER], {}, "cell-0: SystemExit: 0"),
    "thread": (
        ["import threading\nt = threading.Thread(target=print, args=(1,))\nt.start()\nt.join()"],
        {},
        None,
    ),
    "tqdm": (
        ["import sys\nfor i in range(3): print(i, file=sys.stderr, end='\\r')"],
        {},
        "cell-0: wrote to stderr",
    ),
}


def _run(project: Project, **options: Any) -> dict[str, Result]:
    place = locate(None, "cpu")
    return {r.chapter: r for r in execute(project, project.select([]), place, **options)}


def test_every_trap_gets_its_verdict(project: Project, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    # A kernel that sees this variable does not capture what C code writes to file descriptor 2.
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    for name, (cells, tags, _) in TRAPS.items():
        put(name, notebook(*cells, tags=tags))
    put("badkernel", notebook("print(1)", kernel="nosuch"))
    put("broken", notebook())
    (project.chapters / "broken.ipynb").write_text("{")
    results = _run(project, timeout=6)
    for name, (_, _, said) in TRAPS.items():
        lines = [str(failure) for failure in results[name].failures]
        if said is None:
            assert (results[name].verdict, lines) == ("passed", [])
        else:
            assert results[name].verdict == "failed", name
            assert said in lines[0], lines
            assert lines[0].startswith(f"chapters/{name}.ipynb › Does it hold? › cell ")
    assert "no kernel named nosuch" in str(results["badkernel"].failures[0])
    assert "cannot be read as a notebook" in str(results["broken"].failures[0])
    # Execution went on after the first error, and both are named.
    assert ["ZeroDivisionError" in str(f) or "IndexError" in str(f) for f in results["error"].failures] == [
        True
    ] * 2
    # What a cell left running ended with its kernel; what it wrote is gone with its folder.
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "987"]]
    assert not list(project.root.rglob("made.txt"))
    folder = project.executed / locate(None, "cpu").name
    assert (folder / "error.failed.ipynb").exists() and not (folder / "error.ipynb").exists()


def test_cache(project: Project, put: Put) -> None:
    put("a", notebook("print(device)"))
    put("b", notebook("x = 1", "print(x)"))
    assert {r.verdict for r in _run(project).values()} == {"passed"}
    folder = project.executed / locate(None, "cpu").name
    before = (folder / "b.ipynb").read_bytes()
    assert {r.verdict for r in _run(project).values()} == {"unchanged"}
    assert (folder / "b.ipynb").read_bytes() == before
    # Prose: nothing runs, the outputs are carried over to the new text.
    value = notebook("x = 1", "print(x)")
    value["cells"][0]["source"] = "# Another title"
    put("b", value)
    assert {r.verdict for r in _run(project).values()} == {"unchanged"}
    executed = json.loads((folder / "b.ipynb").read_text())
    assert executed["cells"][0]["source"] == "# Another title"
    assert (
        executed["cells"][-1]["outputs"][0]["text"] == ["1\n"]
        or executed["cells"][-1]["outputs"][0]["text"] == "1\n"
    )
    # Code: that chapter alone runs; when it fails, the last good run stays beside the failed one.
    put("b", notebook("x = 1", "print(x, undefined)"))
    results = _run(project)
    assert (results["a"].verdict, results["b"].verdict) == ("unchanged", "failed")
    assert (folder / "b.ipynb").exists() and (folder / "b.failed.ipynb").exists()
    # The good code again: its last good run counts, the failed one is gone.
    put("b", notebook("x = 1", "print(x)"))
    assert _run(project)["b"].verdict == "unchanged"
    assert not (folder / "b.failed.ipynb").exists()
    # A damaged result is no result.
    (folder / "a.ipynb").write_text("{")
    assert _run(project)["a"].verdict == "passed"


@pytest.mark.parametrize("change", ["torch", "python", "device", "packages"])
def test_another_environment_is_another_key(change: str) -> None:
    from dataclasses import replace

    from torchproof.notebook import split

    chapter = split("a", notebook("print(1)"))
    here = locate(None, "cpu")
    other: Any = {"packages": {**here.packages, "numpy": "0"}}.get(change, "another")
    assert key(chapter, here) != key(chapter, replace(here, **{change: other}))
    assert key(chapter, here) == key(chapter, replace(here))


def test_the_parameters_that_ran_are_shown_and_nothing_of_the_machine(project: Project, put: Put) -> None:
    put("a", notebook("print(device)"))
    _run(project)
    text = (project.executed / locate(None, "cpu").name / "a.ipynb").read_text()
    cells = {cell["id"]: cell for cell in json.loads(text)["cells"]}
    assert list(cells) == ["title", "parameters", "question", "cell-0"]
    assert "".join(cells["parameters"]["source"]) == 'device = "cpu"'
    assert [cells[name]["execution_count"] for name in ("parameters", "cell-0")] == [1, 2]
    assert "papermill" not in text and str(project.root) not in text and "torchproof-" not in text


def test_a_chapter_alone_shares_the_machine_with_no_other(project: Project, put: Put) -> None:
    for name in ("a", "b", "c"):
        value = notebook("import time\ntime.sleep(0.5)")
        value["metadata"]["torchproof"] = {"alone": name == "c"}
        put(name, value)
    running: set[str] = set()
    together: set[frozenset[str]] = set()

    def cell(chapter: str, *_: object) -> None:
        running.add(chapter)
        together.add(frozenset(running))

    _run(project, jobs=2, progress=cell, finished=lambda result: running.discard(result.chapter))
    assert frozenset({"c"}) in together
    assert not any("c" in group and len(group) > 1 for group in together)


@pytest.mark.parametrize(
    ("kernel", "device", "said"),
    [
        ("nosuch", "auto", "no kernel named nosuch; `jupyter kernelspec list`"),
        (None, "cuda", "--device cuda: .*; use --device cpu"),
    ],
)
def test_what_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, kernel: str | None, device: str, said: str
) -> None:
    monkeypatch.setattr(environment, "gpu", lambda: None)
    with pytest.raises(ProjectError, match=said):
        locate(kernel, device)


def _children_of_kernels() -> list[int]:
    return [
        p.pid for p in psutil.process_iter(["cmdline"]) if "ipykernel_launcher" in (p.info["cmdline"] or [])
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_leaves_no_kernel_and_keeps_what_was_done(
    project: Project, put: Put, number: signal.Signals
) -> None:
    put("quick", notebook("print(1)"))
    put("slow", notebook("import time\ntime.sleep(300)"))
    kernels = set(_children_of_kernels())
    command = [sys.executable, "-m", "torchproof", "execute"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=project.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        folder = project.executed / locate(None, "cpu").name
        deadline = time.monotonic() + 60
        while not ((folder / "quick.ipynb").exists() and set(_children_of_kernels()) - kernels):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        running.send_signal(number)
        _, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert errors.strip() == "interrupted: what had finished is kept; run the command again to go on"
    deadline = time.monotonic() + 10
    while set(_children_of_kernels()) - kernels:
        assert time.monotonic() < deadline, "a kernel is still running"
        time.sleep(0.1)
    assert sorted(path.name for path in folder.iterdir()) == ["quick.ipynb"]


def test_a_full_disk_is_named_and_the_other_chapter_runs(
    project: Project, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a", notebook("print(1)"))
    put("b", notebook("print(2)"))

    def full(path: Path, content: str | bytes) -> bool:
        if path.name == "a.ipynb":
            raise OSError(28, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(module, "write", full)
    results = _run(project)
    assert "No space left on device; free disk space" in str(results["a"].failures[0])
    assert results["b"].verdict == "passed"
