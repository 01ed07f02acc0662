"""Settings of graphs by the name of their card, with a paper's defaults for a user's dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dgbench.lab.charts import titled
from dgbench.runtime.errors import UnknownKeyError

if TYPE_CHECKING:
    from dgbench.datasets import DatasetCard

GraphT = TypeVar("GraphT")


class GraphsByName(dict[str, GraphT], Generic[GraphT]):
    """The graphs of a paper's experiments by name.

    Looking up another dataset gives settings made by `default` from its card; `in` and iteration
    know the paper's graphs only.
    """

    def __init__(self, graphs: Iterable[Any], default: Callable[[DatasetCard], GraphT]) -> None:
        super().__init__({graph.name: graph for graph in graphs})
        self._default = default

    def __missing__(self, name: str) -> GraphT:
        from dgbench import datasets

        try:
            card = datasets.card(name)
        except UnknownKeyError:  # a figure is drawn where the dataset is not
            card = datasets.DatasetCard(name=name, title=name, about="")
        return self._default(card)

    def title(self, name: str) -> str:
        """The title of a dataset by its card's name."""
        return self[name].title  # type: ignore[attr-defined]

    def panel(self, row: Any) -> str:
        """A row's graph as a figure shows it, with "(twin)" where its data are synthetic."""
        return titled(self.title(row.params["dataset"]), [row])


def vertices_of(card: DatasetCard) -> int | None:
    """Vertices of a dataset as its card counts them."""
    return next((one.nodes for one in _counts(card) if one.nodes), None)


def span_of(card: DatasetCard) -> float | None:
    """Length of a dataset in its unit of time as its card counts it, above 0; None if unknown."""
    for one in _counts(card):
        if one.t_first is not None and one.t_last is not None and one.t_last > one.t_first:
            return one.t_last - one.t_first
    return None


def _counts(card: DatasetCard) -> list[Any]:
    return [*(form.counts for form in card.forms), card.published]
