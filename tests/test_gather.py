"""What code cells show without being told: symbols and expected errors."""

from __future__ import annotations

import pytest
from conftest import cell

from torchproof.gather import errors, symbols


def _ran(source: str, printed: str = "") -> dict[str, object]:
    made = cell(source, "a-cell")
    made["outputs"] = [{"output_type": "stream", "name": "stdout", "text": printed}]
    return made


def test_symbols_follow_the_imports_of_the_cells_above() -> None:
    setup = cell("import torch\nfrom torch import nn\nimport numpy as np", "setup")
    use = cell(
        "import torch.nn.functional as F\nfrom torch.utils.data import DataLoader as Loader\n"
        "y = F.relu(nn.Linear(2, 2)(torch.ones(2))).sum()\nLoader([1])\nnp.ones(2)",
        "use",
    )
    found = symbols([setup, use])
    assert found["use"] == {
        "torch.nn.functional.relu",
        "torch.nn.Linear",
        "torch.ones",
        "torch.utils.data.DataLoader",
    }
    assert symbols([cell("x = nn.Linear(2, 2)", "alone")]) == {"alone": set()}
    assert symbols([setup, cell("%%writefile a.py\ntorch.ones(2)", "script")])["script"] == set()


@pytest.mark.parametrize(
    ("source", "printed", "found"),
    [
        (
            'with pytest.raises(RuntimeError, match="second time") as error:\n    f()',
            "message: Trying a second time\n",
            [("RuntimeError", "second time", "Trying a second time")],
        ),
        (
            'with pytest.warns(UserWarning, match="is slow"):\n    f()',
            "",
            [("UserWarning", "is slow", None)],
        ),
        (
            'for kind, words in [(ValueError, "no label here"), (TypeError, "missing words")]:\n'
            "    with pytest.raises(kind, match=words) as error:\n        f()",
            "a case  ValueError: there is no label here\nb case  TypeError: missing words, two\n",
            [
                ("ValueError", "no label here", "there is no label here"),
                ("TypeError", "missing words", "missing words, two"),
            ],
        ),
        ("assert x", "second time\n", []),
    ],
)
def test_errors_are_told_by_what_the_cell_expects_and_printed(
    source: str, printed: str, found: list[tuple[str, str, str | None]]
) -> None:
    told = [(entry["type"], entry["match"], entry["message"]) for entry in errors(_ran(source, printed))]
    assert told == found
