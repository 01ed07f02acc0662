"""Write docs/performance.md from the kept rows: `python docs/hooks/performance.py`.

Rows of `results/reference/MACHINE/operators` give ratios and, where a race counted bytes or
products, shares of the limits that the same run measured. `results/bench/MACHINE` gives shares of
operators that are not raced. Numbers of two machines never meet in a table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, mode
from typing import Any, Final, NamedTuple

from dgbench.harness.quantities import ONE_PROCESS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
REFERENCE, BENCH = ROOT / "results" / "reference", ROOT / "results" / "bench"
COMMAND = "python docs/hooks/performance.py"

HEAD = f"""<!-- Written by `{COMMAND}` from results/reference and results/bench.
Run it again after scripts/keep_reference.py; a test compares both. -->

# Performance

"""
READING = """
`dgbench reproduce operators` races all of this here and shows every race; what was tried is in the
[log](performance-log.md).

**Ratio**: time of the best peer (that with the lowest ratio) over ours on the same inputs, in turns
inside one process; the 95 % interval is over processes, over turns where one ran. Faster or
**SLOWER** is a workload whose whole interval lies beyond the noise floor of its race; single times
have no interval, and within 10 % they are level.

**Share of the limit**: bytes (or products) that a call needs at least over what a copy (or a matrix
product) on as many threads reached in the same run. Caches lift it above 100 %.
"""
BOUNDS: Final[Mapping[str, str]] = {
    "aggregate": "bytes",
    "merged": "bytes",
    "aggregation_variants": "bytes",
    "merged_backward": "bytes",
    "scan": "products",
    "packed_scan": "products",
    "attention": "bytes",
    "packed_attention": "products",
    "difference": "bytes",
    "rebuild": "bytes",
    "labels": "lines",
    "weighted": "instructions",
    "tree_draws": "lines",
    "edge_sampling": "lines",
    "device_edges": "lines",
    "subgraph_sampling": "lines",
    "device_subgraphs": "launches",
    "partners": "bytes",
    "sampling": "lines",
    "sampling_between_steps": "calls",
    "placed_sampling": "lines",
    "insert": "lines",
    "cache": "bytes",
    "placed_rows": "bytes",
    "loading": "calls",
    "twins": "instructions",
}
"""Experiment -> what bounds its operator, where its rows do not count it."""
BOUND_WORDS: Final = {
    "bandwidth": "bytes", "product_rate": "products",
    "copy": "bytes", "lines": "lines", "products": "products",
}  # fmt: skip
"""Metric of a rate, or bound of a benchmark -> what is counted."""
UNITS: Final = {
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")),
    "lines": ((1e6, "M lines"), (1e3, "k lines")),
    "products": ((1e9, "GFLOP"), (1e6, "MFLOP")),
}


class TableRace(NamedTuple):
    """Contenders of an experiment whose rows are older than races on a device.

    Attributes:
        operator: its name here. experiment, where: rows. bound: what bounds it.
        ours, peers: methods. label: format of a workload, of params of the row.
        phase: of the times that are compared.
    """

    operator: str
    experiment: str
    where: Mapping[str, Any]
    bound: str
    ours: str
    peers: tuple[str, ...]
    label: str
    phase: str | None = None


CPU = ("cpu", "cpu, 2 threads")
TABLES: Final = (
    TableRace(
        "spmm", "device_tables", {"table": "rivals"}, "bytes", "spmm",
        ("cuSPARSE", "select and scatter, as PyG"), "{width} columns",
    ),
    TableRace("partner_sums", "device_draws", {}, "bytes", "both ends", ("index_add by torch",),
              "{what}"),
    TableRace("edge_dots", "device_draws", {}, "bytes", "products", ("products by torch",),
              "{what}"),
    TableRace("transfer as difference", "device_differences", {}, "link", "difference", ("plain",),
              "{delta:.1%} changed, {index}", phase="transfer"),
    TableRace("DeviceRowCache", "device_cache", {}, "bytes", "cache", ("gather",),
              "{hits:.0%} hits, {table}"),
    TableRace("sample_hops", "device_samples", {"walk": "fences"}, "calls", "cuda", CPU,
              "{policy} {fanouts}, {batch} x 3 roots"),
    TableRace("keep_share", "device_draws", {}, "lines", "keys", ("CPU",), "{what}"),
    TableRace("sample_nodewise, layerwise", "device_draws", {}, "lines", "device", ("CPU",),
              "{what}"),
    TableRace("draw_without_replacement", "device_draws", {}, "launches", "keys",
              ("keys by torch.topk", "torch.multinomial", "keys, CPU"), "{what}"),
    TableRace("SegmentTree", "device_draws", {}, "lines", "independent",
              ("prefix sums by torch", "independent, CPU"), "{what}"),
)  # fmt: skip
"""Rows of device sessions before races ran on devices (`schema` 3)."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Time of an operator on one workload beside its limit and its best peer.

    Attributes:
        operator, workload: in words. bound: what bounds it.
        share: part of the limit that it reaches, None where nothing was counted.
        seconds: of a call. peer, peer_seconds: the peer that leaves ours least. ratio: over it.
    """

    operator: str
    workload: str
    bound: str
    share: float | None
    seconds: float
    peer: str
    peer_seconds: float | None
    ratio: Any

    @property
    def side(self) -> int:
        """1 where ours is faster, -1 where it is slower, 0 where they are level."""
        if self.sure:
            return int(self.ratio.side)
        if abs(math.log(self.ratio.value)) < math.log1p(ONE_PROCESS):
            return 0
        return 1 if self.ratio.value > 1 else -1

    @property
    def sure(self) -> bool:
        """True if the ratio has an interval."""
        return self.ratio.low is not None

    @property
    def mark(self) -> str:
        """Word for a workload on which ours is slower."""
        return "**SLOWER**" if self.sure else "**SLOWER**, no interval"


def page() -> str:
    """The page's text."""
    from dgbench.harness.store import Store

    folders = sorted(p.parent for p in REFERENCE.glob("*/operators/run.json"))
    stores = {folder.parent.name: Store.open(folder) for folder in folders}
    found = {name: (store, standings(store.rows())) for name, store in stores.items()}
    others = sorted({p.name for p in REFERENCE.iterdir() if p.is_dir()} - set(stores))
    none = f"- No races of operators are kept of `{'` and `'.join(others)}`.\n" if others else ""
    parts = [HEAD, *_answers(found), none, READING]
    for name, (store, each) in found.items():
        parts += _machine(name, store, each)
    for path in sorted(BENCH.glob("*/*/*.json")):
        parts += _bench(path)
    return "".join(parts)


