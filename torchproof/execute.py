"""Run chapters by papermill: in parallel, cached, each in a scratch folder of its own.

Reads `chapters/`, writes `_build/executed/<environment>/`: NAME.ipynb for a chapter that passed,
NAME.failed.ipynb for the last run of one that did not. What ran, when and for how long is kept in
the executed notebook, so that a cache hit changes nothing.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torchproof import environment, notebook
from torchproof.judge import Failure, Stop, judge
from torchproof.notebook import Chapter, Notebook
from torchproof.project import Project, ProjectError, dump, write

FORMAT = 1  # raise it when executed notebooks change their form: every chapter then runs again
CHAPTER_LIMITS = 5  # a chapter may last this many times the limit of one cell

Progress = Callable[[str, str, int, int], None]  # chapter, question, number of the cell, cells in all


@dataclass(frozen=True)
class Result:
    """How one chapter ended: "passed", "failed" or "unchanged"."""

    chapter: str
    verdict: str
    cells: int
    seconds: float
    failures: tuple[Failure, ...] = ()


def locate(kernel: str | None, device: str) -> environment.Environment:
    """The environment that a kernel gives.

    Raises:
        ProjectError: the kernel is not installed, its torch is missing, or the device is not there.
    """
    interpreter = None
    if kernel is not None:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

        try:
            interpreter = KernelSpecManager().get_kernel_spec(kernel).argv[0]
        except NoSuchKernel as error:
            raise ProjectError(_no_kernel(kernel)) from error
    try:
        return environment.describe(device, interpreter)
    except RuntimeError as error:
        raise ProjectError(f"kernel {kernel or 'python3'}: {error}") from error


def _no_kernel(name: str) -> str:
    return (
        f"no kernel named {name}; `jupyter kernelspec list` shows those installed, "
        f"`python -m ipykernel install --user --name {name}` in its environment adds one"
    )


def key(chapter: Chapter, place: environment.Environment) -> str:
    """What decides whether a chapter must run again: its code, and where it runs."""
    code = [[cell["id"], cell["source"]] for cell in chapter.code]
    return notebook.digest([FORMAT, code, environment.as_json(place)])


def execute(
    project: Project,
    paths: list[Path],
    place: environment.Environment,
    *,
    kernel: str | None = None,
    jobs: int | None = None,
    timeout: float = 120,
    progress: Progress = lambda *_: None,
    finished: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Run the chapters whose code or environment changed; carry outputs over for the others.

    Args:
        jobs: chapters at once; by default one a core, and one in all on a GPU.
        timeout: seconds a cell may run; a chapter may last five times as long.
        progress: called at the start of each cell: chapter, question, number of the cell, cells in all.
        finished: called as each chapter ends.

    Returns:
        One result a chapter, in the order of `paths`.

    Raises:
        KeyboardInterrupt: after every kernel was ended; chapters that had ended are kept.
    """
    folder = project.executed / place.name
    results: dict[str, Result] = {}
    waiting: list[tuple[float, Chapter, Notebook]] = []
    for path in paths:
        try:
            source = notebook.read(path)
            chapter = notebook.split(path.stem, source)
            _require_ids(chapter)
        except ProjectError as error:
            failure = Failure(path.stem, "", str(error), "then run again")
            results[path.stem] = Result(path.stem, "failed", 0, 0.0, (failure,))
            finished(results[path.stem])
            continue
        before = _previous(folder / path.name)
        run = (before or {}).get("metadata", {}).get("torchproof_run", {})
        if before and run.get("key") == key(chapter, place):
            write(folder / path.name, dump(_carry(source, before)))
            (folder / f"{path.stem}.failed.ipynb").unlink(missing_ok=True)
            results[path.stem] = Result(path.stem, "unchanged", len(chapter.code), run["seconds"])
            finished(results[path.stem])
        else:
            waiting.append((run.get("seconds", float("inf")), chapter, source))
    # The longest first; on a GPU, whose time may be short, those that need one before all others.
    gpu = place.device_type == "cuda"
    waiting.sort(key=lambda item: (gpu and not _needs_gpu(item[1]), -item[0]))
    width = jobs or (1 if place.device_type == "cuda" else os.cpu_count() or 1)
    runner = _Runner(project, folder, place, kernel, timeout, progress)
    together = [item for item in waiting if not item[1].alone]
    groups = [(together, width), *(([item], 1) for item in waiting if item[1].alone)]
    if width == 1:
        groups = [([item], 1) for item in waiting]
    for group, size in groups:
        for result in runner.run([(chapter, source) for _, chapter, source in group], size):
            results[result.chapter] = result
            finished(result)
    return [results[path.stem] for path in paths]


def _needs_gpu(chapter: Chapter) -> bool:
    return any("gpu" in notebook.tags(cell) for cell in chapter.code)


