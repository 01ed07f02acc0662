"""The tuner's offline table: what partitions gain in the graph kernels (PiPAD 4.4, Figure 9).

Measured once per machine by `dgbench calibrate pipad`: random groups of snapshots at chosen overlap
rates and widths, S at a time against one at a time, forward and backward, by each kernel that an
engine aggregates with (`kernels`): a gain of one says nothing of another. The paper's table has
S_per, overlap rate and feature length; vertices and entries per vertex are ours, since on small
graphs calls cost more than entries and on sparse ones rows cost more than entries.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dgbench.runtime.errors import InvalidInputError, StoreError
from dgbench.systems.base.calibration import (
    calibration_path,
    check_writable,
    machine_of,
    write_atomically,
)

if TYPE_CHECKING:
    from dgbench.systems.pipad.kernels import ArrivedKernel, PlacedKernel

SCHEMA: Final = 2
OLDER: Final = 1
"""Version of files that hold one kernel, which was the same on every device."""
OLDER_KERNEL: Final = "rows"
PACKAGED: Final = Path(__file__).with_name("gain_tables")
HINT: Final = "make a new one: dgbench calibrate pipad"
BUSY: Final = 0.25
"""Noise above which a table is no good; a quiet machine stays below 0.1."""
AXES: Final = ("s_per", "overlap_rate", "width", "nodes", "degree")

FULL: Final[dict[str, tuple[float, ...]]] = {
    "s_per": (2, 4, 8),
    "overlap_rate": (0.0, 0.25, 0.5, 0.75, 0.9, 1.0),
    "width": (2, 6, 16, 32, 64),
    "nodes": (128, 1024, 8192, 65536),
    "degree": (0.25, 2.0, 8.0),
}
QUICK: Final[dict[str, tuple[float, ...]]] = {
    "s_per": (2, 4, 8),
    "overlap_rate": (0.0, 0.5, 0.75, 0.9, 1.0),
    "width": (2, 8, 32),
    "nodes": (128, 1024, 8192),
    "degree": (0.25, 2.0, 8.0),
}

Progress = Callable[[int, int, str], None]
"""(configurations done, all, what is measured now)."""


class MeasuredGain(msgspec.Struct, frozen=True):
    """One measured gain: one-at-a-time seconds over S-at-a-time seconds.

    Attributes:
        s_per, overlap_rate, width: of the group; width in floats per vertex.
        nodes, degree: vertices, and entries of a snapshot over vertices.
        gain: ratio of lower quartiles over turns. single_s: one at a time, the whole group.
        kernel: name of what aggregated.
    """

    s_per: int
    overlap_rate: float
    width: int
    nodes: int
    degree: float
    gain: float
    single_s: float = 0.0
    kernel: str = OLDER_KERNEL


class _File(msgspec.Struct):
    schema: int
    system: str
    device: str
    machine: dict[str, Any]
    made: str
    quick: bool
    points: list[MeasuredGain]
    noise: float = 0.0


class GainTable:
    """Gains of a kernel on a full grid; between its points the logarithm of the gain is
    interpolated.

    Every axis is taken on a scale on which gains bend little: overlap rate as it is, all others by
    their logarithm. Outside the grid the nearest edge counts. S_per 1 gains exactly 1.

    Args:
        device: `cpu` or `cuda`.
        machine: what it was measured on (`machine_of`).
        points: one for every combination of the values that occur on the five axes, of one kernel.
        made: when, ISO 8601. quick: whether with the coarse grid.
        noise: relative excess of the median turn over the lower quartile, ninth decile of races.
        source: in words, for reasons: "table of this machine".

    Raises:
        InvalidInputError: no point, a combination missing or twice, a value out of range, or
            points of several kernels.
    """

    def __init__(
        self,
        *,
        device: str,
        machine: dict[str, Any],
        points: Iterable[MeasuredGain],
        made: str = "",
        quick: bool = False,
        noise: float = 0.0,
        source: str = "table of this machine",
    ) -> None:
        self.device = device
        self.machine = dict(machine)
        self.points = tuple(points)
        self.made = made
        self.quick = quick
        self.noise = noise
        self.source = source
        if len(kernels := sorted({point.kernel for point in self.points})) > 1:
            raise InvalidInputError(f"'points' are of several kernels: {', '.join(kernels)}")
        self.kernel = kernels[0] if kernels else ""
        self._grid = {_key(p): math.log(p.gain) for p in map(_checked, self.points)}
        if len(self._grid) != len(self.points) or not self.points:
            raise InvalidInputError("'points' is empty or holds one combination twice")
        self.axes: dict[str, tuple[float, ...]] = {
            name: tuple(sorted({key[i] for key in self._grid})) for i, name in enumerate(AXES)
        }
        whole = math.prod(len(values) for values in self.axes.values())
        if whole != len(self._grid):
            raise InvalidInputError(
                f"'points' holds {len(self._grid)} of the {whole} combinations of its values"
            )

    def gain(
        self,
        s_per: int,
        overlap_rate: float,
        width: int,
        *,
        nodes: int = 0,
        edges: float = 0.0,
    ) -> float:
        """Expected speed-up of the kernels over one snapshot at a time.

        Args:
            s_per: snapshots of a partition.
            overlap_rate: |shared entries| / mean entries of a snapshot, 0..1.
            width: floats per vertex and snapshot.
            nodes: vertices, or 0 where not known: the mean over the table's sizes.
            edges: entries of a snapshot; read only where `nodes` is known.

        Raises:
            InvalidInputError: S_per or the width below 1, or a rate that is no number.
        """
        if s_per < 1 or width < 1 or not math.isfinite(overlap_rate):
            raise InvalidInputError(
                f"no gain of S_per {s_per}, overlap rate {overlap_rate}, width {width}; "
                "needed: 1 or more, 0..1, 1 or more"
            )
        if s_per == 1:
            return 1.0
        sizes = (1.0, *self.axes["s_per"])  # at 1 the gain is 1, its logarithm 0
        weights = [
            _weights(sizes, s_per),
            _weights(self.axes["overlap_rate"], overlap_rate, plain=True),
            _weights(self.axes["width"], width),
            _weights(self.axes["nodes"], nodes) if nodes else _even(self.axes["nodes"]),
            _weights(self.axes["degree"], edges / nodes) if nodes else _even(self.axes["degree"]),
        ]
        total = 0.0
        for corner in product(*weights):
            if corner[0][0] > 1:
                share = math.prod(weight for _, weight in corner)
                total += share * self._grid[tuple(value for value, _ in corner)]
        return math.exp(total)

    def mean(self, s_per: float, overlap_rate: float) -> float:
        """Geometric mean of the points of this S_per and overlap rate."""
        logs = [v for key, v in self._grid.items() if key[:2] == (s_per, overlap_rate)]
        return round(math.exp(sum(logs) / len(logs)), 3)

    def save(self, path: Path) -> None:
        """Write the table alone, as `save_all`."""
        save_all([self], path)

    @classmethod
    def load(cls, path: Path, kernel: str | None = None) -> GainTable:
        """Read the table of a kernel; None: that of the only one in the file.

        Raises:
            StoreError: there is none, it is damaged or cut off, or another version wrote it.
        """
        tables = cls.load_all(path)
        if kernel is None and len(tables) == 1:
            return next(iter(tables.values()))
        if kernel not in tables:
            raise StoreError(
                f"the table of gains '{path}' holds the kernels {', '.join(sorted(tables))}, "
                f"not '{kernel}'",
                hint=HINT,
            )
        return tables[kernel]

    @classmethod
    def load_all(cls, path: Path) -> dict[str, GainTable]:
        """Read the tables of all kernels in a file, by their names. Raises as `load`."""
        path = Path(path)
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise StoreError(
                f"no table of gains can be read from '{path}': {error.strerror or error}", hint=HINT
            ) from error
        try:
            schema = msgspec.json.decode(raw, type=_GainsVersion).schema
        except msgspec.MsgspecError as error:
            raise StoreError(
                f"the table of gains '{path}' is damaged: {error}", hint=HINT
            ) from error
        if schema not in (OLDER, SCHEMA):
            raise StoreError(
                f"the table of gains '{path}' has version {schema}, this program reads {SCHEMA}",
                hint=HINT,
            )
        try:
            found = msgspec.json.decode(raw, type=_File)
            by_kernel: dict[str, list[MeasuredGain]] = {}
            for point in found.points:
                by_kernel.setdefault(point.kernel, []).append(point)
            if not by_kernel:
                raise InvalidInputError("'points' is empty")
            return {
                kernel: cls(
                    device=found.device,
                    machine=found.machine,
                    points=points,
                    made=found.made,
                    quick=found.quick,
                    noise=found.noise,
                )
                for kernel, points in by_kernel.items()
            }
        except (msgspec.MsgspecError, InvalidInputError) as error:
            raise StoreError(
                f"the table of gains '{path}' is damaged: {error}", hint=HINT
            ) from error

    @classmethod
    def find(cls, device: str, kernel: str) -> GainTable | None:
        """This machine's table of a kernel, else the packaged one of the nearest machine with such
        a device, else None: what another kernel gains is no measure.

        `source` says which. A damaged table of this machine is passed over with a warning.
        """
        machine = machine_of(device)
        own = calibration_path("pipad", device)
        if own.exists():
            try:
                tables = cls.load_all(own)
                if kernel in tables:
                    return tables[kernel]
            except StoreError as error:
                warnings.warn(f"{error} ({error.hint})", RuntimeWarning, stacklevel=2)
        kind = device.partition(":")[0]
        packaged = [cls.load_all(path).get(kernel) for path in sorted(PACKAGED.glob("*.json"))]
        known = [table for table in packaged if table is not None and table.device == kind]
        if not known:
            return None
        nearest = min(known, key=lambda table: _distance(table.machine, machine))
        # Processors of one name need not be one machine: a packaged table is never called its own.
        like = nearest.machine == machine
        words = "of a machine named alike" if like else "of another machine"
        nearest.source = f"table {words} ({_machine_words(nearest.machine)})"
        return nearest

    def _file(self, points: list[MeasuredGain]) -> _File:
        return _File(
            schema=SCHEMA,
            system="pipad",
            device=self.device,
            machine=self.machine,
            made=self.made,
            quick=self.quick,
            points=points,
            noise=self.noise,
        )


class _GainsVersion(msgspec.Struct):
    schema: int


def save_all(tables: Sequence[GainTable], path: Path) -> None:
    """Write tables of one machine, one for each kernel; readers see the old file or the whole new
    one.

    Raises:
        StoreError: it cannot be written.
    """
    head = msgspec.structs.asdict(tables[0]._file([]))
    del head["points"]
    head["noise"] = max(table.noise for table in tables)
    lines = [f" {msgspec.json.encode(k).decode()}: {_json(v)}," for k, v in head.items()]
    rows = ",\n".join(f"  {_json(point)}" for table in tables for point in table.points)
    write_atomically(Path(path), "\n".join(["{", *lines, ' "points": [', rows, " ]", "}", ""]))


def measure_gains(
    kernel: PlacedKernel | ArrivedKernel,
    device: str = "cpu",
    *,
    quick: bool = False,
    progress: Progress | None = None,
    axes: dict[str, Sequence[float]] | None = None,
    budget_s: float | None = None,
) -> GainTable:
    """Measure the table of a kernel on this machine.

    Args:
        kernel: what aggregates.
        device: `cpu` or `cuda`.
        quick: a coarse grid and fewer turns, well below a minute on two cores.
        progress: told before every configuration.
        axes: other grid values than those of FULL or QUICK.
        budget_s: seconds for the turns of one configuration.
    """
    from datetime import datetime, timezone

    from dgbench.systems.pipad.groups import gains_of, race, random_group, typical

    grid = dict(axes) if axes is not None else dict(QUICK if quick else FULL)
    budget = budget_s if budget_s is not None else (0.1 if quick else 0.3)
    # Time of the one thread that computes, where it is one: what else runs is not in it.
    alone = device == "cpu" and machine_of(device)["threads"] == 1
    clock = time.process_time if alone else time.perf_counter
    sizes = [int(size) for size in grid["s_per"]]
    places = list(product(grid["nodes"], grid["degree"], grid["overlap_rate"], grid["width"]))
    points: list[MeasuredGain] = []
    excess: list[float] = []
    for done, (nodes, degree, rate, width) in enumerate(places):
        if progress is not None:
            words = f"{int(nodes)} vertices, {degree:g} entries each, width {int(width)}"
            progress(done, len(places), f"{kernel.name}: {words}, overlap rate {rate:g}")
        group = random_group(int(nodes), round(degree * nodes), rate, snapshots=max(sizes))
        found = race(group, int(width), sizes, kernel, device=device, budget_s=budget, clock=clock)
        excess += [median(times) / typical(times) - 1 for times in found.values()]
        for size, gain in gains_of(found).items():
            single = typical(found[1])
            points.append(
                MeasuredGain(
                    size,
                    rate,
                    int(width),
                    int(nodes),
                    degree,
                    round(gain, 4),
                    float(f"{single:.4g}"),
                    kernel.name,
                )
            )
    if progress is not None:
        progress(len(places), len(places), "")
    made = datetime.now(timezone.utc).isoformat(timespec="seconds")
    kind = device.partition(":")[0]
    return GainTable(
        device=kind,
        machine=machine_of(device),
        points=points,
        made=made,
        quick=quick,
        noise=round(sorted(excess)[9 * len(excess) // 10], 3),
    )


def calibrate(
    path: Path,
    *,
    device: str = "cpu",
    quick: bool = False,
    progress: Progress | None = None,
    axes: dict[str, Sequence[float]] | None = None,
) -> dict[str, Any]:
    """Measure the tables, keep them in `path`, and sum them up (`System.calibrate`).

    Returns:
        Machine, number of points, and for every kernel and overlap rate the geometric mean gain of
        each S_per over all sizes and widths.

    Raises:
        StoreError: the file cannot be written, said before anything is measured.
    """
    from dgbench.systems.pipad.kernels import kernels_on

    path = Path(path)
    check_writable(path)
    tables: list[GainTable] = []
    kernels = kernels_on(device)

    def of_all(done: int, total: int, words: str) -> None:
        if progress is not None and (words or len(tables) + 1 == len(kernels)):
            progress(len(tables) * total + done, len(kernels) * total, words)

    for kernel in kernels:
        tables.append(measure_gains(kernel, device, quick=quick, progress=of_all, axes=axes))
    save_all(tables, path)
    noise = max(table.noise for table in tables)
    state = f"{100 * noise:.0f} % above the quartile in nine of ten races"
    if noise > BUSY:
        state += "; the machine was busy, measure again when it is quiet"
    return {
        "machine": _machine_words(tables[0].machine),
        "points": sum(len(table.points) for table in tables),
        "median turn": state,
        "mean gain over one snapshot at a time": [
            {
                "kernel": table.kernel,
                "overlap rate": rate,
                **{f"S_per {s:g}": table.mean(s, rate) for s in table.axes["s_per"]},
            }
            for table in tables
            for rate in table.axes["overlap_rate"]
        ],
    }


def _checked(point: MeasuredGain) -> MeasuredGain:
    fine = (
        point.s_per > 1
        and point.width >= 1
        and point.nodes >= 1
        and point.degree > 0
        and 0 <= point.overlap_rate <= 1
        and math.isfinite(point.gain)
        and point.gain > 0
    )
    if not fine:
        raise InvalidInputError(f"{point} is out of range")
    return point


def _key(point: MeasuredGain) -> tuple[float, ...]:
    return tuple(float(getattr(point, name)) for name in AXES)


def _weights(
    axis: Sequence[float], value: float, *, plain: bool = False
) -> list[tuple[float, float]]:
    """Neighbouring axis values with their shares, which add up to 1."""
    if value <= axis[0]:
        return [(axis[0], 1.0)]
    for low, high in pairwise(axis):
        if value <= high:
            if plain:
                share = (value - low) / (high - low)
            else:
                share = math.log(value / low) / math.log(high / low)
            return [(low, 1.0 - share), (high, share)]
    return [(axis[-1], 1.0)]


def _even(axis: Sequence[float]) -> list[tuple[float, float]]:
    return [(value, 1.0 / len(axis)) for value in axis]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _distance(one: dict[str, Any], other: dict[str, Any]) -> tuple[bool, float]:
    """Another name is further than any other number of threads."""
    threads = [max(1, int(machine.get("threads", 1))) for machine in (one, other)]
    return one.get("name") != other.get("name"), abs(math.log(threads[0] / threads[1]))


def _machine_words(machine: dict[str, Any]) -> str:
    threads = machine.get("threads")
    name = str(machine.get("name", "unknown"))
    return name if threads is None else f"{name}, {threads} thread{'' if threads == 1 else 's'}"
