"""Where a rank stands, for whoever watches over it."""

from __future__ import annotations


class RankProgress:
    """Notes of a rank about itself. This one keeps nothing; a launcher supplies one that does."""

    def waits(self, operation: str, number: int) -> None:
        """The rank begins to wait for others in its `number`-th operation."""

    def goes_on(self) -> None:
        """The rank waits no longer."""