def _require_ids(chapter: Chapter) -> None:
    """Outputs are carried by cell id, so every code cell needs one of its own."""
    ids = [cell.get("id") for cell in chapter.cells]
    double = sorted({str(name) for name in ids if name is not None and ids.count(name) > 1})
    if None in ids or double:
        what = f"cell id used twice: {', '.join(double)}" if double else "a cell has no id"
        raise ProjectError(f"{chapter.name}.ipynb: {what}; `python -m torchproof check --fix {chapter.name}`")


def _previous(path: Path) -> Notebook | None:
    """The last good run of a chapter; a file that cannot be read is none."""
    try:
        return notebook.read(path) if path.exists() else None
    except ProjectError:
        return None


def _carry(source: Notebook, executed: Notebook) -> Notebook:
    """The source with the outputs of an earlier run of the same code."""
    done = {cell["id"]: cell for cell in executed["cells"]}
    cells = []
    for cell in source["cells"]:
        if cell["cell_type"] == "code":
            old = done[cell["id"]]
            cell = {
                **cell,
                **{name: old[name] for name in ("source", "execution_count", "outputs")},
            }
        cells.append(cell)
    run = executed["metadata"]["torchproof_run"]
    return {**source, "cells": cells, "metadata": {**source["metadata"], "torchproof_run": run}}


@dataclass
class _Position:
    """The cell a kernel is at, and how many it has begun."""

    cell: str = ""
    done: int = 0


class _Runner:
    """Executes chapters in threads; knows how to stop all of them."""

    def __init__(
        self,
        project: Project,
        folder: Path,
        place: environment.Environment,
        kernel: str | None,
        timeout: float,
        progress: Progress,
    ) -> None:
        self.project, self.folder, self.place = project, folder, place
        self.kernel, self.timeout, self.progress = kernel, timeout, progress
        self.interrupted = threading.Event()

    def run(self, group: list[tuple[Chapter, Notebook]], width: int) -> Any:
        """Yield the result of each chapter as it ends."""
        if not group:
            return
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
        # A chapter must not see what a reader's machine happens to have configured.
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        for name in (
            "papermill",
            "asyncio",
            "traitlets",
        ):  # what matters reaches us as an exception
            logging.getLogger(name).setLevel(logging.CRITICAL)
        pool = ThreadPoolExecutor(max_workers=width)
        pending: set[Future[Result]] = {pool.submit(self._chapter, *item) for item in group}
        try:
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BaseException:
            self.interrupted.set()
            for future in pending:
                future.cancel()
            while any(not future.done() for future in pending):
                end_children()
                wait(pending, timeout=0.2)
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _chapter(self, chapter: Chapter, source: Notebook) -> Result:
        """Execute one chapter, judge it and keep it."""
        started, clock = datetime.now(UTC), time.monotonic()
        commit, dirty = (
            self.project.git("rev-parse", "HEAD"),
            bool(self.project.git("status", "--porcelain")),
        )
        scratch = Path(tempfile.mkdtemp(prefix="torchproof-"))
        try:
            executed, stop = self._papermill(chapter, source, scratch)
            private = (str(scratch), str(self.project.root), str(Path.home()) + os.sep)
            strict = self.kernel is None and self.place.device_type == "cpu"
            failures = judge(chapter, executed["cells"], stop, private, strict)
            seconds = round(time.monotonic() - clock, 1)
            executed["metadata"]["torchproof_run"] = {
                "key": key(chapter, self.place),
                "started": started.isoformat(timespec="seconds"),
                "seconds": seconds,
                "commit": commit,
                "dirty": dirty,
                "passed": not failures,
            }
            self._keep(chapter.name, executed, not failures)
        except OSError as error:
            reason = f"{type(error).__name__}: {error.strerror or error}"
            failures = [Failure(chapter.name, "", reason, "free disk space or mend the permissions")]
            seconds = round(time.monotonic() - clock, 1)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        verdict = "failed" if failures else "passed"
        return Result(chapter.name, verdict, len(chapter.code), seconds, tuple(failures))

    def _keep(self, name: str, executed: Notebook, passed: bool) -> None:
        """A good run replaces the last good one; a failed one is put beside it."""
        if self.interrupted.is_set():
            return
        failed = self.folder / f"{name}.failed.ipynb"
        write(self.folder / f"{name}.ipynb" if passed else failed, dump(executed))
        if passed:
            failed.unlink(missing_ok=True)

    def _papermill(self, chapter: Chapter, source: Notebook, scratch: Path) -> tuple[Notebook, Stop | None]:
        """Run the cells. What papermill raises becomes a `Stop`; the verdict is the judge's."""
        import nbformat
        import papermill
        from jupyter_client.kernelspec import NoSuchKernel
        from jupyter_client.manager import AsyncKernelManager
        from jupyter_core.utils import ensure_event_loop
        from nbclient.exceptions import CellTimeoutError, DeadKernelError
        from traitlets.config import Config

        class QuietKernelManager(AsyncKernelManager):
            """What a kernel writes to its own terminal is not for ours; cells are captured anyway."""

            async def _async_start_kernel(self, **options: Any) -> None:
                quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                await super()._async_start_kernel(**quiet, **options)

            start_kernel = _async_start_kernel

        deadline = time.monotonic() + CHAPTER_LIMITS * self.timeout
        at = _Position()
        live: list[Any] = []
        total = len(chapter.code)

        def started(cell: Any, cell_index: int) -> None:
            if cell.cell_type == "code" and "injected-parameters" not in cell.metadata.get("tags", []):
                at.cell, at.done = cell.id, at.done + 1
                self.progress(chapter.name, chapter.place(cell.id)[0], at.done, total)

        stop = None
        try:
            papermill.execute_notebook(
                nbformat.from_dict(source),  # type: ignore[no-untyped-call]
                # papermill would validate and write the whole notebook twice a cell.
                None,
                parameters={"device": self.place.device_type} if _has_parameters(chapter) else {},
                kernel_name=self.kernel,
                progress_bar=False,
                start_timeout=120,
                # One limit a cell, and one for what is left of the chapter's.
                timeout_func=lambda _: max(1, min(self.timeout, deadline - time.monotonic())),
                iopub_timeout=60,
                allow_errors=True,
                coalesce_streams=True,
                # Outputs stay in this object when the kernel dies and papermill returns nothing.
                on_notebook_start=lambda notebook: live.append(notebook),
                on_cell_start=started,
                kernel_manager_class=QuietKernelManager,
                # papermill's own `cwd` changes the directory of the whole process, for all threads.
                resources={"metadata": {"path": str(scratch)}},
                # Otherwise ipykernel 7 writes a warning about TCP without encryption.
                config=Config({"KernelManager": {"transport_encryption": "auto"}}),
            )
        except papermill.PapermillExecutionError:
            pass  # an error output: the judge names every one
        except CellTimeoutError:
            stop = Stop(
                at.cell,
                f"timeout: still running after {self.timeout:g} s, or the chapter after "
                f"{CHAPTER_LIMITS * self.timeout:g} s",
                "make it quicker, or raise --timeout",
            )
        except DeadKernelError:
            died = "the run was interrupted" if self.interrupted.is_set() else "the kernel died"
            stop = Stop(at.cell, died, "it was killed, ran out of memory, or ended itself")
        except NoSuchKernel as error:
            stop = Stop("", _no_kernel(error.name).split(";")[0], _no_kernel(error.name).split("; ")[1])
        except OSError:
            raise
        except Exception as error:
            # A broken notebook or kernel must not take the other chapters with it.
            stop = Stop(
                at.cell,
                f"{type(error).__name__}: {error}",
                "mend the notebook or its kernel",
            )
        finally:
            # Jupyter opens an event loop for this thread and never closes it; it opens another when needed.
            ensure_event_loop().close()
        return _clean(source, live[-1].cells if live else [], self.place.device_type), stop


