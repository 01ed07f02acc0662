"""Rows of DGC's experiments as the harness keeps them, from made-up observations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

import paper_rows
from msgspec.structs import replace

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import Verdict
from dgbench.harness.store.row import Row
from dgbench.lab.table import Observation, observation
from dgbench.systems.base import Finding, Measurement
from dgbench.systems.dgc import PAPER
from dgbench.systems.dgc.experiments.race_runs import (
    CONTIGUOUS,
    DGC,
    EXACT,
    PHASES,
    PLAIN,
    PSS,
    PSS_TS,
    PTS,
    TWINS,
)
from dgbench.systems.dgc.experiments.settings import MODELS

seen = observation
FLOOR = 0.01
"""Noise floor of made-up runs."""
CLAIMS = {claim.id.removeprefix("dgc-"): claim for claim in load_ledger(PAPER.ledger)}
REAL = ("sx-mathoverflow", "amazon-magazine")
"""Real graphs of the sites of Stack and Amazon."""
USUAL = {
    PSS: 6.0, PTS: 4.0, PSS_TS: 5.0, PLAIN: 3.0, EXACT: 2.0, DGC: 1.5, CONTIGUOUS: 6.5
}  # fmt: skip


def judge(name: str, rows: Sequence[Row], *, floor: float | None = FLOOR) -> Verdict:
    """The verdict of a claim from these rows, as the harness reaches it."""
    return paper_rows.judged(PAPER, CLAIMS[name], rows, floor)[1]


def find(name: str, rows: Sequence[Row]) -> Finding:
    """Finding of a claim in these rows."""
    return PAPER.checks[f"dgc-{name}"](CLAIMS[name], rows)


def row_of(
    experiment: str, params: dict[str, Any], observed: Iterable[Observation] = (), **fields: Any
) -> Row:
    """A row on real data; `fields` replace what it would hold."""
    name = "/".join(map(str, params.values()))
    common = {
        "id": f"{experiment}/{name}", "paper": "dgc", "group": "g", "data": {"twin": False},
        "observed": list(observed),
    }  # fmt: skip
    return Row(experiment=experiment, params=params, **{**common, **fields})


def kept(found: Measurement, experiment: str, params: dict[str, Any], **fields: Any) -> Row:
    """The row of a measurement."""
    common = {"data": found.data, "deviation": found.deviation}
    return row_of(experiment, params, found.observations, **{**common, **fields})


def but(row: Row, metric: str, value: float, **dims: Any) -> Row:
    """A row that observed another number of these dimensions; a new one where it had none."""
    rest = [one for one in row.observed if (one.metric, one.dims) != (metric, dims)]
    return replace(row, observed=[*rest, seen(metric, value, **dims)])


def race_row(
    experiment: str,
    raced: dict[tuple[str, str], dict[str, float]],
    *,
    twin: bool = False,
    ranks: int = 4,
    link: str = "gloo",
    noise: float = 0.01,
    work: dict[str, float] | None = None,
    divergence: dict[str, float] | None = None,
    sent: dict[str, int] | None = None,
    sizes: tuple[int, int] = (1000, 2000),
    part: dict[str, int] | None = None,
    round: int = 1,
) -> Row:
    """A row as `race` makes it: {(dataset, model): {contender: seconds}}.

    A turn is off by `noise` in turn; `work` of each epoch, half a second, is no communication.
    """
    deviation, found = {}, Measurement()
    for (dataset, model), times in raced.items():
        dims = {"dataset": dataset, **(part or {}), "model": model}
        deviation[f"{dataset}/{model}"] = 1e-7
        for n, (name, seconds) in enumerate(times.items()):
            observe = partial(found.observe, setting=name, **dims)
            for turn in range(6):
                observe("epoch_time", seconds * (1 + noise * ((turn + n) % 3 - 1)), turn=turn)
            own = (work or {}).get(name, 0.5)
            spent = dict.fromkeys(PHASES, 0.0) | {"gnn": own, "communicate": seconds - own}
            for phase, s in spent.items():
                observe("phase_time", s, phase=phase)
            observe("divergence", (divergence or {}).get(name, 1.5))
            observe("exchanged", (sent or {}).get(name, int(1e6 * seconds)))
        found.observe("vertex_steps", sizes[0], **dims)
        found.observe("edges", sizes[1], **dims)
    name = next(iter(raced))[0]
    params = {
        "part": "race", "dataset": name, "models": " ".join(m for _, m in raced), "ranks": ranks,
        "link": link,
    }  # fmt: skip
    return row_of(
        experiment, params, found.observations, data={"twin": twin}, deviation=deviation,
        id=f"{experiment}-{name}-{ranks}-{twin}-{link}-{round}", round=round,
    )  # fmt: skip


def fig12(change: dict | None = None, datasets: Sequence[str] = REAL, **more: Any) -> list[Row]:
    """Races of all models on each of these graphs; usual times but for `change`."""
    times = {**USUAL, **(change or {})}
    return [race_row("fig12", {(name, m): times for m in MODELS}, **more) for name in datasets]


def twins(change: dict | None = None) -> list[Row]:
    """The same races on twins of the paper's graphs."""
    return fig12(change, TWINS, twin=True)


