"""The rank-copy generator: an edge stream that grows, repeats, replies and remembers.

Event k takes an endpoint that is due to arrive, copies the pair of a recent event, answers one,
or draws each endpoint from short-term memory or from a Zipf-Mandelbrot law over the vertices in
order of arrival. Every random number is a hash of (seed, event, slot), and the arithmetic avoids
libm and fused multiply-add, so the edges depend on the spec and the seed alone: not on threads,
chunks or the machine.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from dgbench.kernels_cuda import _cpu
from dgbench.runtime.errors import InvalidInputError

SLOT_TIME = 1 << 20
"""Slot of the random numbers that place events inside their time window."""
SLOT_SHUFFLE = SLOT_TIME + 1
"""Slot of the random numbers that permute the times of a graph without time stamps."""
SLOT_WINDOW = SLOT_TIME + 2
"""First of the twelve slots of the random numbers that modulate the windows."""
SLOT_CLIQUE = SLOT_TIME + 16
"""Slot of the random numbers that give the group sizes of co-author cliques."""

MAX_REDRAWS = 64


@dataclass(frozen=True, slots=True)
class RankCopySpec:
    """Parameters of one stream. All shares are probabilities in [0, 1].

    Attributes:
        events: number of events E >= 1.
        num_src: vertices of the source side, or of the one pool.
        num_dst: vertices of the destination side; 0 for one pool.
        repeat: share of events without an arrival that copy an earlier pair.
        reply: share of the others that reverse an earlier pair (one pool only).
        loop: share of self loops among drawn destinations (one pool only).
        mem_src, mem_dst: share of drawn endpoints that come from memory.
        reach_pair, reach_src, reach_dst: how many events back copies (and replies), source
            memory and destination memory look, >= 1.
        phi: share of looks back that go evenly over the whole past.
        p_src: share of arrivals that are sources (one pool only).
        beta_src, beta_dst: vertices seen by event k are N (k/E)^beta; > 0.
        s_src, q_src, s_dst, q_dst: rank law (x + q)^-s; q > 0.
        simple: refuse repeated pairs, with up to `redraws` other destinations.
        redraws: other destinations tried for a refused pair; the last half by rank alone. When
            they are used up a repeated pair is let through (a self loop never is).
        blocks, mixing: planted communities: a vertex is in block id mod `blocks`, and a drawn
            destination leaves the source's block with probability `mixing` only; 1 block: off.
    """

    events: int
    num_src: int
    num_dst: int = 0
    repeat: float = 0.0
    reply: float = 0.0
    loop: float = 0.0
    mem_src: float = 0.0
    mem_dst: float = 0.0
    reach_pair: int = 1
    reach_src: int = 1
    reach_dst: int = 1
    phi: float = 0.0
    p_src: float = 0.5
    beta_src: float = 1.0
    beta_dst: float = 1.0
    s_src: float = 1.0
    q_src: float = 1.0
    s_dst: float = 1.0
    q_dst: float = 1.0
    simple: bool = False
    redraws: int = 6
    blocks: int = 1
    mixing: float = 1.0

    def __post_init__(self) -> None:
        def check(ok: bool, name: str, allowed: str) -> None:
            if not ok:
                raise InvalidInputError(f"{name} is {getattr(self, name)!r}; allowed: {allowed}")

        check(1 <= self.events < 2**53, "events", "1 .. 2**53 - 1")
        one_pool = self.num_dst == 0
        low = 2 if one_pool else 1
        most = self.events + 1 if one_pool else self.events
        check(
            low <= self.num_src <= min(most, 2**31 - 2),
            "num_src",
            f"{low} .. {min(most, 2**31 - 2)} for {self.events} events "
            "(at most one vertex of a side arrives with an event)",
        )
        check(0 <= self.num_dst <= min(self.events, 2**31 - 2), "num_dst", "0 .. events")
        for name in ("repeat", "reply", "loop", "mem_src", "mem_dst", "phi", "p_src", "mixing"):
            check(0.0 <= getattr(self, name) <= 1.0, name, "0 .. 1")
        for name in ("reach_pair", "reach_src", "reach_dst"):
            check(getattr(self, name) >= 1, name, "at least 1 event")
        for name in ("beta_src", "beta_dst", "q_src", "q_dst"):
            check(0.0 < getattr(self, name) < math.inf, name, "a finite number above 0")
        for name in ("s_src", "s_dst"):
            check(0.0 <= getattr(self, name) <= 16.0, name, "0 .. 16")
        check(0 <= self.redraws <= MAX_REDRAWS, "redraws", f"0 .. {MAX_REDRAWS}")
        check(self.blocks >= 1, "blocks", "at least 1")
        check(not (self.simple and self.repeat > 0), "repeat", "0 where pairs must be distinct")
        check(not (self.simple and self.loop > 0), "loop", "0 where pairs must be distinct")
        for name in ("reply", "loop"):
            check(one_pool or getattr(self, name) == 0, name, "0 in a bipartite graph")

    @property
    def num_nodes(self) -> int:
        return self.num_src + self.num_dst


class RankCopy:
    """A stream in progress; `take` hands out its events in order.

    Memory: 8 bytes an event (only back to the longest reach where phi is 0), and where pairs
    must be distinct 12 to 24 bytes an event for the set of pairs.

    Args:
        spec: the parameters.
        seed: 0 .. 2**64 - 1.
        threads: threads that plan events; the result is the same for any number.
    """

    def __init__(self, spec: RankCopySpec, seed: int, *, threads: int = 1) -> None:
        _check_seed(seed)
        if threads < 1:
            raise InvalidInputError(f"threads is {threads}; at least 1 is allowed")
        self.spec = spec
        self._stream = _cpu.RankCopy(**asdict(spec), seed=seed, threads=threads)

    @property
    def position(self) -> int:
        """Number of events handed out."""
        return self._stream.position()

    def take(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The next `count` events: src and dst, int64[count].

        Raises:
            InvalidInputError: fewer than `count` events are left.
        """
        left = self.spec.events - self.position
        if not 0 <= count <= left:
            raise InvalidInputError(f"count is {count}; the stream has {left} events left")
        src, dst = np.empty(count, np.int64), np.empty(count, np.int64)
        self._stream.take(src, dst)
        return src, dst