def _has_parameters(chapter: Chapter) -> bool:
    return any("parameters" in notebook.tags(cell) for cell in chapter.code)


def _clean(source: Notebook, executed: list[Any], device: str) -> Notebook:
    """The source's cells with this run's outputs, and nothing of papermill's.

    papermill puts parameters into a cell of its own, and times and paths into the metadata. A page
    must show the parameters that ran, and nothing of the machine: the value goes into the
    parameters cell, cells are numbered as if there had never been another.
    """
    done = {cell.get("id"): cell for cell in executed if cell["cell_type"] == "code"}
    cells, count = [], 0
    for cell in source["cells"]:
        if cell["cell_type"] == "code":
            ran = done.get(cell["id"], {})
            number = None
            if ran.get("execution_count") is not None:
                number = count = count + 1
            outputs = [dict(output) for output in ran.get("outputs", [])]
            for output in outputs:
                if "execution_count" in output:
                    output["execution_count"] = number
            cell = {**cell, "execution_count": number, "outputs": outputs}
            if "parameters" in notebook.tags(cell):
                cell["source"] = re.sub(
                    r"(?m)^device *=[^#\n]*?(?= *#|$)", f'device = "{device}"', cell["source"]
                )
        cells.append(cell)
    metadata = {name: value for name, value in source["metadata"].items() if name != "papermill"}
    return {**source, "cells": cells, "metadata": metadata}


def end_children() -> None:
    """Kill every process that this one started: kernels, and what their cells launched."""
    import psutil

    children = psutil.Process().children(recursive=True)
    for child in children:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(children, timeout=2)
