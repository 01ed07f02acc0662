"""Claims on stale aggregation (5.2, 7.3.3, Figure 11, Tables 2 and 3).

Printed numbers belong to the paper's four graphs. They are judged on those where they are held,
else on the held graph of the same site, else on all real graphs: each of these must agree. Twins,
whose features carry no signal, decide none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, Final

from dgbench.lab.compare import select
from dgbench.lab.evidence import finding, missing, some
from dgbench.lab.table import Table
from dgbench.lab.verbs import asking
from dgbench.systems.base import Claim, Finding
from dgbench.systems.dgc.experiments.common import by_row
from dgbench.systems.dgc.experiments.fig11 import medians
from dgbench.systems.dgc.experiments.settings import (
    BY_NAME,
    DATASET_OF,
    MODEL_OF,
    MODEL_TITLES,
    standing_in,
)
from dgbench.systems.dgc.experiments.stale_base import HELD_NAMES
from dgbench.systems.dgc.experiments.stale_points import (
    OverSeeds,
    StaleRunPoint,
    over_seeds,
    points,
)

Rows = Sequence[Any]
Said = dict[str, Any]

WITHIN_POINTS: Final = 0.5
"""Gap of a loss of accuracy to a printed one that no plot shows, in points."""
WITHIN_SAVED: Final = 5.0
"""Tolerance of a saving against a printed one, in percent of the traffic."""
FIXED: Final = {"0.1D": 0.1, "0.3D": 0.3, "0.5D": 0.5, "0.7D": 0.7, "0.9D": 0.9}
PLAIN: Final = {"0": "without"}
"""Our names of columns that have another one in the ledger."""
MEMORY: Final = ("copies", "formula", "received")


def _runs(rows: Rows, experiment: str, model: str | None = None) -> list[StaleRunPoint]:
    """Runs of one model or of all."""
    return points(select(rows, experiment=experiment), where=lambda d, m, s: model in (None, m))


def _standing(
    runs: Sequence[StaleRunPoint], dataset: str, *, any_graph: bool = True
) -> list[StaleRunPoint]:
    """Runs on a graph of the paper or on what stands in for it."""
    return standing_in(
        dataset, runs, lambda run: run.dataset, lambda run: run.twin, any_graph=any_graph
    )


def _by_graph(runs: Sequence[StaleRunPoint]) -> dict[str, dict[str, OverSeeds]]:
    """Runs by graph and setting, over their seeds."""
    found: dict[str, dict[str, OverSeeds]] = {}
    for one in over_seeds(runs):
        found.setdefault(one.dataset, {})[one.setting] = one
    return found


def _held(rows: Rows, experiment: str, *settings: str) -> list[StaleRunPoint]:
    """Runs of some settings on held graphs."""
    return [
        run
        for run in _runs(rows, experiment)
        if run.setting in settings and run.dataset in HELD_NAMES
    ]


def _rows_of(runs: Sequence[StaleRunPoint]) -> list[Any]:
    return list({run.row.id: run.row for run in runs}.values())


def _printed(claim: Claim) -> dict[str, float]:
    """The claim's columns by our names of settings."""
    return {PLAIN.get(str(key), str(key)): float(value) for key, value in claim.value.items()}


def _shown(of: Mapping[str, Any], runs: Sequence[StaleRunPoint]) -> Any:
    """Measured values by graph; of a single graph, that graph's."""
    twin = {run.dataset: run.twin for run in runs}
    if len(of) == 1:
        return next(iter(of.values()))
    return {BY_NAME[name].title + (" (twin)" if twin[name] else ""): v for name, v in of.items()}


def _joint(sides: Sequence[tuple[bool, int]]) -> dict[str, bool]:
    """Fields of a finding from (the printed value is met, side of the sign) of each graph.

    The value holds where it does on every graph; else the sign decides, which is open where it is
    open on a graph and met on no other side.
    """
    holds = all(met for met, _ in sides)
    worst = min(1 if met else side for met, side in sides)
    return {"holds": holds, "direction": worst > 0, "undecided": worst == 0}


def _on(runs: Sequence[StaleRunPoint]) -> str:
    """Graphs and seeds of runs in words."""
    names = dict.fromkeys(BY_NAME[run.dataset].title for run in runs)
    seeds = min(len(one.parts) for one in over_seeds(runs))
    return f"on {', '.join(names)}, {some(seeds, 'seed')}"


