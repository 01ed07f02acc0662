"""Two states side by side: clocks with an interval, counters exactly.

Runs that were not interleaved have nothing to pair: the interval is Welch's on log times, the noise
floor of the noisier side decides what is *same*, and drift of the machine is in every ratio. The
sides of one interleaved race (`harness.track`) are paired round by round, and the floor of each
quantity is how far its A/A control may lie from 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from dgbench.harness.quantities import (
    ONE_PROCESS,
    cell_words,
    counters_that_differ,
    exact,
    paired_ratios,
    quantities,
    ratio_of,
    welch_ratio,
)
from dgbench.harness.states import State
from dgbench.runtime.statistics import ConfidenceInterval, verdict

__all__ = ["Change", "Comparison", "compare_runs", "compare_states", "welch_ratio"]

WORDS = ("SLOW", "FAST", "AMBG", "SAME")
FAILED: Final = ("oom", "time", "crash", "check", "void")
NOT_SAME: Final = 3
"""Exit code where two sides are not the same; a crash ends with 1."""
ASSUMED: Final = 0.05
"""Noise floor where neither side measured one."""
_ASPECTS: Final = (
    ("machine.gpus", "GPUs"),
    ("machine.compiler", "compiler"),
    ("machine.nvcc", "compiler"),
    ("machine.python", "Python"),
    ("machine", "machine"),
    ("code", "code"),
    ("dgbench", "code"),
    ("packages.torch", "torch"),
    ("packages", "packages"),
    ("environment", "environment"),
    ("settings", "settings"),
)
_IGNORED: Final = (
    "machine.memory_limit", "settings.seed", "settings.budget_s", "settings.resume",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One quantity of one cell in both states.

    Attributes:
        cell: hash of the cell in A. name: paper, experiment and params; `quantity` behind it.
        label: the same for people, without the paper.
        word: SLOW, FAST, SAME or AMBG. ratio: time in B over time in A.
        counters: name -> (A, B), those that differ. paced: False where the sides worked for
            different lengths, so that their counters say nothing.
        status: of the cell in A and in B. gain: whether it is a ratio to a peer.
        values: medians in A and B (seconds, or a gain). rows: (run, row id) of each side.
        floor: noise floor that decided the word.
    """

    cell: str
    name: str
    word: str
    ratio: ConfidenceInterval | None
    counters: dict[str, tuple[int, int]]
    status: tuple[str, str] = ("ok", "ok")
    paper: str = ""
    experiment: str = ""
    quantity: str = ""
    gain: bool = False
    paced: bool = True
    values: tuple[float, float] | None = None
    rows: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ((), ())  # type: ignore[assignment]
    twin: bool = False
    label: str = ""
    floor: float | None = None

    @property
    def grew(self) -> bool:
        """True if a counter is larger in B."""
        return any(b > a for a, b in self.counters.values())

    @property
    def broke(self) -> bool:
        """True if the cell ran in A and failed in B."""
        return self.status[0] == "ok" and self.status[1] in FAILED

    @property
    def size(self) -> float:
        """Distance of its ratio from 1, as a logarithm; 0 without a ratio."""
        return abs(math.log(self.ratio.value)) if self.ratio else 0.0

    @property
    def decided(self) -> bool:
        """True if there is an interval, so that more rounds of the same kind would not help."""
        return self.ratio is not None and self.ratio.low is not None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences between state A and state B.

    Attributes:
        changes: SLOW first, then FAST, AMBG and SAME; in each the largest change first.
        only_a, only_b: names of cells without a counterpart.
        identity: sentences about what is not the same but time; differs: the same in words.
        floor: noise floor, None where neither side measured one (then `ASSUMED` is taken); the
            largest where each quantity has its own. interleaved: True for sides of one race.
        counters: names of exact counters that both sides have.
    """

    a: str
    b: str
    changes: list[Change]
    only_a: list[str]
    only_b: list[str]
    identity: list[str] = field(default_factory=list)
    floor: float | None = None
    differs: list[str] = field(default_factory=list)
    preset: str = ""
    interleaved: bool = False
    counters: list[str] = field(default_factory=list)

    def count(self, word: str) -> int:
        """Number of quantities with this word."""
        return sum(change.word == word for change in self.changes)

    @property
    def counted(self) -> int:
        """Number of cells with a counter that differs."""
        return sum(bool(c.counters) for c in self.changes)

    @property
    def broken(self) -> list[Change]:
        """Cells that ran in A and fail in B, each once."""
        return list({c.cell: c for c in self.changes if c.broke}.values())

    @property
    def cells(self) -> int:
        """Number of cells that both sides have."""
        return len({c.cell for c in self.changes})

    @property
    def headline(self) -> str:
        """`2 SLOW, 1 FAST, 31 SAME, 3 AMBG; different code, torch`."""
        said = ", ".join(f"{self.count(w)} {w}" for w in ("SLOW", "FAST", "SAME", "AMBG"))
        return f"{said}; different {', '.join(self.differs)}" if self.differs else said

    @property
    def exit_code(self) -> int:
        """`NOT_SAME` if something is slower, fails now, or counts more; else 0."""
        worse = any(c.word == "SLOW" or c.grew or c.broke for c in self.changes)
        return NOT_SAME if worse else 0

    @property
    def why(self) -> str:
        """The exit code in words."""
        counts = {
            "SLOW cell": self.count("SLOW"),
            "counter that grew": sum(b > a for c in self.changes for a, b in c.counters.values()),
            "cell that fails now": len(self.broken),
        }
        said = [f"{n} {word}" if n == 1 else f"{n} x {word}" for word, n in counts.items() if n]
        return f"exit {self.exit_code}: {', '.join(said) or 'nothing slower'}"

    def as_plain(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "a": self.a,
            "b": self.b,
            "interleaved": self.interleaved,
            "noise_floor": self.floor,
            "counts": {word: self.count(word) for word in WORDS},
            "differs": self.differs,
            "identity": self.identity,
            "only_a": self.only_a,
            "only_b": self.only_b,
            "exit_code": self.exit_code,
            "changes": [
                {
                    "cell": c.cell,
                    "name": c.name,
                    "quantity": c.quantity or "time",
                    "word": c.word,
                    "ratio": c.ratio.value if c.ratio else None,
                    "low": c.ratio.low if c.ratio else None,
                    "high": c.ratio.high if c.ratio else None,
                    "floor": c.floor,
                    "n": c.ratio.n if c.ratio else 0,
                    "values": list(c.values) if c.values else None,
                    "counters": {k: list(v) for k, v in c.counters.items()},
                    "status": list(c.status),
                    "rows": [[f"{run}:{row}" for run, row in side] for side in c.rows],
                }
                for c in self.changes
            ],
        }


def compare_runs(a: Any, b: Any) -> Comparison:
    """Compare two stores cell by cell, the largest change first."""
    return compare_states(State.of([a]), State.of([b]))


def compare_states(a: State, b: State, control: State | None = None) -> Comparison:
    """Compare two states quantity by quantity, the largest change first.

    Cells belong together by paper, experiment, group, params and preset; by the device too,
    unless each side has one device of its own: then machines are compared.

    Args:
        control: A again, of the same interleaved race; noise floors are those of its pairs.
    """
    device = not (len(a.devices) == len(b.devices) == 1 and a.devices != b.devices)
    first, second = _cells(a, device), _cells(b, device)
    floor = max((f for f in (a.floor, b.floor) if f is not None), default=None)
    allowed = ASSUMED if floor is None else floor
    interleaved = bool(a.race) and a.race == b.race
    again = _cells(control, device) if control is not None and interleaved else {}
    changes = [
        change
        for key, old in first.items()
        if key in second
        for change in _changes(old, second[key], allowed, interleaved, again.get(key, []))
    ]
    changes.sort(key=_size)
    if again:
        floor = max((c.floor for c in changes if c.floor is not None), default=floor)
    notes, differs = identity(a, b)
    if moved := _other_data(first, second):
        notes.insert(0, moved)
        differs.insert(0, "data")
    return Comparison(
        a=a.name,
        b=b.name,
        changes=changes,
        only_a=sorted(cell_words(rows[0][1]) for key, rows in first.items() if key not in second),
        only_b=sorted(cell_words(rows[0][1]) for key, rows in second.items() if key not in first),
        identity=notes,
        floor=floor,
        differs=differs,
        preset=_and({row.preset for state in (a, b) for row in state.rows}),
        interleaved=interleaved,
        counters=sorted(_counted(first) & _counted(second)),
    )


def identity(a: State, b: State) -> tuple[list[str], list[str]]:
    """Differences in machine, packages and code: sentences, and their subjects."""
    notes, differs = [], []
    if a.devices != b.devices:
        notes.append(f"device: {_and(a.devices)} -> {_and(b.devices)}")
        differs.append("device")
    one, two = a.facts, b.facts
    for key in sorted({*one, *two}):
        if key.startswith(_IGNORED) or one.get(key) == two.get(key):
            continue
        notes.append(f"{key}: {one.get(key, 'missing')} -> {two.get(key, 'missing')}")
        aspect = next(
            (word for start, word in _ASPECTS if f"{key}.".startswith(f"{start}.")), "facts"
        )
        differs.append(aspect)
    order = ["device", *dict.fromkeys(word for _, word in _ASPECTS), "facts"]
    return notes, sorted(set(differs), key=order.index)


def _and(words: set[str]) -> str:
    return " and ".join(sorted(words)) or "none"


Cell = list[tuple[str, Any]]
"""(run, row) of every process of a cell."""


def _cells(state: State, device: bool) -> dict[tuple, Cell]:
    found: dict[tuple, Cell] = {}
    for run, row in zip(state.where, state.rows, strict=True):
        params = msgspec.json.encode(row.params, order="deterministic")
        key = (row.paper, row.experiment, row.group, params, row.preset)
        found.setdefault((*key, row.device if device else ""), []).append((run, row))
    for cell in found.values():  # sums of floats must not depend on the order of the files
        cell.sort(key=lambda one: (one[1].started, one[0], one[1].round, one[1].id))
    return found


def _counted(cells: dict[tuple, Cell]) -> set[str]:
    return {name for cell in cells.values() for _, row in cell for name in exact(row)}


def _other_data(first: dict[tuple, Cell], second: dict[tuple, Cell]) -> str:
    """A sentence where cells of both sides read data of another size or kind, or ""."""
    names = set()
    for key in first:
        if key in second:
            one, two = ({_data(row) for _, row in side[key]} - {None} for side in (first, second))
            if one and two and one != two:
                names |= {found[0] for found in one}
    return f"data: other sizes or sources of {', '.join(sorted(names))}" if names else ""


def _data(row: Any) -> tuple | None:
    if not row.data or row.data.get("dataset") is None:
        return None
    # As words: a plugin may have put anything there.
    return (str(row.data["dataset"]), bool(row.data.get("twin")), str(row.data.get("scale")))


def _changes(
    first: Cell, second: Cell, floor: float, interleaved: bool = False, again: Cell = ()
) -> list[Change]:
    old, new = [row for _, row in first], [row for _, row in second]
    status = _status(old), _status(new)
    differ, paced = counters_that_differ(old, new)
    here = {
        "cell": old[0].cell_hash,
        "paper": old[0].paper,
        "experiment": old[0].experiment,
        "status": status,
        "paced": paced,
        "rows": tuple([(run, row.id) for run, row in side] for side in (first, second)),
        "twin": any(bool(row.data.get("twin")) for row in (*old, *new)),
    }
    name, label = cell_words(old[0]), cell_words(old[0], paper=False)
    one, two = quantities(old), quantities(new)
    pairs = paired_ratios(new, old) if interleaved else {}
    controls = paired_ratios([row for _, row in again], old)
    found = []
    for quantity in one:
        if quantity not in two:
            continue
        ratio = pairs.get(quantity) or ratio_of(two[quantity], one[quantity])
        single = min(len(side[quantity].found) for side in (one, two)) == 1
        reach = _reach(controls.get(quantity))
        edge = floor if reach is None else reach
        edge = max(edge, ONE_PROCESS) if one[quantity].gain and single else edge
        found.append(
            Change(
                name=f"{name}: {quantity}" if quantity else name,
                word=verdict(ratio, edge),
                ratio=ratio,
                counters={} if found else differ,
                label=f"{label}: {one[quantity].words}" if quantity else label,
                quantity=quantity,
                gain=one[quantity].gain,
                values=(_middle(one[quantity].found), _middle(two[quantity].found)),
                floor=edge,
                **here,
            )
        )
    if not found:
        word = "SAME" if status[0] == status[1] else "AMBG"
        found.append(Change(name=name, label=label, word=word, ratio=None, counters=differ, **here))
    return found


def _reach(control: ConfidenceInterval | None) -> float | None:
    """Distance from 1 to the further end of an A/A interval; None where it has none."""
    if control is None or control.low is None or control.high is None:
        return None
    return math.expm1(max(abs(math.log(control.low)), abs(math.log(control.high))))


def _middle(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _status(rows: list[Any]) -> str:
    return next((row.status for row in rows if row.status != "ok"), "ok")


def _size(change: Change) -> tuple[int, bool, float, str]:
    return WORDS.index(change.word), not change.decided, -change.size, change.name
