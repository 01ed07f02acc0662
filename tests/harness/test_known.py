"""Versions known to be wrong: told apart from those that are right."""

from __future__ import annotations

import pytest

from dgbench.harness.machine.known import wrong_here


def names(held: dict[str, str]) -> list[str]:
    return [entry.name for entry in wrong_here(held)]


@pytest.mark.parametrize(
    ("held", "wrong"),
    [
        ({"python": "3.11.7"}, ["python"]),
        ({"python": "3.11.13"}, []),
        ({"python": "3.14.0"}, []),
        ({"dgl": "2.1.0", "torch": "2.13.0+cpu"}, ["dgl"]),
        ({"dgl": "2.1.0"}, []),  # without torch nothing is known of it
        ({"dgl": "2.1.0", "torch": "2.2.1"}, ["torch"]),
        ({"dgl": "1.1.3", "torch": "2.13.0+cpu"}, []),
        ({"msgspec": "0.19.0", "python": "3.14.0"}, ["msgspec"]),
        ({"nvcc": "13.0", "compute capability": "7.0"}, ["nvcc"]),
        ({"nvcc": "13.0", "compute capability": "10.0"}, []),
        ({"torch-scatter": "2.1.2+pt25cu121", "torch": "2.13.0"}, ["torch-scatter"]),
        ({"torch-scatter": "2.1.2+pt213cpu", "torch": "2.13.0+cpu"}, []),
    ],
)
def test_versions_are_told_apart(held, wrong) -> None:
    assert names(held) == wrong