def _table(claim: Claim) -> tuple[str, str, str]:
    """(experiment, our dataset, our model) of a cell of Table 2 or 3."""
    dataset = DATASET_OF[claim.workload["datasets"][0]]
    if claim.id.startswith("dgc-tab2"):
        return "table2", dataset, "dysat"
    return "table3", dataset, MODEL_OF[claim.workload["model"]]


def _whole(of: Mapping[str, Any], printed: Mapping[str, float]) -> bool:
    """Return True if every printed column was measured; a part of them is no table."""
    return set(printed) - {"without"} <= set(of)


def _missing(experiment: str, model: str | None = None) -> Finding:
    what = f" of {MODEL_TITLES[model]}" if model else ""
    return missing(f"no run{what}: the experiment '{experiment}' did not run on a real graph")


def table_accuracy(claim: Claim, rows: Rows) -> Finding:
    """Accuracy by threshold: each printed loss of it within half a point of ours; its sign is that
    of the largest threshold's loss, beyond the noise of seeds."""
    experiment, dataset, model = _table(claim)
    printed = _printed(claim)
    runs = [run for run in _runs(rows, experiment, model) if run.setting in printed]
    runs = _standing(runs, dataset)
    if not runs:
        return _missing(experiment, model)
    sides, shown, off = [], {}, 0.0
    for name, of in _by_graph(runs).items():
        lost = {n: 100 * (printed["without"] - printed[n]) for n in of}
        gaps = [abs(of[n].drop - lost[n]) for n in of]
        fixed = [n for n in of if n in FIXED]
        last = of[max(fixed, key=lambda n: FIXED[n])] if fixed else next(iter(of.values()))
        sides.append((_whole(of, printed) and max(gaps) <= WITHIN_POINTS, last.side))
        off = max(off, *gaps)
        base = next(iter(of.values())).base
        shown[name] = {"without": round(base, 3)} | {n: round(of[n].accuracy, 3) for n in of}
    return finding(
        _rows_of(runs),
        measured=_shown(shown, runs),
        **_joint(sides),
        reason=f"losses of accuracy differ from the printed ones by up to {off:.1f} points; "
        f"{_on(runs)}",
    )


def table_traffic(claim: Claim, rows: Rows) -> Finding:
    """Rows saved by threshold: each within five percent of the traffic of the printed one; the sign
    is that more is saved by each larger threshold, and something by the largest."""
    experiment, dataset, model = _table(claim)
    printed = _printed(claim)
    runs = [run for run in _runs(rows, experiment, model) if run.setting in printed]
    runs = _standing(runs, dataset)
    if not runs:
        return _missing(experiment, model)
    sides, shown, off = [], {}, 0.0
    for name, of in _by_graph(runs).items():
        saved = {n: of[n].saved_rows for n in printed if n in of}
        gaps = [abs(saved[n] - printed[n]) for n in saved]
        fixed = [saved[n] for n in sorted(saved) if n in FIXED]
        rises = all(a <= b for a, b in pairwise(fixed)) and max(saved.values()) > 0
        sides.append((_whole(of, printed) and max(gaps) <= WITHIN_SAVED, 1 if rises else -1))
        off = max(off, *gaps)
        shown[name] = {n: round(value, 2) for n, value in saved.items()}
    return finding(
        _rows_of(runs),
        measured=_shown(shown, runs),
        **_joint(sides),
        reason=f"savings differ from the printed ones by up to {off:.1f} percent of the rows; "
        f"{_on(runs)}",
    )


