"""What the book has stated, and since when: its statements in git, commit by commit.

Reads the history of `chapters/`; what is known of it is kept in `_build/changes.json`, so that a
build reads only the commits that are new.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from torchproof import notebook
from torchproof.project import Project, ProjectError, dump, write

FORMAT = 1
Change = dict[str, str]
State = dict[str, dict[str, str]]  # chapter, id of a statement, its title


def changes(project: Project) -> list[Change]:
    """Statements added, reworded, overturned and removed, newest first.

    A statement is overturned when its heading becomes a myth, or stops being one. Each change has
    date, commit, chapter, id, kind, title and, where it had another, before. Empty where git or its
    history is absent.
    """
    head = project.git("rev-parse", "HEAD")
    if head is None or project.git("rev-parse", "--show-prefix") is None:
        return []
    cache = project.build / "changes.json"
    known = _known(cache, project)
    if known["head"] != head:
        since = [f"{known['head']}.."] if known["head"] else []
        # The names of commits and files, oldest first; merges show nothing of their own.
        log = project.git(
            "log", "--reverse", "--no-merges", "--format=%x00%H %cs", "--name-only", "--relative",
            *since, "--", "chapters/*.ipynb",
        )  # fmt: skip
        for entry in (log or "").split("\0")[1:]:
            first, *files = entry.split("\n")
            commit, date = first.split()
            _commit(project, known, commit, date, [file for file in files if file])
        known["head"] = head
        write(cache, dump(known))
    found: list[Change] = known["changes"]
    return found[::-1]


def _known(cache: Any, project: Project) -> dict[str, Any]:
    """What an earlier build found, when the history still contains it."""
    empty: dict[str, Any] = {"format": FORMAT, "head": None, "state": {}, "changes": []}
    try:
        value: dict[str, Any] = json.loads(cache.read_text(encoding="utf-8"))
        value["state"], value["changes"]
        same = value["format"] == FORMAT and value["head"]
    except (OSError, ValueError, KeyError, TypeError):
        return empty
    if not same or project.git("merge-base", "--is-ancestor", value["head"], "HEAD") is None:
        return empty
    return value


def _commit(project: Project, known: dict[str, Any], commit: str, date: str, files: list[str]) -> None:
    """Add to `known` what one commit changed."""
    state: State = known["state"]
    for file in files:
        name = file.removeprefix("chapters/").removesuffix(".ipynb")
        after = _statements(project, commit, file)
        if after is None:
            continue
        before = state.get(name, {})
        for id_, title in after.items():
            if before.get(id_) == title:
                continue
            change = {"date": date, "commit": commit, "chapter": name, "id": id_, "title": title}
            if id_ in before:
                turned = title.startswith("Myth:") != before[id_].startswith("Myth:")
                change.update(kind="overturned" if turned else "reworded", before=before[id_])
            else:
                change["kind"] = "added"
            known["changes"].append(change)
        for id_ in before.keys() - after.keys():
            known["changes"].append(
                {"date": date, "commit": commit, "chapter": name, "id": id_, "title": before[id_]}
                | {"kind": "removed"}
            )
        state[name] = after


def _statements(project: Project, commit: str, file: str) -> dict[str, str] | None:
    """Titles of a chapter's statements at a commit, by id; None where it was no notebook then."""
    done = subprocess.run(
        ["git", "show", f"{commit}:./{file}"], cwd=project.root, capture_output=True, check=False
    )
    if done.returncode:
        return {}  # the commit deleted it
    try:
        chapter = notebook.split(file, notebook.parse(done.stdout.decode(), file))
    except (ProjectError, UnicodeDecodeError):
        return None
    return {s.id: s.title for question in chapter.questions for s in question.statements}