def fig4(times: dict[str, dict[str, float]], **more: Any) -> list[Row]:
    """Races of DySAT by graph; of `more`, what is told by graph."""
    rows = []
    for name, one in times.items():
        own = {k: v.get(name) if isinstance(v, dict) else v for k, v in more.items()}
        rows.append(race_row("fig4", {(name, "dysat"): one}, **own))
    return rows


def stale_row(
    observed: list[Observation], experiment: str = "table3", *, graphs: str = "wikipedia",
    twin: bool = False, **fields: Any,
) -> Row:  # fmt: skip
    """A row of the experiments on stale aggregation."""
    names = {one.dims["dataset"]: None for one in observed if "dataset" in one.dims}
    data = {"twin": twin, "dataset": ", ".join(names or [graphs])}
    return row_of(experiment, {"graphs": graphs}, observed, data=data, **fields)


def learned(
    runs: dict[tuple[str, str, str], tuple[float, float]], experiment: str = "table2",
    epochs: int | None = None, **fields: Any,
) -> Row:  # fmt: skip
    """A row of trainings: (graph, model, setting) -> (accuracy, share of rows saved)."""
    found = Measurement()
    for graph, model in {run[:2] for run in runs} if epochs else ():
        found.observe("epochs", epochs, dataset=graph, model=model)
    for (graph, model, setting), (accuracy, saved) in runs.items():
        observe = partial(found.observe, dataset=graph, model=model, setting=setting)
        observe("accuracy", accuracy)
        observe("scored", 400)
        for metric, whole, more in (("rows_sent", 1000, 0), ("exchanged", 8000, 40)):
            observe(metric, whole, of="plain")
            observe(metric, round(whole * (1 - saved)) + more)
    return stale_row(found.observations, experiment, **fields)


def seeds(
    drops: Sequence[float], saved: tuple[float, float], dataset: str = "wikipedia"
) -> list[Row]:
    """Rows of Table 2 by seed: accuracy lost at the larger threshold, rows saved at either."""
    rows = []
    for seed, drop in enumerate(drops, 1):
        runs = {
            (dataset, "dysat", "without"): (0.8, 0.0),
            (dataset, "dysat", "0.1D"): (0.8, saved[0]),
            (dataset, "dysat", "0.9D"): (0.8 - drop, saved[1]),
        }
        row = learned(runs, id=f"seed-{seed}")
        row.params["seed"] = seed
        rows.append(row)
    return rows


def counted(sent: dict[str, int] | None = None, method: str = "chunks") -> Row:
    """A row of the experiment `partition`: bytes of chunks by model, 100 of all others."""
    sent = {"tgcn_2layer": 50, "dysat": 50, "mpnn_lstm_bare": 60, **(sent or {})}
    observed = [seen("vertex_steps", 20, of="longest")]
    methods = ("snapshots", "snapshots-contiguous", "sequences", "both", method)
    for model, size, name in product(MODELS, (4, 8), methods):
        dims = {"model": model, "ranks": size, "method": name}
        of_kinds = (("exchanged", 40, 10), ("exchanges", 2, 1))
        observed += [
            seen("exchanged", sent[model] if name == method else 100, **dims),
            *(seen(metric, n, of=of, **dims)
              for metric, *both in of_kinds
              for of, n in zip(("spatial", "temporal"), both, strict=True)),
            seen("remote_steps", 18 if model == "dysat" else 1, **dims),
            seen("stages", 1, **dims), seen("imbalance", 1.02, **dims), seen("span", 1.0, **dims),
        ]  # fmt: skip
    return row_of("partition", {"dataset": "wikipedia", "model": "tgcn_2layer"}, observed)