def share_below(claim: Claim, rows: Rows) -> Finding:
    """The share of embeddings that moved less than the printed distance in the printed epoch."""
    dataset = DATASET_OF[claim.workload["datasets"][0]]
    epoch, limit = (
        int(claim.workload.get("epoch", 100)),
        float(claim.workload.get("threshold", 0.3)),
    )
    shares = Table.of(rows, experiment="fig11").where("cumulative_share")
    kept = [one for one in shares if one["epoch"] == epoch and one["limit"] == limit]
    found = standing_in(
        dataset, kept, lambda one: one["dataset"], lambda one: bool(one.row.data.get("twin")),
        any_graph=True,
    )  # fmt: skip
    if not found:
        hint = "" if epoch <= 20 else "; nox -s reproduce -- dgc --preset full trains as long"
        return missing(f"no run of fig11 kept epoch {epoch}{hint}")
    percent = {BY_NAME[one["dataset"]].title: 100 * one.value for one in found}
    bound = isinstance(claim.value, Mapping)
    target = float(claim.value["low"] if isinstance(claim.value, Mapping) else claim.value)
    return finding(
        [one.row for one in found],
        measured=next(iter(percent.values())) if len(percent) == 1 else percent,
        holds=all(s >= target if bound else abs(s - target) <= WITHIN_SAVED
                  for s in percent.values()),
        reason=f"epoch {epoch}, distance below {limit:g}, on {', '.join(percent)}; the paper's "
        "width and rate are unknown",
    )  # fmt: skip


def distance_shrinks(claim: Claim, rows: Rows) -> Finding:
    """The median move of embeddings falls from the first epoch kept to the last, on every graph and
    for every seed."""
    found = [one for one in medians(rows) if one[1] in HELD_NAMES]
    pairs = [(name, kept[0], kept[-1]) for _, name, kept in found if len(kept) > 1]
    if not pairs:
        return missing("the experiment 'fig11' did not run on held graphs")
    falls = [late[1] < early[1] for _, early, late in pairs]
    words = []
    for graph in dict.fromkeys(name for name, *_ in pairs):
        ends = [(early[1], late[1]) for name, early, late in pairs if name == graph]
        first, last = (fmean(values) for values in zip(*ends, strict=True))
        words.append(f"{BY_NAME[graph].title} {first:.2g} to {last:.2g}")
    return finding(
        list({row.id: row for row, *_ in found}.values()),
        measured="; ".join(words),
        holds=all(falls),
        reason=f"median over vertex-steps, epoch {pairs[0][1][0]} to {pairs[0][2][0]}, DySAT",
    )


@asking(
    lambda rows: Table.of(rows, experiment="stale_ablation").where("memory", of=MEMORY),
    "the experiment 'stale_ablation' did not run",
)
def cache_memory(claim: Claim, found: Table) -> Said:
    """Bytes of copies on senders against four per float of each row that others read."""
    runs = [
        run.numbers("of")
        for mine in by_row(found)
        for run in mine.by("dataset", "model", "setting", "method").values()
    ]
    ranks = [of for of in runs if "received" in of]
    took = [of["copies"] for of in runs]
    words = ""
    if ranks:
        kept = [of["received"] / max(1, of["copies"]) for of in ranks]
        words = f"; receivers keep copies, too, {min(kept):.2g} to {max(kept):.2g} times as much"
    return {
        "measured": f"one copy of each boundary row and exchange, {min(took)} to {max(took)} bytes",
        "holds": all(of["copies"] == of["formula"] for of in runs),
        "reason": f"{some(len(runs), 'run')}, {some(len(ranks), 'of ranks', 'of ranks')}: measured "
        f"bytes are 4 times the floats of the rows that others read{words}",
    }


def stack_03(claim: Claim, rows: Rows) -> Finding:
    """Savings and loss on Stack at 0.3 D."""
    runs = [run for run in _runs(rows, "table2") if run.setting == "0.3D"]
    runs = _standing(runs, "stack", any_graph=False)
    if not runs:
        return missing("no run of table2 at 0.3D on Stack or a graph of its site")
    (one,) = over_seeds(runs)
    saved, drop = float(claim.value["traffic_saved"]), 100 * float(claim.value["accuracy_drop"])
    met = abs(one.saved_rows - saved) <= WITHIN_SAVED and abs(one.drop - drop) <= WITHIN_POINTS
    return finding(
        _rows_of(runs),
        measured={"traffic_saved": round(one.saved_rows, 1), "accuracy_drop": one.drop / 100},
        **_joint([(met, min(one.side, 1 if one.saved_rows > 0 else -1))]),
        reason=_on(runs),
    )