def standings(rows: Sequence[Any]) -> list[Standing]:
    """Every workload of every operator that has a time and a peer, in the order of the races."""
    from dgbench.lab.noise import NoisePairs
    from dgbench.systems.operators import PAPER
    from dgbench.systems.operators.race import OperatorRace

    pairs = NoisePairs.of(rows)
    return [
        *(
            one
            for race in PAPER.experiments
            if isinstance(race, OperatorRace)
            for one in _raced(race, rows, pairs.floor(PAPER, [race.name]))
        ),
        *(one for race in TABLES for one in _tabled(race, rows)),
    ]


def _raced(race: Any, rows: Sequence[Any], floor: float | None) -> Iterator[Standing]:
    from dgbench.lab.judging import judging
    from dgbench.lab.table import Table
    from dgbench.systems.operators.race import OURS, own_form, speedups
    from dgbench.systems.operators.roofs import limit_share, machine_limits

    with judging(floor):
        ratios = {key: r for key, r in speedups(rows, race.name).items() if key[1] == OURS}
    table = Table.of(rows, paper=race.paper, experiment=race.name)
    for params in dict.fromkeys(key[0] for key in ratios):
        mine = Table(one for one in table if tuple(one.row.params.items()) == params)
        peers = {peer: r for (which, _, peer), r in ratios.items() if which == params}
        limits = {peer: peers.pop(peer) for peer in race.limits if peer in peers}
        peers = {peer: r for peer, r in peers.items() if not own_form(peer)}
        if not peers:
            continue
        peer = min(peers, key=lambda name: peers[name].value)
        bound, share = BOUNDS[race.name], None
        if limits:
            share = limits[race.limits[0]].value
        else:
            device = mine[0]["device"] == "cuda"
            using = "one" if (dict(params).get("threads") or race.threads) == 1 else "all"
            place = {"place": "device"} if device else {"place": "host", "using": using}
            if reached := limit_share(mine, machine_limits(rows, **place)):
                bound, share = BOUND_WORDS[reached.bound], reached.share
        yield Standing(
            race.name, race.workload(dict(params)), bound, share,
            seconds=_seconds(mine, OURS), peer=peer, peer_seconds=_seconds(mine, peer),
            ratio=peers[peer],
        )  # fmt: skip


