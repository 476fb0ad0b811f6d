"""The command line: `python -m torchproof execute|build|check|record|versions`."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from torchproof import evidence
from torchproof.environment import Environment
from torchproof.execute import Result, execute, locate
from torchproof.project import Project, ProjectError
from torchproof.report import Report
from torchproof.stage import stage

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

# jsonschema, which nbformat imports, would build a grammar for internationalised addresses: it takes longer
# than all other imports together, and no notebook needs it. jsonschema does without where it is absent.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

INTERRUPTED = 130  # the status typer gives to KeyboardInterrupt

Chapters = Annotated[list[str] | None, typer.Argument(help="Names of chapters; all when none is given.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="auto|cpu|cuda")]
Kernel = Annotated[str | None, typer.Option(help="An installed kernel, for another torch or Python.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Chapters at once. Default: one a core; one on a GPU.")]
Timeout = Annotated[
    float,
    typer.Option(min=1, help="Seconds a cell may run; a chapter may last five times as long."),
]


def _run(
    project: Project,
    names: list[str] | None,
    device: str,
    kernel: str | None,
    jobs: int | None,
    timeout: float,
    begun: Callable[[], None] = lambda: None,
) -> tuple[Environment, list[Result]]:
    """Execute chapters, write this run's evidence and report what happened."""
    if device not in ("auto", "cpu", "cuda"):
        raise ProjectError(f"--device {device}: choose auto, cpu or cuda")
    place = locate(kernel, device)
    paths = project.select(names or [])

    def finished(result: Result) -> None:
        report.chapter(result)
        if result.verdict != "unchanged":
            # Each chapter's record is written as it ends: what a GPU showed must survive the next chapter.
            evidence.collect(project, place, [result.chapter])

    with Report(place, begun) as report:
        results = execute(
            project,
            paths,
            place,
            kernel=kernel,
            jobs=jobs,
            timeout=timeout,
            progress=report.cell,
            finished=finished,
        )
    evidence.collect(project, place)
    report.summary(results)
    return place, results


@app.command("execute")
def execute_command(
    chapters: Chapters = None,
    device: Device = "auto",
    kernel: Kernel = None,
    jobs: Jobs = None,
    timeout: Timeout = 120,
) -> None:
    """Run the chapters that changed and write down what they proved."""
    project = Project(Path.cwd())
    with project.lock():
        _, results = _run(project, chapters, device, kernel, jobs, timeout)
    raise typer.Exit(any(result.failures for result in results))


@app.command()
def build(device: Device = "auto", kernel: Kernel = None, jobs: Jobs = None, timeout: Timeout = 120) -> None:
    """Execute what changed, then render the site into _build/html."""
    from torchproof.render import render, warm

    project = Project(Path.cwd())
    started = time.monotonic()
    with project.lock():
        place, results = _run(project, None, device, kernel, jobs, timeout, warm)
        if any(result.failures for result in results):
            for line in evidence.held(project, results):
                print(line, file=sys.stderr)
            print("the site was not built: a chapter did not pass", file=sys.stderr)
            raise typer.Exit(1)
        for refused in stage(project, place).refused:
            print(f"evidence/{refused}", file=sys.stderr)
        rendered = render(project)
    what = "rendered" if rendered else "nothing changed"
    print(f"{what} in {time.monotonic() - started:.1f} s: {(project.html / 'index.html').as_uri()}")


@app.command()
def check(
    chapters: Chapters = None,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended without you.")] = False,
) -> None:
    """Hold the sources against the contract of a chapter."""
    from torchproof.check import check as find

    project = Project(Path.cwd())
    problems = find(project, project.select(chapters or []), fix=fix)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problem{'s' if len(problems) != 1 else ''}")
    raise typer.Exit(bool(problems))


@app.command()
def record(
    names: Annotated[
        list[str] | None, typer.Argument(help="Environments, such as h200-torch-2.13.0; all of this run's.")
    ] = None,
) -> None:
    """Keep this run's records of environments in evidence/."""
    project = Project(Path.cwd())
    for name in names or sorted(path.stem for path in project.run_evidence.glob("*.json")):
        print(evidence.record(project, name).relative_to(project.root))


@app.command("versions")
def versions_command(
    names: Annotated[
        list[str] | None, typer.Argument(help="Lists in environments/; all and the pin.")
    ] = None,
    jobs: Jobs = None,
    timeout: Timeout = 120,
) -> None:
    """Run the book on the pin and on each torch of environments/, and keep the records."""
    from torchproof import versions

    project = Project(Path.cwd())
    wanted = versions.versions(project, names or [])
    for version in wanted:
        print(versions.announce(version), flush=True)
    failed = []
    with project.lock():
        runs: list[versions.Version | None] = [*wanted, *([] if names else [None])]  # None is the pin
        for run in runs:
            try:
                if run:
                    versions.make(run)
                place, results = _run(project, None, "cpu", run.name if run else None, jobs, timeout)
                if any(result.failures for result in results):
                    raise ProjectError(f"{place.name}: a chapter did not pass; nothing was recorded")
                print(evidence.record(project, place.name).relative_to(project.root))
            except ProjectError as error:
                print(error, file=sys.stderr)
                failed.append(run.name if run else "the pin")
    if failed:
        print(f"did not hold or could not run: {', '.join(failed)}", file=sys.stderr)
    raise typer.Exit(bool(failed))


def _terminate(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends a run as Ctrl-C does: kernels are ended, finished chapters are kept."""
    raise KeyboardInterrupt


def main() -> int:
    """Run the command line; every error a person can mend becomes one message and status 1."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        status = int(app(standalone_mode=False) or 0)
        if status == INTERRUPTED:
            print("interrupted: what had finished is kept; run the command again to go on", file=sys.stderr)
        return status
    except ProjectError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(
            f"{error.filename or 'file'}: {error.strerror or error}; free space or mend permissions",
            file=sys.stderr,
        )
    except Exception as error:
        # typer's own errors for wrong options carry a message and a status.
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        return int(getattr(error, "exit_code", 2))
    return 1


if __name__ == "__main__":
    sys.exit(main())
