"""Steps that are drawn from a loop of which nobody knows how many it takes."""

from __future__ import annotations

import random


class DrawnSteps:
    """Numbers of steps, drawn one after the other with gaps that grow with what went before.

    A loop of n steps has about log n of them, wherever it ends, and the next one is not known
    before it is due.

    Args:
        first: least number that is drawn. spread: numbers that the first one is drawn from.
        seed: of the draws; by default the operating system's.

    Attributes:
        seed: of the draws.
    """

    def __init__(self, first: int, *, spread: int = 2, seed: int | None = None) -> None:
        self.seed = random.SystemRandom().getrandbits(48) if seed is None else seed
        self._draw = random.Random(self.seed)
        self._next = first + self._draw.randrange(spread)

    def __contains__(self, step: int) -> bool:
        """Return True for a step that is drawn; asked of each step in order."""
        if step > self._next:
            self._next = step + self._draw.randrange(1 + step // 2)
        return step == self._next

    def sample(self, population: list[int], count: int) -> list[int]:
        """Drawn members of a list, in its order."""
        return sorted(self._draw.sample(population, min(count, len(population))))

    def chance(self, share: float) -> bool:
        """Return True in a share of the calls."""
        return self._draw.random() < share

    def below(self, count: int) -> int:
        """A number from 0 to below `count`."""
        return self._draw.randrange(count)

    def bits(self) -> int:
        """Another seed."""
        return self._draw.getrandbits(48)


class DrawnRounds:
    """Numbers of rounds: the first one that may be drawn, and later ones ever more seldom.

    Args:
        first: number that is drawn for certain.
        seed: of the draws; by default the operating system's.

    Attributes:
        seed: of the draws.
    """

    def __init__(self, first: int, *, seed: int | None = None) -> None:
        self.seed = random.SystemRandom().getrandbits(48) if seed is None else seed
        self._draw, self._first = random.Random(self.seed), first

    def __contains__(self, number: int) -> bool:
        """Return True for a round that is drawn; asked of each round once, in order."""
        since = number - self._first
        return since == 0 or (since > 0 and self._draw.random() * 2 * (since + 1) < 1)

    def below(self, count: int) -> int:
        """A number from 0 to below `count`."""
        return self._draw.randrange(count)
