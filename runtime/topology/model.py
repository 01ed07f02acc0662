"""Projected time of traffic on a named machine: an alpha-beta model with contention.

Every link is one-way and has a latency alpha (seconds per message) and a bandwidth (bytes per
second, 1 / beta). A message takes all links of its route. A link is busy for

    messages * alpha + bytes / bandwidth

and an exchange lasts as long as its busiest link: everything else overlaps. Nothing here is
measured; whatever leaves this module says so, and `fit` tells how far off the model is where there
are measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from dgbench.runtime.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class TopologyLink:
    """One direction of a connection.

    Attributes:
        name: unique in its topology. alpha_s: seconds per message. bandwidth: bytes per second.
    """

    name: str
    alpha_s: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not self.alpha_s >= 0 or not self.bandwidth > 0:
            raise InvalidInputError(
                f"link '{self.name}' has alpha {self.alpha_s} s and {self.bandwidth} bytes/s; "
                "needed: alpha >= 0, bandwidth > 0"
            )

    def busy(self, messages: float, nbytes: float) -> float:
        """Seconds that it takes this link to carry so much."""
        return messages * self.alpha_s + nbytes / self.bandwidth


@dataclass(frozen=True, slots=True)
class Projection:
    """A modelled time, with what it was made of. Never a measurement.

    Attributes:
        seconds: compute, and the communication that is not hidden behind it.
        compute_s: of the slowest rank, as measured and given.
        communicate_s: of all traffic, as modelled.
        hidden_s: communication that is assumed to overlap compute.
        busiest: name of the link that decides, "" without traffic.
        topology: name of the machine. evidence: always `projected`.
        error: largest relative error of the model on measured points, None where there are none.
    """

    seconds: float
    compute_s: float
    communicate_s: float
    hidden_s: float
    busiest: str
    topology: str
    error: float | None = None
    evidence: str = field(default="projected", init=False)

    def __str__(self) -> str:
        error = "no measured points" if self.error is None else f"model error {self.error:.0%}"
        return f"{self.seconds:.4g} s (projected on {self.topology}, {error})"


class Topology:
    """Devices, one-way links, and the links that a message from one device to another takes.

    Attributes:
        name: what it is called. size: devices P. links: all of them.
        routes: (src, dst) -> indices of links; every pair of different devices has one.
        assumed: where its numbers come from, to print beside a projection.
    """

    def __init__(
        self,
        name: str,
        size: int,
        links: Sequence[TopologyLink],
        routes: dict[tuple[int, int], tuple[int, ...]],
        *,
        assumed: str = "",
    ) -> None:
        """Check and keep.

        Raises:
            InvalidInputError: a pair has no route, a route an unknown link, two links one name.
        """
        self.name, self.size, self.assumed = name, size, assumed
        self.links, self.routes = tuple(links), dict(routes)
        if size < 1:
            raise InvalidInputError(f"'size' of topology '{name}' is {size}, needed: at least 1")
        if len({link.name for link in links}) != len(links):
            raise InvalidInputError(f"two links of topology '{name}' have one name")
        pairs = {(i, j) for i in range(size) for j in range(size) if i != j}
        if set(self.routes) != pairs:
            wrong = sorted(pairs ^ set(self.routes))[0]
            raise InvalidInputError(
                f"topology '{name}': the pair {wrong} has no route or is none of {size} devices"
            )
        for pair, route in self.routes.items():
            if not route or any(not 0 <= i < len(links) for i in route):
                raise InvalidInputError(f"topology '{name}': the route of {pair} is {route}")
        # [pairs], [uses]: which pair uses which link, flat.
        self._src = np.array([s for (s, _), r in self.routes.items() for _ in r], dtype=np.int64)
        self._dst = np.array([d for (_, d), r in self.routes.items() for _ in r], dtype=np.int64)
        self._link = np.array([i for r in self.routes.values() for i in r], dtype=np.int64)
        self._alpha = np.array([link.alpha_s for link in links])
        self._bandwidth = np.array([link.bandwidth for link in links])

    def loads(self, traffic: ArrayLike) -> np.ndarray:
        """Sum over each link of what passes through it; float64[links].

        Args:
            traffic: [P, P], sent from row to column, bytes or messages; the diagonal stays at home.

        Raises:
            InvalidInputError: another shape, or negative or infinite numbers.
        """
        found = np.asarray(traffic, dtype=np.float64)
        if found.shape != (self.size, self.size):
            raise InvalidInputError(
                f"'traffic' has shape {found.shape}, '{self.name}' has {self.size} devices",
                hint="one row and one column per rank",
            )
        if not np.all(np.isfinite(found)) or np.any(found < 0):
            raise InvalidInputError("'traffic' has entries that are negative or not finite")
        return np.bincount(self._link, found[self._src, self._dst], minlength=len(self.links))

    def link_times(self, traffic: ArrayLike, messages: ArrayLike | None = None) -> np.ndarray:
        """Seconds that each link is busy, float64[links]; arguments as for `time`."""
        nbytes = np.asarray(traffic, dtype=np.float64)
        count = (nbytes > 0) if messages is None else messages
        if not self.links:
            return np.zeros(0)
        return self.loads(count) * self._alpha + self.loads(nbytes) / self._bandwidth

    def time(self, traffic: ArrayLike, messages: ArrayLike | None = None) -> float:
        """Seconds that the exchange is projected to take: the time of the busiest link.

        Args:
            traffic: bytes [P, P], sent from row to column, for instance `TrafficMatrix.matrix()`.
            messages: [P, P]; None: one for each pair that has bytes.
        """
        return float(self.link_times(traffic, messages).max(initial=0.0))

    def project(
        self,
        compute_s: Sequence[float],
        traffic: ArrayLike,
        messages: ArrayLike | None = None,
        *,
        overlap: float = 0.0,
        error: float | None = None,
    ) -> Projection:
        """From measured compute and counted traffic to a labelled projection.

        Args:
            compute_s: measured seconds of each rank, P numbers (or one for all).
            traffic, messages: counted, see `time`.
            overlap: share of the compute that communication may hide behind, 0 to 1.
            error: of the model, see `AlphaBeta.error`.

        Raises:
            InvalidInputError: an argument out of range.
        """
        if len(compute_s) not in (1, self.size) or any(not s >= 0 for s in compute_s):
            raise InvalidInputError(
                f"'compute_s' is {list(compute_s)[:8]}, needed: 1 or {self.size} numbers >= 0"
            )
        if not 0 <= overlap <= 1:
            raise InvalidInputError(f"'overlap' is {overlap}, allowed: 0 to 1")
        times = self.link_times(traffic, messages)
        communicate = float(times.max(initial=0.0))
        compute = float(max(compute_s))
        hidden = min(communicate, overlap * compute)
        return Projection(
            seconds=compute + communicate - hidden,
            compute_s=compute,
            communicate_s=communicate,
            hidden_s=hidden,
            busiest=self.links[int(times.argmax())].name if communicate > 0 else "",
            topology=self.name,
            error=error,
        )

    def first(self, size: int) -> Topology:
        """The same machine with the first `size` devices in use.

        Raises:
            InvalidInputError: more devices than there are.
        """
        if not 1 <= size <= self.size:
            raise InvalidInputError(f"'size' is {size}, topology '{self.name}' has {self.size}")
        if size == self.size:
            return self
        routes = {(s, d): r for (s, d), r in self.routes.items() if s < size and d < size}
        return Topology(self.name, size, self.links, routes, assumed=self.assumed)
