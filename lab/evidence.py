"""Scope of a claim, conditions of what was observed, and the strength that follows from the two.

No check names a strength: it finds something, and `strength` compares the conditions under which
the numbers that it read were obtained with what the claim is about.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from dgbench.lab import metrics
from dgbench.lab.compare import Ratio
from dgbench.lab.judging import Read
from dgbench.lab.metrics import Source
from dgbench.lab.paper import Claim, Finding, Paper
from dgbench.lab.paper import PapersGraphs as PapersGraphs

MIN_PROCESSES: Final = 5
"""Pairs of processes below which an interval of a ratio of times is no strong evidence."""
MIN_SEEDS: Final = 5
"""Seeds below which what a model learned is no strong evidence."""

Strength = Literal["strong", "weak", "none"]
Data = Literal["", "real", "part", "other", "printed", "twin"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Device, data and rule on twins that a claim is about.

    Attributes:
        device: `gpu`, or `cpu` where the quantity is the host's or no device's, or `both` where
            it compares a GPU with a CPU.
        gpus: how many GPUs the paper used for it.
        named_data: whether the number is bound to the datasets that the paper names.
        twin: what a synthetic twin may say: `allowed`, `direction` or `never`; `twin_reason` why.
    """

    device: Literal["cpu", "gpu", "both"]
    gpus: int
    named_data: bool
    twin: Literal["allowed", "direction", "never"]
    twin_reason: str = ""

    @classmethod
    def of(cls, claim: Claim, twin_rule: tuple[str, str] | None = None) -> Scope:
        """The scope of a claim; of its own and the given rule on twins the stricter one counts."""
        gpus = int(claim.needs.get("gpus", 0) or 0)
        device = claim.device or ("gpu" if gpus else "cpu")
        rule, why = claim.twin, claim.twin_reason
        named = bool(claim.needs.get("real_dataset_required", False))
        if rule == "allowed" and named:
            rule, why = "direction", why or "the number is bound to one dataset"
        order = ("allowed", "direction", "never")
        if twin_rule is not None and order.index(twin_rule[0]) > order.index(rule):
            rule, why = twin_rule  # type: ignore[assignment]
        return cls(device, 0 if device == "cpu" else gpus, named, rule, why)


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions under which the numbers of a finding were obtained, as rows recorded them.

    Attributes:
        source: of the numbers read, the one that depends on most.
        device: `cuda` where every row worked on a GPU, else `cpu`. devices: of all rows; without
            any, `device` alone.
        gpus: GPUs that worked together; 0 on a CPU.
        data: `real` (a dataset of the paper, whole), `part` of one, `other` than the paper's,
            `printed` sizes, `twin`, or "" where no dataset was used.
        processes: of the cell that has the fewest, rounds that a later one repeats left out.
        disturbed: processes among these that something disturbed and no round repeats.
        seeds: distinct ones of what was learned.
        model, proxy: see `Finding`.
    """

    source: Source = "counted"
    device: Literal["cpu", "cuda"] = "cpu"
    gpus: int = 0
    data: Data = ""
    processes: int = 1
    disturbed: int = 0
    seeds: int = 1
    model: str = ""
    proxy: str = ""
    devices: frozenset[str] = frozenset()


def conditions(
    claim: Claim, finding: Finding, rows: Iterable[Any], reads: Collection[Read], paper: Paper
) -> Conditions:
    """The conditions of a finding: of the rows that it names, and of what was read from them."""
    reads = reads if finding.reads is None else finding.reads
    names = set(finding.rows)
    used = [row for row in rows if row.id in names]
    counting = [row for row in used if not getattr(row, "replaced", False)]
    mine = [one for one in reads if one.row in names]
    where = {row.id: row.experiment for row in used}
    declared = {one.name: one.sources for one in paper.experiments}
    sources: list[Source] = [
        "printed" if one.printed else metrics.source(one.metric, declared.get(where[one.row]))
        for one in mine
    ]
    # A finding that read no number rests on how its cells ended, which a device decides.
    source: Source = max(sources, key=metrics.SOURCES.index, default="probed")
    gpus = [_gpus(row) for row in used]
    return Conditions(
        source="projected" if finding.model else source,
        device="cuda" if gpus and min(gpus) > 0 else "cpu",
        gpus=min(gpus, default=0),
        data="printed" if source == "printed" else _data(used, paper.graphs, claim),
        processes=_processes(counting) if finding.processes is None else finding.processes,
        disturbed=sum(bool(getattr(row, "disturbed", "")) for row in counting),
        seeds=_seeds(used, mine),
        model=finding.model,
        proxy=finding.proxy,
        devices=frozenset("cuda" if count else "cpu" for count in gpus),
    )


def strength(scope: Scope, found: Conditions) -> tuple[Strength, list[str]]:
    """Strength of what was found under these conditions for a claim of this scope, and why not
    more.

    Numbers that were counted depend on no device, and where the claim is bound to no dataset on no
    data. Times and probes need the claim's class of device and its number, what was learned five
    seeds, ratios of times five processes. A projection, a proxy or a publisher's count is weak.
    """
    if found.data == "twin" and scope.twin == "never":
        why = scope.twin_reason or "the twin is fitted to this number"
        return "none", [f"needs the real data: {why}"]
    lacks: list[str] = []
    if found.source == "projected":
        lacks.append(f"projected by the {found.model}" if found.model else "projected")
    if found.source == "printed":
        lacks.append("counts that publishers print")
    if found.proxy:
        lacks.append(f"a proxy: {found.proxy}")
    if found.source in ("timed", "probed"):
        if scope.device == "both":
            there = found.devices or {found.device}
            titles = {"cuda": "GPU", "cpu": "CPU"}
            lacks += [f"no {title} among them" for one, title in titles.items() if one not in there]
        elif scope.device == "gpu" and found.device != "cuda":
            lacks.append("a CPU stands for a GPU")
        elif scope.device == "cpu" and found.device == "cuda":
            lacks.append("a GPU stands for a CPU")
        elif scope.gpus > 1 and found.gpus < scope.gpus:
            lacks.append(f"{found.gpus} of {scope.gpus} GPUs")
    if found.source == "timed" and found.processes < MIN_PROCESSES:
        lacks.append(f"{found.processes} of {MIN_PROCESSES} processes")
    if found.source == "learned" and found.seeds < MIN_SEEDS:
        lacks.append(f"{found.seeds} of {MIN_SEEDS} seeds")
    if scope.named_data and found.data in _WEAK_DATA:
        lacks.append(_WEAK_DATA[found.data])
    elif found.data == "twin" and scope.twin == "direction":
        lacks.append(_WEAK_DATA["twin"])
    return ("weak" if lacks else "strong"), lacks


_WEAK_DATA: Final[Mapping[str, str]] = {
    "part": "a part of the dataset",
    "other": "another dataset",
    "twin": "a twin",
}


def _gpus(row: Any) -> int:
    """GPUs that a row's process worked on; 0 on a CPU."""
    if row.device != "cuda":
        return 0
    touched = getattr(row, "touched", None) or {}
    return int(touched.get("gpus", 1) or 1)