def rank_copy(
    spec: RankCopySpec, seed: int, begin: int = 0, end: int | None = None, *, threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Events begin .. end - 1 of a stream: src and dst, int64[end - begin].

    Destinations of a bipartite graph are offset by `num_src`. The events before `begin` have to
    be generated to know them; to walk a long stream use `RankCopy`.

    Raises:
        InvalidInputError: unless 0 <= begin <= end <= events.
    """
    end = spec.events if end is None else end
    if not 0 <= begin <= end <= spec.events:
        raise InvalidInputError(
            f"begin, end are {begin}, {end}; 0 <= begin <= end <= {spec.events} is allowed"
        )
    stream = RankCopy(spec, seed, threads=threads)
    step = 1 << 20
    while stream.position < begin:
        stream.take(min(step, begin - stream.position))
    return stream.take(end - begin)


def uniforms(seed: int, first: int, count: int, slot: int) -> np.ndarray:
    """u(seed, event, slot) in [0, 1) for events first .. first + count - 1: float64[count]."""
    _check_seed(seed)
    if count < 0 or first < 0 or not 0 <= slot < 2**32:
        raise InvalidInputError(
            f"first, count, slot are {first}, {count}, {slot}; all must be >= 0, slot < 2**32"
        )
    out = np.empty(count, np.float64)
    _cpu.twin_uniforms(seed, first, slot, out)
    return out


def rank_draws(s: float, q: float, vertices: int, u: np.ndarray) -> np.ndarray:
    """Ranks 0 .. vertices - 1 with density (x + q)^-s at the quantiles u: int64[len(u)]."""
    if vertices < 1 or not 0 < q < math.inf or not 0 <= s <= 16:
        raise InvalidInputError(
            f"s, q, vertices are {s}, {q}, {vertices}; 0 <= s <= 16, 0 < q < inf, vertices >= 1"
        )
    u = np.ascontiguousarray(u, np.float64)
    out = np.empty(len(u), np.int64)
    _cpu.twin_ranks(s, q, vertices, u, out)
    return out


def lag_draws(phi: float, reach: int, k: int, old: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Draw lags of event k, each in 1 .. k, from pairs of uniform numbers: int64[len(u)]."""
    if reach < 1 or k < 1:
        raise InvalidInputError(f"reach, k are {reach}, {k}; both must be at least 1")
    old, u = np.ascontiguousarray(old, np.float64), np.ascontiguousarray(u, np.float64)
    if old.shape != u.shape:
        raise InvalidInputError(f"old has shape {old.shape}, u {u.shape}; they must be the same")
    out = np.empty(len(u), np.int64)
    _cpu.twin_lags(phi, reach, k, old, u, out)
    return out


def exact_log2(x: np.ndarray) -> np.ndarray:
    """log2 of positive normal float64 numbers, the same bits on every machine."""
    x = np.ascontiguousarray(x, np.float64)
    out = np.empty_like(x)
    _cpu.twin_log2(x, out)
    return out


def exact_exp2(x: np.ndarray) -> np.ndarray:
    """2^x for float64 |x| < 1000, the same bits on every machine."""
    x = np.ascontiguousarray(x, np.float64)
    out = np.empty_like(x)
    _cpu.twin_exp2(x, out)
    return out


def _check_seed(seed: int) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise InvalidInputError(f"seed is {seed!r}; an integer 0 .. 2**64 - 1 is allowed")