def movie_05(claim: Claim, rows: Rows) -> Finding:
    """The smallest threshold at which Movie saves about as much as Stack at 0.3 D: at most five
    percent of the traffic less, as in Table 2."""
    every = _runs(rows, "table2")
    stack = _standing([r for r in every if r.setting == "0.3D"], "stack", any_graph=False)
    movie = _standing([r for r in every if r.setting in FIXED], "movie", any_graph=False)
    if not stack or not movie:
        return missing("needs the real Movie and a graph of Stack's site in table2")
    bar = over_seeds(stack)[0].saved_rows - WITHIN_SAVED
    of = {one.setting: one.saved_rows for one in over_seeds(movie)}
    enough = [name for name in FIXED if of.get(name, 0.0) >= bar]
    first = enough[0] if enough else "none"
    return finding(
        _rows_of([*stack, *movie]),
        measured=first,
        holds=first == str(claim.value),
        reason=f"{_on(stack)} saves {bar + WITHIN_SAVED:.1f} % at 0.3D, Movie "
        + ", ".join(f"{value:.1f} % at {name}" for name, value in of.items()),
    )


def monotone(claim: Claim, rows: Rows) -> Finding:
    """A larger threshold saves more and costs accuracy, on every held graph."""
    runs = _held(rows, "table2", *FIXED)
    # Where some graphs have fewer seeds, those with most of them decide.
    most = max((len(one.parts) for one in over_seeds(runs)), default=0)
    named = {one.dataset for one in over_seeds(runs) if len(one.parts) == most}
    runs = [run for run in runs if run.dataset in named]
    by = {name: of for name, of in _by_graph(runs).items() if len(of) > 1}
    if not by:
        return missing("the experiment 'table2' did not run on held graphs")
    rises, ends = [], []
    for of in by.values():
        mine = sorted(of.values(), key=lambda one: FIXED[one.setting])
        rises.append(all(a < b for a, b in pairwise(one.saved_rows for one in mine)))
        ends.append(mine[-1])
    sides = [one.side if rise else -1 for one, rise in zip(ends, rises, strict=True)]
    said = ", ".join(
        f"{BY_NAME[one.dataset].title} {one.drop:+.2f} [{one.low:+.2f}, {one.high:+.2f}]"
        for one in ends
    )
    return finding(
        _rows_of(runs),
        measured=f"savings rise on {sum(rises)} of {some(len(rises), 'graph')}; points of accuracy "
        f"lost at {ends[0].setting}: {said}",
        holds=min(sides) > 0,
        undecided=min(sides) == 0,
        reason=f"{_on(runs)}",
    )


def _thresholds(rows: Rows) -> Table:
    """First and last thresholds, where both signs of equation 6 ran."""
    found = Table.of(rows, experiment="stale_ablation").where("threshold", of=("first", "last"))
    settings = found.by("setting")
    return found if "printed" in settings and len(settings) > 1 else Table()


@asking(_thresholds, "the experiment 'stale_ablation' did not run")
def eq6_direction(claim: Claim, found: Table) -> Said:
    """Check that the printed formula grows as the loss falls, as the text says."""
    changes: dict[bool, list[float]] = {True: [], False: []}
    for first, last in zip(found.where(of="first"), found.where(of="last"), strict=True):
        changes[first["setting"] == "printed"].append(last.value - first.value)
    (low, high), (least, most) = ((min(c), max(c)) for c in (changes[True], changes[False]))
    return {
        "measured": f"theta / D changes by {low:+.2f} to {high:+.2f} as printed",
        "holds": low > 0,
        "reason": f"with exp(-norm), which is the default here, it changes by {least:+.2f} to "
        f"{most:+.2f}; it starts from 0.5 in either case",
    }


@asking(
    lambda rows: _held(rows, "table3", "0.3D", "0.5D", "0.7D", "adaptive"),
    "the experiment 'table3' did not run on held graphs",
)
def saved_range(claim: Claim, runs: Sequence[StaleRunPoint]) -> Said:
    """Least and most traffic saved by thresholds of Table 3, over models and held graphs."""
    low, high = min(r.saved_rows for r in runs), max(r.saved_rows for r in runs)
    return {
        "measured": {"low": round(low, 2), "high": round(high, 2)},
        "holds": abs(low - claim.value["low"]) <= WITHIN_SAVED
        and abs(high - claim.value["high"]) <= WITHIN_SAVED,
        "direction": low > 0,
        "reason": _held_words(runs),
    }


