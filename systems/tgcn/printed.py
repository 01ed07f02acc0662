"""Numbers that the paper prints, read from the ledger of its claims."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from dgbench.lab.printed import ledger, plain

DATASET_OF: Final = {
    "Lastfm": "lastfm",
    "Reddit": "reddit",
    "Flickr": "flickr",
    "Twitter": "twitter",
}
"""Our dataset for a name of the ledger."""
PRINTED_TITLE: Final = {name: title for title, name in DATASET_OF.items()}
"""The name of the ledger for a dataset of ours."""
_LEDGER: Final = Path(__file__).with_name("claims.yaml")


@dataclass(frozen=True, slots=True)
class Printed:
    """A row of Table 1.

    Attributes:
        vertices, edges: counts, with the two or three digits that are printed.
        degree: the column headed average degree, whose definition changes from row to row.
        feature: the column headed Feature; its meaning is not explained.
    """

    vertices: int
    edges: int
    degree: float
    feature: int


def values() -> dict[str, Any]:
    """Value of each claim, by its id without the paper's prefix."""
    return ledger(_LEDGER)


def by_dataset(claim: str) -> dict[str, float]:
    """A column or row of a table by dataset; what ran out of memory is left out."""
    printed = values()[claim]
    return {
        DATASET_OF[title]: plain(value) for title, value in printed.items() if value != "OOM"
    }  # fmt: skip


@cache
def table1(dataset: str) -> Printed:
    """A graph's row of Table 1."""
    columns = (
        by_dataset(f"tab1-{name}") for name in ("vertices", "edges", "avg-degree", "feature")
    )
    vertices, edges, degree, feature = (column[dataset] for column in columns)
    return Printed(int(vertices), int(edges), degree, int(feature))


def table2(system: str, part: str) -> dict[str, float]:
    """Seconds of Table 2 on one V100, by dataset: `io`, `compute` or `total` of a system."""
    return by_dataset(f"tab2-{system}-{part}")


def table3(system: str) -> dict[str, float]:
    """MB of device memory of Table 3, by dataset."""
    return by_dataset(f"tab3-{system}-memory")
