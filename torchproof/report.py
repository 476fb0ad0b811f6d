"""What a person sees while chapters run: live progress in a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from torchproof.environment import Environment
from torchproof.execute import Result


class Report:
    """Shows progress between `with` and its end, then a table and one line per failing cell."""

    def __init__(self, place: Environment, begun: Callable[[], None]) -> None:
        self.place = place
        self.begun = begun  # called once, when a first cell runs
        self.console = Console(highlight=False, soft_wrap=True)
        columns = ("[bold]{task.description}", "{task.fields[question]}")
        self.live = Progress(
            TextColumn(columns[0]),
            BarColumn(bar_width=20),
            TextColumn("cell {task.completed} of {task.total}"),
            TimeElapsedColumn(),
            TextColumn(columns[1], style="dim"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.tasks: dict[str, TaskID] = {}
        self.guard = threading.Lock()  # chapters report from threads of their own

    def __enter__(self) -> Report:
        self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.live.stop()

    def cell(self, chapter: str, question: str, number: int, total: int) -> None:
        """A cell begins."""
        with self.guard:
            self.begun()
            self.begun = lambda: None
            if chapter not in self.tasks:
                self.tasks[chapter] = self.live.add_task(chapter, total=total, question="")
                if not self.console.is_terminal:
                    print(
                        f"{chapter}: running {total} cells on torch {self.place.torch}, {self.place.device}",
                        flush=True,
                    )
            self.live.update(self.tasks[chapter], completed=number, question=question)

    def chapter(self, result: Result) -> None:
        """A chapter ends."""
        with self.guard:
            if result.chapter in self.tasks:
                self.live.remove_task(self.tasks.pop(result.chapter))
            if not self.console.is_terminal and result.verdict != "unchanged":
                print(f"{result.chapter}: {result.verdict} after {result.seconds:.1f} s", flush=True)

    def summary(self, results: list[Result]) -> None:
        """The table of a run and what failed, one line a cell."""
        if all(result.verdict == "unchanged" for result in results):
            print(f"{len(results)} chapter{'s' if len(results) != 1 else ''} unchanged")
            return
        title = f"torch {self.place.torch}, Python {self.place.python}, {self.place.device}"
        table = Table("chapter", "verdict", "cells", "seconds", title=title, title_justify="left")
        for result in results:
            style = {"passed": "green", "failed": "red"}.get(result.verdict, "")
            table.add_row(
                result.chapter,
                f"[{style}]{result.verdict}" if style else result.verdict,
                str(result.cells),
                f"{result.seconds:.1f}",
            )
        self.console.print(table)
        for result in results:
            for failure in result.failures:
                print(failure)