@asking(
    lambda rows: _held(rows, "table3", "adaptive"),
    "the experiment 'table3' did not run on held graphs",
)
def adaptive_mean(claim: Claim, runs: Sequence[StaleRunPoint]) -> Said:
    """Mean loss and saving of the adaptive threshold, over models and held graphs."""
    each = over_seeds(runs)
    n = len(each)
    lost, rows_saved = (sum(values) / n for values in (
        [one.drop for one in each], [one.saved_rows for one in each]
    ))  # fmt: skip
    wide = sum(((one.high - one.low) / 2) ** 2 for one in each) ** 0.5 / n
    bytes_saved = sum(run.saved_bytes for run in runs) / len(runs)
    saved, drop = float(claim.value["traffic_saved"]), float(claim.value["accuracy_drop"])
    met = abs(rows_saved - saved) <= WITHIN_SAVED and abs(lost - drop) <= WITHIN_POINTS
    sign = 1 if lost - wide > 0 else -1 if lost + wide < 0 else 0
    return {
        "rows": _rows_of(runs),
        "measured": {"accuracy_drop": round(lost, 2), "traffic_saved": round(rows_saved, 2)},
        **_joint([(met, min(sign, 1 if rows_saved > 0 else -1))]),
        "reason": f"loss of accuracy {lost:.2f} [{lost - wide:.2f}, {lost + wide:.2f}] points; "
        f"{bytes_saved:.1f} % of the bytes; {_held_words(runs)}",
    }


def static_spread(claim: Claim, rows: Rows) -> Finding:
    """Savings at 0.5 D: DySAT's on Stack above MPNN-LSTM's on the graph that has its number."""
    every = [run for run in _runs(rows, "table3") if run.setting == "0.5D"]
    one = _standing([r for r in every if r.model == "dysat"], "stack", any_graph=False)
    other = _standing([r for r in every if r.model == "mpnn_lstm_bare"], "movie")
    if not one or not other:
        return missing("no runs of table3 at 0.5D on Stack, or a graph of its site, and another")
    top = over_seeds(one)[0].saved_rows
    each = {BY_NAME[o.dataset].title: o.saved_rows for o in over_seeds(other)}
    met = abs(top - float(claim.value["DySAT_Stack"])) <= WITHIN_SAVED and all(
        abs(v - float(claim.value["MPNN-LSTM"])) <= WITHIN_SAVED for v in each.values()
    )
    shown = {f"MPNN-LSTM, {name}": round(value, 2) for name, value in each.items()}
    return finding(
        _rows_of([*one, *other]),
        measured={"DySAT_Stack": round(top, 2), **shown},
        **_joint([(met, 1 if top > max(each.values()) else -1)]),
        reason=f"DySAT {_on(one)}; the second number is Movie's in Table 3",
    )


def static_epinion(claim: Claim, rows: Rows) -> Finding:
    """Savings and accuracy on Epinion at 0.5 D, DySAT."""
    runs = [run for run in _runs(rows, "table3", "dysat") if run.setting == "0.5D"]
    runs = _standing(runs, "epinions")
    if not runs:
        return _missing("table3", "dysat")
    value = claim.value
    printed = 100 * (value["accuracy_from"] - value["accuracy_to"])
    sides, shown = [], {}
    for one in over_seeds(runs):
        met = abs(one.saved_rows - value["traffic_saved"]) <= WITHIN_SAVED
        met = met and abs(one.drop - printed) <= WITHIN_POINTS
        sides.append((met, min(one.side, 1 if one.saved_rows > 0 else -1)))
        shown[one.dataset] = {
            "traffic_saved": round(one.saved_rows, 2),
            "accuracy_from": round(one.base, 3),
            "accuracy_to": round(one.accuracy, 3),
        }
    return finding(_rows_of(runs), measured=_shown(shown, runs), **_joint(sides), reason=_on(runs))


def _held_words(runs: Sequence[StaleRunPoint]) -> str:
    """Describe the runs that a mean or range covers."""
    graphs = list(dict.fromkeys(BY_NAME[run.dataset].title for run in runs))
    models = list(dict.fromkeys(MODEL_TITLES[run.model] for run in runs))
    return f"{', '.join(models)} on {', '.join(graphs)}, not on the paper's graphs"
