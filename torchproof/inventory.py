"""PyTorch's own list of its documentation pages, when there is one at hand.

`make inventory` fetches it for the torch that runs. No page needs it: without one, names stay
plain.
"""

from __future__ import annotations

from pathlib import Path

from torchproof.project import Project, ProjectError


def version(torch: str) -> str:
    """The documentation's version of a torch, such as 2.13 for 2.13.0+cpu."""
    return ".".join(torch.split(".")[:2])


def base(torch: str) -> str:
    """Address of the documentation of this very torch."""
    return f"https://docs.pytorch.org/docs/{version(torch)}/"


def path(project: Project, torch: str) -> Path:
    """Where the inventory of a torch is kept."""
    return project.build / f"torch-{version(torch)}.inv"


def load(project: Project, torch: str) -> dict[str, str]:
    """Addresses of PyTorch's pages by symbol; empty without an inventory.

    Raises:
        ProjectError: the file is there and is no inventory.
    """
    file = path(project, torch)
    if not file.exists():
        return {}
    from sphinx.util.inventory import InventoryFile

    try:
        with file.open("rb") as stream:
            found = InventoryFile.load(stream, base(torch), lambda a, b: a + b)
    except (ValueError, OSError) as error:
        raise ProjectError(
            f"{file.name}: no inventory ({error}); delete it and run `make inventory`"
        ) from error
    return {
        name: entry[2]
        for domain, entries in found.items()
        if domain.startswith("py:")
        for name, entry in entries.items()
    }
