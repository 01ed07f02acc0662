"""Claims on stale aggregation (5.2, 7.3.3, Figure 11, Tables 2 and 3).

Printed numbers belong to the paper's four graphs, which are twins here, and a twin decides none of
them; what its runs gave is shown beside. Statements about the mechanism take held graphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from dgbench.lab.compare import select
from dgbench.lab.evidence import any_graph, finding, missing, some
from dgbench.lab.table import Table
from dgbench.lab.verbs import asking
from dgbench.systems.base import Claim, Finding
from dgbench.systems.dgc.experiments.common import by_row
from dgbench.systems.dgc.experiments.fig11 import medians
from dgbench.systems.dgc.experiments.settings import BY_NAME, DATASET_OF, MODEL_OF, MODEL_TITLES
from dgbench.systems.dgc.experiments.stale_base import HELD_NAMES
from dgbench.systems.dgc.experiments.stale_points import StaleRunPoint, mean, points

Rows = Sequence[Any]
Said = dict[str, Any]

WITHIN_POINTS: Final = 2.0
"""Tolerance of a loss of accuracy against a printed one, in points."""
WITHIN_SAVED: Final = 5.0
"""Tolerance of a saving against a printed one, in percent of the traffic."""
FIXED: Final = {"0.1D": 0.1, "0.3D": 0.3, "0.5D": 0.5, "0.7D": 0.7, "0.9D": 0.9}
PLAIN: Final = {"0": "without"}
"""Our names of columns that have another one in the ledger."""
MEMORY: Final = ("copies", "formula", "received")
SIZES: Final = "nox -s reproduce -- dgc --preset full trains the paper's graphs (as twins)"


def _runs(
    rows: Rows, experiment: str, datasets: Sequence[str], model: str | None = None
) -> list[StaleRunPoint]:
    """Runs on some graphs, of one model or of all."""
    return points(
        select(rows, experiment=experiment),
        where=lambda d, m, s: d in datasets and model in (None, m),
    )


def _held(rows: Rows, experiment: str, *settings: str) -> list[StaleRunPoint]:
    """Runs of some settings on held graphs."""
    return [run for run in _runs(rows, experiment, HELD_NAMES) if run.setting in settings]


def _rows_of(runs: Sequence[StaleRunPoint]) -> list[Any]:
    return list({run.row.id: run.row for run in runs}.values())


def _by_setting(runs: Sequence[StaleRunPoint]) -> dict[str, StaleRunPoint]:
    return {run.setting: run for run in runs}


def _printed(claim: Claim) -> dict[str, float]:
    """The claim's columns by our names of settings."""
    return {PLAIN.get(str(key), str(key)): float(value) for key, value in claim.value.items()}


def _table(claim: Claim) -> tuple[str, str, str]:
    """(experiment, our dataset, our model) of a cell of Table 2 or 3."""
    dataset = DATASET_OF[claim.workload["datasets"][0]]
    if claim.id.startswith("dgc-tab2"):
        return "table2", dataset, "dysat"
    return "table3", dataset, MODEL_OF[claim.workload["model"]]


def table_accuracy(claim: Claim, rows: Rows) -> Finding:
    """Accuracy by threshold: each printed loss of it within two points of ours."""
    experiment, dataset, model = _table(claim)
    runs = _by_setting(_runs(rows, experiment, [dataset], model))
    printed = _printed(claim)
    shared = {name: value for name, value in printed.items() if name in runs}
    if not shared:
        return missing(f"no run of {experiment} on {BY_NAME[dataset].title}; {SIZES}")
    drops = {name: runs[name].drop for name in shared}
    off = {n: abs(drops[n] - 100 * (printed["without"] - printed[n])) for n in shared}
    first = next(iter(shared.values()))
    base = runs[next(iter(shared))].accuracy + drops[next(iter(shared))] / 100
    return finding(
        _rows_of(list(runs.values())),
        measured={"without": round(base, 3)} | {n: round(runs[n].accuracy, 3) for n in shared},
        holds=max(off.values()) <= WITHIN_POINTS,
        direction=any(drop > 0 for drop in drops.values()),
        reason=f"losses of accuracy differ from the printed ones by up to {max(off.values()):.1f} "
        f"points (the first printed is {first:g})",
    )