def _data(rows: Sequence[Any], graphs: PapersGraphs | None, claim: Claim) -> Data:
    """The weakest kind of data among rows."""
    said = claim.workload.get("datasets") or ()
    named = {_plain_name(name) for name in ([said] if isinstance(said, str) else said)}
    kinds = {_data_of(row, graphs, named) for row in rows} or {""}
    return max(kinds, key=_WORSE.index)


_WORSE: Final = ("", "printed", "real", "part", "other", "twin")


def _plain_name(name: Any) -> str:
    """A dataset's name in letters and digits alone: papers and cards spell them differently."""
    return "".join(letter for letter in str(name).lower() if letter.isalnum())


def _data_of(row: Any, graphs: PapersGraphs | None, named: Collection[str]) -> Data:
    if bool(row.data.get("twin")):
        return "twin"
    if getattr(row, "read_sizes_only", False):
        return "printed"
    names = getattr(row, "datasets", None)
    if names is None:
        names = [row.params.get("dataset") or row.data.get("dataset")]
    names = [name for name in names if name and name != "none"]
    if not names:
        return ""
    known = (_plain_name(name) in named or (graphs and graphs.has(name)) for name in names)
    if graphs is not None and not all(known):
        return "other"
    scale = row.data.get("scale", 1)
    whole = not isinstance(scale, int | float) or scale >= 1
    return "real" if whole and row.data.get("kind") != "subset" else "part"


def _processes(rows: Sequence[Any]) -> int:
    """Processes of the cell that has the fewest."""
    cells: dict[tuple, set[int]] = {}
    for row in rows:
        params = tuple(sorted((name, repr(value)) for name, value in row.params.items()))
        cells.setdefault((row.experiment, params), set()).add(row.round)
    return min(map(len, cells.values()), default=0)


def _seeds(rows: Sequence[Any], reads: Iterable[Read]) -> int:
    """Distinct seeds of what was read; 1 where no seed is named."""
    seeds = {repr(one.seed) for one in reads if one.seed is not None}
    seeds |= {repr(row.params["seed"]) for row in rows if "seed" in row.params}
    return max(1, len(seeds))


def uses_twin(rows: Iterable[Any]) -> bool:
    """Return True if any of the rows used a synthetic twin."""
    return any(bool(row.data.get("twin")) for row in rows)


def ids(rows: Iterable[Any]) -> list[str]:
    """Ids of the rows, in their order."""
    return [row.id for row in rows]


def from_ratio(
    ratio: Ratio | None, *, deviation: float | None = None, missing: str = "", **fields: Any
) -> Finding:
    """A finding from a ratio of times.

    Args:
        deviation: in place of the ratio's own. missing: why there is no ratio.
        fields: further ones of `Finding`; `target` is the paper's factor.
    """
    if ratio is None:
        return Finding(reason=missing or "no row of this run measures it")
    return Finding(
        measured=ratio.value, direction=ratio.value > 1, low=ratio.low, high=ratio.high,
        rows=ratio.rows, deviation=ratio.deviation if deviation is None else deviation,
        processes=ratio.processes, **fields,
    )  # fmt: skip


def missing(reason: str) -> Finding:
    """Nothing was measured, and why."""
    return Finding(reason=reason)


def some(number: int, word: str, many: str = "") -> str:
    """A number and what it counts: `1 graph`, `4 graphs`; `many` where an s is not enough."""
    return f"{number} {word if number == 1 else many or word + 's'}"


def finding(rows: Sequence[Any], *, measured: Any, **fields: Any) -> Finding:
    """A finding that rests on these rows, whose ids and largest deviation it takes; `fields` are
    further ones of `Finding`."""
    deviations = [abs(value) for row in rows for value in row.deviation.values()]
    return Finding(
        measured=measured, rows=ids(rows), deviation=max(deviations, default=None), **fields
    )


def on_gpu(rows: Iterable[Any]) -> bool:
    """Return True if all rows worked on a GPU."""
    return all(row.device == "cuda" for row in rows)
