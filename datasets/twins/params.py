"""Parameters of twins: one row per dataset, read strictly from a file."""

from __future__ import annotations

import functools
from importlib import resources
from itertools import pairwise
from typing import Final

import msgspec
import yaml

from dgbench.runtime.documents import load_yaml
from dgbench.runtime.errors import DataError, unknown_key

PARAMS_FILE: Final = "params.yaml"


class ArrivalCurve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Distribution of events over time. The cumulative share at time x in [0, 1] is `knots` (evenly
    spaced, from 0 to 1) if given, otherwise `start` + steps + (rest) x^`power`.

    Attributes:
        start: share of the events that carry the first time stamp (a crawl that begins with the
            network that is already there).
        power: exponent of the growth.
        steps: (x, share) pairs: sudden jumps, such as the end of a gap in the crawl.
        knots: cumulative shares, first 0 and last 1, non-decreasing.
        cv: coefficient of variation of snapshot sizes around the curve.
        permute: the source has no time stamps: events get their times in random order.
    """

    start: float = 0.0
    power: float = 1.0
    steps: tuple[tuple[float, float], ...] = ()
    knots: tuple[float, ...] = ()
    cv: float = 0.0
    permute: bool = False

    def __post_init__(self) -> None:
        steps = sum(share for _, share in self.steps)
        if not 0 <= self.start + steps < 1 or self.start < 0 or self.power <= 0 or self.cv < 0:
            raise ValueError("start and steps must add up to less than 1, power > 0, cv >= 0")
        if any(not (0 < x < 1 and share > 0) for x, share in self.steps):
            raise ValueError("a step needs 0 < x < 1 and a share above 0")
        falls = any(b < a for a, b in pairwise(self.knots))
        if self.knots and (self.knots[0] != 0 or self.knots[-1] != 1 or falls):
            raise ValueError("knots must rise from 0 to 1")


class TwinParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One dataset's row at full size. Pairs of numbers are (source side, destination side).

    Attributes:
        like: the fitted class that unknown parameters were copied from, or "itself".
        vertices: (sources, destinations), or (vertices,) for one pool.
        events: number of events.
        snapshots, window: T windows of this length in units of time.
        unit: what a unit of time is: "s", "day" or "step".
        resolution: time stamps are multiples of this.
        exponent: a of the scaling rule: vertices grow with scale^a.
        repeat, reply, loop, memory, phi, p_src, beta, s: see `RankCopySpec`.
        q: offset of the rank law, as solved at scale `solved_at`; it is solved again at any
            other scale from the hub shares.
        hub: largest degree over events, printed; null where unknown (what q implies is held).
        reach_pair, reach: how far back, as a share of the events.
        reach_events: the same as a number of events, where it does not grow with the graph.
        simple: pairs are distinct.
        clique: mean group size where events come as co-author cliques, or null.
        curve: when the events happen.
        assumed: what has no source. A claim that hangs on one of these must sweep it.
        notes: sentences for readers of a table that shows the twin.
    """

    like: str
    vertices: tuple[int, ...]
    events: int
    snapshots: int
    window: float
    unit: str = "s"
    resolution: float = 1.0
    exponent: float = 1.0
    repeat: float = 0.0
    reply: float = 0.0
    loop: float = 0.0
    memory: tuple[float, float] = (0.0, 0.0)
    phi: float = 0.0
    p_src: float = 0.5
    beta: tuple[float, float] = (1.0, 1.0)
    s: tuple[float, float]
    q: tuple[float, float]
    solved_at: float = 1.0
    hub: tuple[float | None, float | None] = (None, None)
    reach_pair: float | None = None
    reach: tuple[float, float] = (1.0, 1.0)
    reach_events: tuple[int | None, int | None] = (None, None)
    simple: bool = False
    clique: float | None = None
    curve: ArrivalCurve = ArrivalCurve()
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.vertices) not in (1, 2) or min(self.vertices) < 2 or self.events < 2:
            raise ValueError("vertices must be (N,) or (N_src, N_dst), all counts at least 2")
        if self.unit not in ("s", "day", "step"):
            raise ValueError("unit must be s, day or step")
        if self.snapshots < 1 or self.window <= 0 or self.resolution <= 0:
            raise ValueError("snapshots, window and resolution must be above 0")
        if self.exponent not in (0.5, 1.0):
            raise ValueError("exponent must be 0.5 or 1")
        if not 0 < self.solved_at <= 1:
            raise ValueError("solved_at must lie in (0, 1]")
        if self.clique is not None and (not self.one_pool or self.clique < 2):
            raise ValueError("clique needs one pool of vertices and a mean of at least 2")

    @property
    def one_pool(self) -> bool:
        return len(self.vertices) == 1


def read_params(text: str) -> dict[str, TwinParams]:
    """Parse rows by dataset.

    Raises:
        DataError: not a mapping, an unknown or missing key, or a value out of range, with its
            path.
    """
    try:
        raw = load_yaml(text.encode())
        return msgspec.convert(raw, dict[str, TwinParams])
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise DataError(f"twin parameters: {error}") from error


@functools.cache
def all_params() -> dict[str, TwinParams]:
    """The rows that dgbench ships, by canonical dataset name."""
    return read_params(resources.files(__package__).joinpath(PARAMS_FILE).read_text("utf-8"))


def params(name: str) -> TwinParams:
    """The row of one dataset.

    Raises:
        UnknownKeyError: no twin has that name.
    """
    rows = all_params()
    if name not in rows:
        raise unknown_key("twin", name, rows)
    return rows[name]