def _tabled(race: TableRace, rows: Sequence[Any]) -> Iterator[Standing]:
    from dgbench.lab.compare import ratio, ratio_of
    from dgbench.lab.table import Table

    table = Table.of(rows, experiment=race.experiment, **race.where)
    for mine in table.by("group").values():
        copy = device_copy(mine)  # of another session it would be another limit
        times = mine.where("operation_time", phase=race.phase)
        ours = times.where(method=race.ours)
        ratios = {}
        for peer in race.peers:
            turns = mine.where("speedup", method=race.ours, baseline=peer)
            one = ratio_of(turns) or ratio(times.where(method=peer), ours)
            if one is not None:
                ratios[peer] = one
        if not ours or not ratios:
            continue
        peer = min(ratios, key=lambda name: ratios[name].value)
        counted = mine.where("bandwidth", method=race.ours)
        yield Standing(
            race.operator, race.label.format(**ours[0].row.params), race.bound,
            counted[0].value / copy if counted and copy and race.bound == "bytes" else None,
            seconds=median(ours.values), peer=peer, peer_seconds=_seconds(times, peer),
            ratio=ratios[peer],
        )  # fmt: skip


def device_copy(found: Any) -> float | None:
    """Bytes a second of a copy that older rows of a device hold beside their operators."""
    return next((one.value for one in found.where("bandwidth", of="copy")), None)


def _seconds(found: Any, method: str) -> float | None:
    """Median seconds of a call; None of a bar, which has none."""
    times = found.where("operation_time", method=method, caches=None, clock=None)
    return median(times.values) if times else None


# Words


def _answers(found: Mapping[str, tuple[Any, Sequence[Standing]]]) -> Iterator[str]:
    """One sentence a machine."""
    from dgbench.harness.report.run import machine_of

    for name, (store, each) in found.items():
        sides = [one.side for one in each]
        slower = list(dict.fromkeys(one.operator for one in each if one.side < 0))
        single = sum(not one.sure for one in each)
        yield (
            f"- **{machine_of(store)}** (`{name}`): of {len(each)} workloads of "
            f"{len({one.operator for one in each})} operators ours is faster than the best peer on "
            f"{sides.count(1)}, level on {sides.count(0)} and slower on {sides.count(-1)}"
            + (f" ({', '.join(f'`{one}`' for one in slower)})" if slower else "")
            + (
                f"; {single} of the {len(each)} rest on single times, without an interval.\n"
                if single
                else ".\n"
            )
        )


def _machine(name: str, store: Any, each: Sequence[Standing]) -> Iterator[str]:
    from dgbench.harness.report.limits import GIGA, LIMITS
    from dgbench.harness.report.run import machine_of
    from dgbench.lab.table import Table

    rows = store.rows()
    mine = [row for row in rows if row.status == "ok" and row.paper != "-"]
    held = store.provenance()
    facts = [held[key] for key in dict.fromkeys(row.provenance for row in mine)]
    commits = [one.get("code", {}).get("commit", "")[:8] for one in facts]
    machine = [o for r in rows if r.paper == "-" for o in r.observed]
    limits = [
        f"{limit.words} {value:.3g} {limit.unit}"
        for limit in LIMITS
        if (value := limit.read(machine)) is not None
    ]
    if (copy := device_copy(Table.of(rows))) is not None:
        limits.append(f"copy on the device {copy / GIGA:.4g} GB/s")
    flags = [flag for flag in facts[-1]["machine"]["cpu"].get("flags", ()) if "avx" in flag]
    if vector := facts[-1].get("operators", {}).get("vector"):
        flags = [f"operators compiled for {vector}"]
    about = [
        f"`results/reference/{name}/operators`",
        _joined("", (row.started[:10] for row in mine)),
        _joined("commit ", commits),
        _joined("preset ", (row.preset for row in mine)),
        ", ".join(flags) if store.info.get("device") == "cpu" else "",
    ]
    yield f"\n## {machine_of(store)}\n\n{'; '.join(one for one in about if one)}.\n"
    if limits:
        yield f"Limits of the same run: {', '.join(limits)}.\n"
    floors = {one.operator: one.ratio.floor for one in each if one.ratio.floor}
    if floors:
        yield f"Noise floor: {_floors(floors)}.\n"
    yield (
        "\n| operator | bound, share reached | least ratio to the best peer | largest "
        "| faster/level/slower |\n| --- | --- | --- | --- | --- |\n"
    )
    for operator in dict.fromkeys(one.operator for one in each):
        yield _operator([one for one in each if one.operator == operator])
    behind = [one for one in each if one.side < 0]
    if behind:
        yield (
            "\nSlower than the best peer:\n\n"
            "| operator | workload | ours | best peer | its time | ratio | |\n"
            "| --- | --- | ---: | --- | ---: | --- | --- |\n"
        )
        yield from map(_behind, behind)


