"""Other torch versions: an environment for each list in `environments/`, made once, outside the checkout.

The first line of a list, `# python 3.13`, names the Python; the other lines are pinned packages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from torchproof.project import Project, ProjectError

ON_DISK = 2.0  # unpacked, an environment takes about twice its download: 5.0 GB for 2.6 GB with CUDA


@dataclass(frozen=True)
class Version:
    """One environment: the list it is made from, and where it lies."""

    name: str
    list: Path
    folder: Path

    @property
    def ready(self) -> bool:
        """Whether the environment was made from the list as it is now."""
        try:
            return (self.folder / "made-from.txt").read_bytes() == self.list.read_bytes()
        except OSError:
            return False

    @property
    def python(self) -> str:
        """Version of Python that the list asks for.

        Raises:
            ProjectError: the list does not say.
        """
        match = re.match(r"# python (3\.\d+)\n", self.list.read_text(encoding="utf-8"))
        if not match:
            raise ProjectError(f"environments/{self.list.name}: its first line must be like `# python 3.13`")
        return match[1]


def versions(project: Project, names: list[str]) -> list[Version]:
    """The environments asked for, or all.

    Raises:
        ProjectError: a name has no list in `environments/`.
    """
    home = os.environ.get("TORCHPROOF_ENVIRONMENTS") or platformdirs.user_cache_path("torchproof")
    lists = {path.stem: path for path in sorted((project.root / "environments").glob("*.txt"))}
    for name in names:
        if name not in lists:
            raise ProjectError(f"environments/{name}.txt does not exist; there are: {', '.join(lists)}")
    return [
        Version(name, path, Path(home) / name) for name, path in lists.items() if not names or name in names
    ]


def announce(version: Version) -> str:
    """One line on what making an environment will fetch and take."""
    if version.ready:
        return f"{version.name}: is there already, in {version.folder}"
    size = _download(version)
    told = (
        f"fetches up to {size / 1e9:.1f} GB and takes about {ON_DISK * size / 1e9:.1f} GB"
        if size
        else "its size could not be asked for"
    )
    folder = version.folder
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return f"{version.name}: {told} in {version.folder}; {free / 1e9:.0f} GB are free"


def _download(version: Version) -> int:
    """Bytes of all wheels of an environment as the package index tells them; 0 when it does not."""
    done = subprocess.run(
        [*_uv(), "pip", "compile", "--quiet", "--format", "pylock.toml", "--python-version", version.python,
         str(version.list)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    try:
        packages = tomllib.loads(done.stdout)["packages"]
    except (tomllib.TOMLDecodeError, KeyError):
        return 0
    return sum(max((wheel.get("size", 0) for wheel in p.get("wheels", [])), default=0) for p in packages)


def make(version: Version) -> None:
    """Make an environment, with a kernel of its name; nothing to do when it is there already.

    Raises:
        ProjectError: Python or a package cannot be had.
    """
    if not version.ready:
        shutil.rmtree(version.folder, ignore_errors=True)
        python = str(version.folder / "bin" / "python")
        for command in (
            [*_uv(), "venv", "--quiet", "--python", _python(version.python), str(version.folder)],
            [*_uv(), "pip", "install", "--quiet", "--python", python, "-r", str(version.list)],
            [
                str(python),
                "-m",
                "ipykernel",
                "install",
                "--prefix",
                str(version.folder),
                "--name",
                version.name,
            ],
        ):
            _call(version, command)
        shutil.copy(version.list, version.folder / "made-from.txt")
    os.environ["JUPYTER_PATH"] = str(version.folder / "share" / "jupyter")


def _python(version: str) -> str:
    """Path of a Python that pyenv has, or its version for uv to find or fetch.

    uv stops at pyenv's shims, which refuse every version that is not switched on.
    """
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = sorted(home.glob(f"versions/{version}.*/bin/python"))
    return str(found[-1]) if found else version


def _call(version: Version, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        said = " ".join(line.strip(" ×╰─▶│") for line in lines[-4:])
        raise ProjectError(f"environments/{version.list.name}: the environment was not made: {said}")


def _uv() -> list[str]:
    return [sys.executable, "-m", "uv"]