def table_traffic(claim: Claim, rows: Rows) -> Finding:
    """Rows saved by threshold: each within five percent of the traffic of the printed one."""
    experiment, dataset, model = _table(claim)
    runs = _by_setting(_runs(rows, experiment, [dataset], model))
    printed = {name: value for name, value in _printed(claim).items() if name in runs}
    if not printed:
        return missing(f"no run of {experiment} on {BY_NAME[dataset].title}; {SIZES}")
    saved = {name: runs[name].saved_rows for name in printed}
    off = max(abs(saved[name] - value) for name, value in printed.items())
    fixed = [saved[name] for name in sorted(saved) if name in FIXED]
    return finding(
        _rows_of(list(runs.values())),
        measured={name: round(value, 2) for name, value in saved.items()},
        holds=off <= WITHIN_SAVED,
        direction=fixed == sorted(fixed) and max(saved.values()) > 0,
        reason=f"savings differ from the printed ones by up to {off:.1f} percent of the rows",
    )


def share_below(claim: Claim, rows: Rows) -> Finding:
    """The share of embeddings that moved less than the printed distance in the printed epoch."""
    dataset = DATASET_OF[claim.workload["datasets"][0]]
    epoch, limit = (
        int(claim.workload.get("epoch", 100)),
        float(claim.workload.get("threshold", 0.3)),
    )
    shares = Table.of(rows, experiment="fig11").where("cumulative_share", dataset=dataset)
    found = shares.where(epoch=epoch, limit=limit)
    if not found:
        return missing(f"no run of fig11 on {BY_NAME[dataset].title} kept epoch {epoch}; {SIZES}")
    share = 100 * found[0].value
    bound = claim.value["low"] if isinstance(claim.value, Mapping) else claim.value
    low = isinstance(claim.value, Mapping)
    return finding(
        found.rows,
        measured=share,
        holds=share >= bound if low else abs(share - bound) <= WITHIN_SAVED,
        direction=share > 50,
        reason=f"epoch {epoch}, distance below {limit:g}; the paper's width and rate are unknown",
    )


@any_graph
def distance_shrinks(claim: Claim, rows: Rows) -> Finding:
    """The median move of embeddings falls from the first epoch kept to the last, on every graph."""
    found = [one for one in medians(rows) if one[1] in HELD_NAMES]
    pairs = [(name, median[0], median[-1]) for _, name, median in found if len(median) > 1]
    if not pairs:
        return missing("the experiment 'fig11' did not run on held graphs")
    falls = [late[1] < early[1] for _, early, late in pairs]
    return finding(
        list({row.id: row for row, *_ in found}.values()),
        measured="; ".join(
            f"{BY_NAME[name].title} {early[1]:.2g} to {late[1]:.2g}" for name, early, late in pairs
        ),
        holds=all(falls),
        direction=sum(falls) > len(falls) / 2,
        reason=f"median over vertex-steps, epoch {pairs[0][1][0]} to {pairs[0][2][0]}, DySAT on "
        "held graphs and not on the paper's",
    )


@any_graph
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
    run = _by_setting(_runs(rows, "table2", ["stack"])).get("0.3D")
    if run is None:
        return missing(f"no run of table2 on Stack at 0.3D; {SIZES}")
    saved, drop = float(claim.value["traffic_saved"]), 100 * float(claim.value["accuracy_drop"])
    return finding(
        [run.row],
        measured={"traffic_saved": round(run.saved_rows, 1), "accuracy_drop": run.drop / 100},
        holds=abs(run.saved_rows - saved) <= WITHIN_SAVED and abs(run.drop - drop) <= WITHIN_POINTS,
        direction=run.saved_rows > 50 and run.drop > 0,
    )


def movie_05(claim: Claim, rows: Rows) -> Finding:
    """The threshold at which Movie saves most like Stack at 0.3 D."""
    stack = _by_setting(_runs(rows, "table2", ["stack"])).get("0.3D")
    movie = [run for run in _runs(rows, "table2", ["movie"]) if run.setting in FIXED]
    if stack is None or not movie:
        return missing(f"no runs of table2 on Stack and Movie; {SIZES}")
    like = min(movie, key=lambda run: abs(run.saved_rows - stack.saved_rows))
    return finding(
        _rows_of([stack, *movie]),
        measured=like.setting,
        holds=like.setting == str(claim.value),
        direction=FIXED[like.setting] > FIXED["0.3D"],
        reason=f"Stack saves {stack.saved_rows:.1f} % at 0.3D, Movie {like.saved_rows:.1f} % at "
        f"{like.setting}",
    )


