"""Where a chapter runs: torch, Python, packages and device, told without importing torch.

Also run as a script by the Python of another kernel, so it uses the standard library only.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass

# What can change an output: the packages chapters use and those that format what a cell shows.
PACKAGES = [
    "torch",
    "numpy",
    "matplotlib",
    "pytest",
    "ipykernel",
    "ipython",
    "matplotlib-inline",
    "onnx",
    "onnxscript",
    "onnxruntime",
]


@dataclass(frozen=True)
class Environment:
    """One place where chapters ran. `device` is a name such as "CPU" or "NVIDIA H200"."""

    torch: str
    python: str
    device: str
    cuda: str | None
    os: str
    packages: dict[str, str]

    @property
    def device_type(self) -> str:
        """The value of the `device` parameter: "cpu" or "cuda"."""
        return "cpu" if self.device == "CPU" else "cuda"

    @property
    def name(self) -> str:
        """File name of the environment's record, such as `cpu-torch-2.13.0` or `h200-torch-2.11.0`."""
        device = re.sub(r"[^a-z0-9]+", "-", self.device.lower().removeprefix("nvidia ")).strip("-")
        return f"{device}-torch-{self.torch.split('+')[0]}"


def installed() -> dict[str, str]:
    """Versions of the run-time packages that this interpreter has."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def facts() -> dict[str, object]:
    """What this interpreter is, as JSON."""
    cuda = None
    try:
        distribution = importlib.metadata.distribution("torch")
        text = distribution.read_text("../torch/version.py") or ""
        match = re.search(r"^cuda(?::[^=]*)? = '([^']+)'", text, re.MULTILINE)
        cuda = match[1] if match else None
    except importlib.metadata.PackageNotFoundError:
        pass
    return {
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.machine()}",
        "cuda": cuda,
        "packages": installed(),
    }


def gpu() -> str | None:
    """Name of the first NVIDIA GPU that the driver lists, or None."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    done = subprocess.run(
        [command, "--query-gpu=name", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None


def describe(device: str, python: str | None = None) -> Environment:
    """The environment that a kernel of this interpreter, or of the one at `python`, gives.

    Args:
        device: "auto" (a GPU where torch and the driver have one), "cpu" or "cuda".
        python: path of the kernel's interpreter; None means the running one.

    Raises:
        RuntimeError: torch is missing, or CUDA was asked for and is not there.
    """
    if python is None:
        told = facts()
    else:
        done = subprocess.run([python, __file__], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the kernel's interpreter does not start: {done.stderr.strip()[-200:]}")
        told = json.loads(done.stdout)
    packages = told["packages"]
    assert isinstance(packages, dict)
    if "torch" not in packages:
        raise RuntimeError("torch is not installed there; `pip install -r requirements.txt`")
    name = gpu() if device != "cpu" and told["cuda"] else None
    if device == "cuda" and name is None:
        why = "no NVIDIA driver lists a GPU" if told["cuda"] else "this torch is built without CUDA"
        raise RuntimeError(f"--device cuda: {why}; use --device cpu")
    return Environment(
        torch=packages["torch"],
        python=str(told["python"]),
        device=name or "CPU",
        cuda=str(told["cuda"]) if name else None,
        os=str(told["os"]),
        packages=packages,
    )


def as_json(environment: Environment) -> dict[str, object]:
    """The environment as it is written into a record."""
    return asdict(environment)


if __name__ == "__main__":
    json.dump(facts(), sys.stdout)