def _joined(word: str, values: Iterable[str]) -> str:
    """The values that are not empty, each once, behind a word; "" where there is none."""
    found = [value for value in dict.fromkeys(values) if value]
    return word + " and ".join(found) if found else ""


def _floors(floors: Mapping[str, float]) -> str:
    """The commonest floor, and the operators that have another."""
    common = mode(floors.values())
    others = [f"`{name}` {100 * one:.1f} %" for name, one in floors.items() if one != common]
    return ", ".join([f"{100 * common:.1f} %", *others])


def _operator(each: Sequence[Standing]) -> str:
    least = min(each, key=lambda one: one.ratio.value)
    most = max(each, key=lambda one: one.ratio.value)
    shares = [one.share for one in each if one.share is not None]
    bound = " or ".join(dict.fromkeys(one.bound for one in each))
    if shares:
        bound += f", {_range(min(shares), max(shares))}"
    sides = [one.side for one in each]
    counts = "/".join(str(sides.count(side)) for side in (1, 0, -1))
    cells = (
        f"`{each[0].operator}`", bound, _over(least), _ratio(most) if len(each) > 1 else "",
        f"**{counts}**" if -1 in sides else counts,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def _behind(one: Standing) -> str:
    from dgbench.harness.figures.words import seconds_text

    peer = "" if one.peer_seconds is None else seconds_text(one.peer_seconds)
    cells = (
        f"`{one.operator}`", one.workload, seconds_text(one.seconds), one.peer, peer,
        _ratio(one), one.mark,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def _over(one: Standing) -> str:
    text = f"{_ratio(one)} over {one.peer}: {one.workload}"
    return f"**{text}**" if one.side < 0 else text


def _ratio(one: Standing) -> str:
    ratio, places = one.ratio, 2 if one.ratio.value < 10 else 1
    interval = f" [{ratio.low:.{places}f}, {ratio.high:.{places}f}]" if one.sure else ""
    return f"{ratio.value:.{places}f}x{interval}"


def _range(low: float, high: float) -> str:
    """`33 to 210 %`, or one number where both read the same."""
    ends = [f"{100 * end:.{0 if end >= 0.1 else 1}f}" for end in (low, high)]
    return f"{ends[0]} to {ends[1]} %" if ends[0] != ends[1] else f"{ends[0]} %"


def _amount(bound: str, amount: float) -> str:
    for limit, unit in UNITS[bound]:
        if amount >= limit:
            return f"{amount / limit:.3g} {unit}"
    return f"{amount:.3g} {bound}"


def _bench(path: Path) -> Iterator[str]:
    """Shares of the limit of a kept session of `nox -s bench`."""
    session = json.loads(path.read_text())
    commit = session["commit_info"]
    machine = session["machine_info"]["dgbench"]
    yield (
        f"\n## Counted work and its limit: {machine}\n\n"
        f"`{path.parent.relative_to(ROOT).as_posix()}` (`nox -s bench`); {commit['time'][:10]};\n"
        f"commit {commit['id'][:8]}. Least work of a call (sizes are in the file) over its median\n"
        "time, as a share of the limit of the same session: "
        f"{_bench_limits(session['benchmarks'])}.\n\n"
        "| operator | share of the limit |\n| --- | --- |\n"
    )
    for operator, each in _by_function(session["benchmarks"]).items():
        yield _counted(operator, each)


def _bench_limits(benchmarks: Iterable[Mapping[str, Any]]) -> str:
    limits = {one["extra_info"]["bound"]: one["extra_info"]["limit"] for one in benchmarks}
    return ", ".join(
        f"{bound} {_amount(BOUND_WORDS[bound], limit)}/s" for bound, limit in limits.items()
    )


def _by_function(benchmarks: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in benchmarks:
        function = one["name"].removesuffix(f"[{one['param']}]").removeprefix("test_")
        found.setdefault(function, []).append(one)
    return found


def _counted(operator: str, each: Sequence[Mapping[str, Any]]) -> str:
    shares = []
    for one in each:
        extra = one["extra_info"]
        share = extra["amount"] / one["stats"]["median"] / extra["limit"]
        shares.append((f"{one['param']}: " if one["param"] else "") + _range(share, share))
    return f"| `{operator}` | {'; '.join(shares)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"written: {PAGE.name}")