@any_graph
def monotone(claim: Claim, rows: Rows) -> Finding:
    """A larger threshold saves more and costs accuracy, on every held graph."""
    runs = _held(rows, "table2", *FIXED)
    graphs = {run.dataset for run in runs}
    if not any(sum(run.dataset == name for run in runs) > 1 for name in graphs):
        return missing("the experiment 'table2' did not run on held graphs")
    rises, ends = [], []
    for name in sorted(graphs):
        mine = sorted((r for r in runs if r.dataset == name), key=lambda r: FIXED[r.setting])
        rises.append(all(a < b for a, b in pairwise(run.saved_rows for run in mine)))
        ends.append(mine[-1])
    falls = [run.drop > 1.96 * run.noise for run in ends]
    grows = [run.drop < -1.96 * run.noise for run in ends]
    open_ = len(ends) - sum(falls) - sum(grows)
    drops = [run.drop for run in ends]
    return finding(
        _rows_of(runs),
        measured=f"savings rise on {sum(rises)} of {some(len(rises), 'graph')}; accuracy falls by "
        f"{min(drops):.2f} to {max(drops):.2f} points at {ends[0].setting}",
        holds=all(rises) and all(falls),
        direction=all(rises) and not any(grows),
        undecided=all(rises) and not any(grows) and open_ > 0,
        reason=f"the fall lies inside the noise of the test on {open_} of "
        f"{some(len(ends), 'graph')}; held graphs and not the paper's",
    )


def _thresholds(rows: Rows) -> Table:
    """First and last thresholds, where both signs of equation 6 ran."""
    found = Table.of(rows, experiment="stale_ablation").where("threshold", of=("first", "last"))
    settings = found.by("setting")
    return found if "printed" in settings and len(settings) > 1 else Table()


@any_graph
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
        "direction": low > 0,
        "reason": f"with exp(-norm), which is the default here, it changes by {least:+.2f} to "
        f"{most:+.2f}; it starts from 0.5 in either case",
    }


@any_graph
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


@any_graph
@asking(
    lambda rows: _held(rows, "table3", "adaptive"),
    "the experiment 'table3' did not run on held graphs",
)
def adaptive_mean(claim: Claim, runs: Sequence[StaleRunPoint]) -> Said:
    """Mean loss and saving of the adaptive threshold, over models and held graphs."""
    found = mean(runs)
    saved, drop = float(claim.value["traffic_saved"]), float(claim.value["accuracy_drop"])
    enough = found.saved_rows >= saved - WITHIN_SAVED
    return {
        "measured": {
            "accuracy_drop": round(found.drop, 2),
            "traffic_saved": round(found.saved_rows, 2),
        },
        "holds": enough and found.drop <= drop + WITHIN_POINTS,
        "direction": found.saved_rows > 50 and found.drop <= drop + WITHIN_POINTS,
        "reason": f"{found.saved_bytes:.1f} % of the bytes; {_held_words(runs)}",
    }


def static_spread(claim: Claim, rows: Rows) -> Finding:
    """Savings at 0.5 D for DySAT on Stack and for MPNN-LSTM, on the graph the number belongs to."""
    one = _by_setting(_runs(rows, "table3", ["stack"], "dysat")).get("0.5D")
    other = _by_setting(_runs(rows, "table3", ["movie"], "mpnn_lstm_bare")).get("0.5D")
    if one is None or other is None:
        return missing(f"no runs of table3 on Stack and Movie at 0.5D; {SIZES}")
    found = {"DySAT_Stack": one.saved_rows, "MPNN-LSTM": other.saved_rows}
    return finding(
        _rows_of([one, other]),
        measured={name: round(value, 2) for name, value in found.items()},
        holds=all(abs(v - float(claim.value[n])) <= WITHIN_SAVED for n, v in found.items()),
        direction=one.saved_rows > other.saved_rows,
        reason="the second number is Movie's in Table 3",
    )


def static_epinion(claim: Claim, rows: Rows) -> Finding:
    """Savings and accuracy on Epinion at 0.5 D, DySAT."""
    run = _by_setting(_runs(rows, "table3", ["epinions"], "dysat")).get("0.5D")
    if run is None:
        return missing(f"no run of table3 on Epinion at 0.5D; {SIZES}")
    value = claim.value
    printed = 100 * (value["accuracy_from"] - value["accuracy_to"])
    return finding(
        [run.row],
        measured={
            "traffic_saved": round(run.saved_rows, 2),
            "accuracy_from": round(run.accuracy + run.drop / 100, 3),
            "accuracy_to": round(run.accuracy, 3),
        },
        holds=abs(run.saved_rows - value["traffic_saved"]) <= WITHIN_SAVED
        and abs(run.drop - printed) <= WITHIN_POINTS,
        direction=run.drop > 0,
    )


def _held_words(runs: Sequence[StaleRunPoint]) -> str:
    """Describe the runs that a mean or range covers."""
    graphs = list(dict.fromkeys(BY_NAME[run.dataset].title for run in runs))
    models = list(dict.fromkeys(MODEL_TITLES[run.model] for run in runs))
    return f"{', '.join(models)} on {', '.join(graphs)}, not on the paper's graphs"
