"""Where a graph came from. Every container carries it, so that no number loses its label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OriginKind = Literal["real", "subset", "twin"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The provenance of a container.

    Attributes:
        dataset: canonical name of the card.
        kind: `real` (the whole published data), `subset` (a true part of it) or `twin`
            (synthetic, fitted to the card).
        scale: size factor of a twin; 1.0 for held data.
        seed: seed of a twin; 0 for held data.
        notes: sentences on how the data differs from its card or from the papers.
    """

    dataset: str
    kind: OriginKind = "real"
    scale: float = 1.0
    seed: int = 0
    notes: tuple[str, ...] = ()

    @property
    def twin(self) -> bool:
        """True if the data is synthetic."""
        return self.kind == "twin"
