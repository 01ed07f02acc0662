"""Figure 12: DGC, its modules one by one, and three baselines, in turns (sections 7.2 and 7.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from dgbench.runtime.statistics import pooled_ratio
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.compare import Ratio, select
from dgbench.systems.base.turns import TURN_INTERVAL
from dgbench.systems.dgc.experiments.common import devices_lacking, failed, failures
from dgbench.systems.dgc.experiments.projection import LINKS, WORKERS, Epoch, with_share
from dgbench.systems.dgc.experiments.projection_runs import GROUPS, project_all
from dgbench.systems.dgc.experiments.race_runs import (
    BASELINE_NAMES,
    CONTIGUOUS,
    DGC,
    EXACT,
    FUSED,
    HELD_NAMES,
    PAPER_NAMES,
    PHASES,
    PHASES_FROM,
    PLAIN,
    TWINS,
    Race,
    contenders,
    dataset_title,
    jobs_of,
    race,
    races,
    real,
)
from dgbench.systems.dgc.experiments.settings import (
    BY_NAME,
    MODEL_TITLES,
    MODELS,
)

NAME: Final = "fig12"
BAR: Final = 1.25
"""What DGC has to gain over the best baseline on average, on 4 ranks over Gloo."""

QUICK_HELD: Final = ("sx-mathoverflow", "amazon-magazine")
TURNS: Final = {"smoke": 1, "quick": 6, "full": 12, "paper": 20}
BUDGETS_S: Final = {"smoke": 0.05, "quick": 0.5, "full": 8.0, "paper": 60.0}
TIMEOUTS_S: Final = {"smoke": 30, "quick": 60, "full": 900, "paper": 3600}
STEPS: Final = ((PLAIN, "chunks (PGC)"), (EXACT, "chunk fusion (CF)"), (DGC, "stale rows (SG)"))
"""What each contender adds to the one before it."""

Rows = Sequence[Any]


class Fig12(Experiment):
    paper = "dgc"
    name = NAME
    title = "Figure 12: epoch time of six systems"
    question = "How much faster does DGC train than three baselines, and which module gains what?"
    reading = (
        "All systems are ours, on one engine: a baseline differs by its placement, works snapshot "
        "by snapshot and pads sequences. They take turns, epoch by epoch, on one group of "
        "processes over Gloo's sockets; these share the cores of one machine, so that computing "
        "costs more and sending less than between GPUs. All but the stale rows train the very "
        "same model. Preparation (partition, plans) is left out, as in the paper. Beside the "
        "paper's six, the baselines are given our chunk fusion, too: what DGC without stale rows "
        "then gains is the partition's. The paper's graphs are twins here, and a twin has no real "
        "communities: real graphs decide. For eight V100 epochs are projected from counted "
        "traffic and measured work, with NVLink and with PCIe, for the paper names neither; "
        "fusion is taken at its most there, all chunks of a worker as one."
    )
    claims = (
        "dgc-abs-speedup-range",
        "dgc-fig12-avg-t-gcn",
        "dgc-fig12-avg-dysat",
        "dgc-fig12-avg-mpnn-lstm",
        "dgc-fig12-dgc-best",
        "dgc-fig12-amazon-order",
        "dgc-fig12-epinion-order",
        "dgc-s72-tgcn-movie",
        "dgc-s72-dysat-epinion",
        "dgc-s72-mpnn-movie",
        "dgc-s72-mpnn-epinion",
        "dgc-s731-pgc-only",
        "dgc-s731-amazon-pts-close",
        "dgc-s732-cf-speedup",
        "dgc-s732-cf-stack-best",
        "dgc-s733-sg-speedup",
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        found = []
        for name, (datasets, models) in groups(preset).items():
            one = {"dataset": datasets[0]} if len(datasets) == 1 else {"graphs": name}
            for ranks in _ranks(preset):
                params = {"part": "race", **one, "models": len(models), "ranks": ranks}
                lacking = devices_lacking(ranks, device)
                found.append(self._cell(params, f"{name}/{ranks}", preset, lacking))
        if preset != "smoke":
            found += [
                self._cell(
                    {
                        "part": "projected",
                        **({"dataset": name} if name in datasets else {"graphs": name}),
                        "workers": WORKERS,
                    },
                    f"projected/{name}",
                    preset,
                )
                for name, datasets in GROUPS[preset].items()
            ]
        return found

    def _cell(
        self, params: dict[str, Any], group: str, preset: Preset, unavailable: str = ""
    ) -> Cell:
        return Cell(
            paper=self.paper,
            experiment=self.name,
            params=params,
            group=group,
            timeout_s=TIMEOUTS_S[preset],
            unavailable=unavailable,
        )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        params, preset = cell.params, context.preset
        if params["part"] == "projected":
            return project_all(GROUPS[preset][_name(params)], preset)
        name = _name(params)
        datasets, models = groups(preset)[name]
        return race(
            jobs_of(datasets, models, preset, contenders(fused=datasets[0] in HELD_NAMES)),
            int(params["ranks"]),  # type: ignore[arg-type]
            context,
            least=TURNS[preset],
            budget_s=BUDGETS_S[preset],
            timeout_s=TIMEOUTS_S[preset],
        )

    def figures(self) -> list[FigureSpec]:
        interval = {"interval": TURN_INTERVAL}
        return [
            FigureSpec(
                kind="speedup",
                name="fig12",
                title="DGC and its modules over the best baseline, time of an epoch",
                points=best_points,
                options={
                    **interval,
                    "baseline_label": "best of PyGT-PSS, -PTS and -PSS-TS",
                    "xlabel": "speed-up over the best baseline",
                    "main": True,
                },
            ),
            FigureSpec(
                kind="speedup",
                name="fig12_each",
                title="DGC over each baseline",
                points=lambda rows: over_points(rows, DGC, {n: n for n in BASELINE_NAMES}),
                options={
                    **interval,
                    "baseline_label": "the baseline named",
                    "xlabel": "speed-up of DGC",
                },
            ),
            FigureSpec(
                kind="speedup",
                name="fig12_fair",
                title="DGC without stale rows over baselines that have chunk fusion, too",
                points=lambda rows: over_points(
                    rows, EXACT, {n: n for n in (*FUSED.values(), CONTIGUOUS)}
                ),
                options={
                    **interval,
                    "baseline_label": "the baseline named, with our chunk fusion",
                    "xlabel": "speed-up of DGC w/o SG",
                },
            ),
            FigureSpec(
                kind="time_split",
                name="fig12_split",
                title="What an epoch is spent on",
                points=split_points,
                options={
                    "xlabel": "time of one epoch, ms",
                    "phases_from": PHASES_FROM,
                },
            ),
            FigureSpec(
                kind="ablation",
                name="fig12_modules",
                title="From the best baseline to DGC, module by module",
                points=module_points,
                options={"system": DGC},
            ),
            FigureSpec(
                kind="speedup",
                name="fig12_projected",
                title="Eight V100: DGC over the best baseline, projected",
                points=projected_points,
                options={
                    "baseline_label": "best of PyGT-PSS, -PTS and -PSS-TS, projected",
                    "xlabel": "speed-up over the best baseline",
                },
            ),
        ]

    def answer(self, rows: Rows) -> str:
        found = [one for one in real(races(rows, NAME)) if one.row.params["ranks"] <= 4]
        if not found:
            return ""
        over = mean_gain(found, DGC)
        without, alone = mean_gain(found, EXACT), mean_gain(found, PLAIN)
        words = [
            f"On real graphs DGC is {over.value:.2f}x as fast as the best baseline (mean of "
            f"{len(found)} pairs of model and graph, {found[0].row.params['ranks']} ranks over "
            f"Gloo; asked for are {BAR}x), "
            f"{without.value:.2f}x without stale rows, {alone.value:.2f}x by the partition alone."
        ]
        fair = [one for one in found if set(FUSED.values()) <= set(one.names)]
        if fair:
            ratio = mean_gain(fair, EXACT, (*FUSED.values(), CONTIGUOUS))
            words.append(
                f"Against the best baseline with our chunk fusion, DGC without stale rows comes to "
                f"{ratio.value:.2f}x."
            )
        return " ".join(words)


def _name(params: Mapping[str, Any]) -> str:
    return str(params.get("dataset", params.get("graphs")))


def groups(preset: Preset) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Name of a cell -> graphs and models of its races; several graphs where time is short."""
    if preset == "smoke":
        return {"amazon-magazine": (("amazon-magazine",), MODELS[:1])}
    if preset == "quick":
        found: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
            name: ((name,), MODELS) for name in QUICK_HELD
        }
        # Where only a direction counts, one model is enough: the one that fusion serves most.
        return found | {"paper": (TWINS, ("mpnn_lstm_bare",))}
    return {name: ((name,), MODELS) for name in (*HELD_NAMES, *TWINS)}


def _ranks(preset: Preset) -> tuple[int, ...]:
    return {"smoke": (2,), "quick": (4,)}.get(preset, (4, 8))


# What rows say.


def mean_gain(found: Sequence[Race], name: str, baselines: Sequence[str] = BASELINE_NAMES) -> Ratio:
    """Geometric mean over races of the gain over the race's best baseline.

    The interval is that of the mean where each race's turns vary as they did; the races are fixed.
    """
    return pooled([(one, one.best(baselines), name) for one in found])


def pooled(pairs: Sequence[tuple[Race, str, str]]) -> Ratio:
    """Geometric mean over (race, slow, fast) of how much faster is the one than the other.

    Raises:
        InvalidInputError: no pair.
    """
    mean = pooled_ratio([(one.turns(slow), one.turns(fast)) for one, slow, fast in pairs])
    rows = dict.fromkeys(one.row.id for one, _, _ in pairs)
    gaps = [gap for one, _, _ in pairs for gap in one.row.deviation.values()]
    return Ratio(
        value=mean.value,
        low=mean.low,
        high=mean.high,
        n=mean.n,
        rows=list(rows),
        deviation=max(gaps, default=None),
        twin=any(one.twin for one, _, _ in pairs),
    )


def _base(one: Race) -> dict[str, Any]:
    return {
        "panel": MODEL_TITLES[one.model],
        "row": f"{dataset_title(one.dataset)}, {one.row.params['ranks']} ranks",
        "twin": one.twin,
        "row_ids": [one.row.id],
    }


def _point(ratio: Ratio, **fields: Any) -> dict[str, Any]:
    return {
        **fields,
        "value": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "n": ratio.n,
        "deviation": ratio.deviation,
    }


def _failed(rows: Rows, systems: Sequence[str], **fields: Any) -> list[dict[str, Any]]:
    """Points of races that did not run, in every panel that their cell would have filled."""
    points = []
    for row in failures(rows, NAME):
        if row.params["part"] != "race":
            continue
        name = row.params.get("dataset")
        title = dataset_title(name) if name in BY_NAME else "twins"
        models = MODELS if row.params["models"] == len(MODELS) else MODELS[:1]
        points += [
            {
                "panel": MODEL_TITLES[model],
                "row": f"{title}, {row.params['ranks']} ranks",
                "system": system,
                "failed": failed(row),
                "row_ids": [row.id],
                **fields,
            }
            for model in models
            for system in systems
        ]
    return points


def best_points(rows: Rows) -> list[dict[str, Any]]:
    """The three steps of DGC over the best baseline, and their means over real graphs."""
    points = []
    found = races(rows, NAME)
    for one in found:
        first = one.best()
        for name in (PLAIN, EXACT, DGC):
            points.append(
                _point(one.gain(first, name), **_base(one), system=_system(name), baseline=first)
            )
    for model in MODELS:
        mine = [one for one in real(found) if one.model == model]
        if len(mine) < 2:
            continue
        for name in (PLAIN, EXACT, DGC):
            ratio = mean_gain(mine, name)
            points.append(
                _point(
                    ratio,
                    panel=MODEL_TITLES[model],
                    row=f"geometric mean of {len(mine)} real",
                    system=_system(name),
                    baseline="best baseline",
                    rest=True,
                    row_ids=ratio.rows,
                )
            )
    return points + _failed(rows, [_system(n) for n in (PLAIN, EXACT, DGC)], baseline="")


def _system(name: str) -> str:
    return "dgc" if name == DGC else name


def over_points(rows: Rows, fast: str, slow: Mapping[str, str]) -> list[dict[str, Any]]:
    """One contender over several, a dot each; `slow`: name -> words."""
    return [
        _point(one.gain(name, fast), **_base(one), system=f"over {words}", baseline=words)
        for one in races(rows, NAME)
        for name, words in slow.items()
        if name in one.names and fast in one.names
    ]


def split_points(rows: Rows) -> list[dict[str, Any]]:
    """Phases of the paper's six, a row per graph, a panel per model."""
    return [
        {
            **_base(one),
            "system": _system(name),
            "phase": phase,
            "seconds": one.value(phase, name),
            "total": one.epoch(name),
        }
        for one in races(rows, NAME)
        for name in PAPER_NAMES
        if name in one.names
        for phase in PHASES
    ]


def module_points(rows: Rows) -> list[dict[str, Any]]:
    """From the best baseline to everything on, a panel per race on real data."""
    points = []
    for one in real(races(rows, NAME)):
        first = one.best()
        panel = {"panel": one.title, "row_ids": [one.row.id], "exact": True}
        points.append({**panel, "step": 0, "technique": "", "seconds": one.epoch(first)})
        before = first
        for step, (name, words) in enumerate(STEPS, 1):
            ratio = one.gain(before, name)
            points.append(
                {
                    **panel,
                    "step": step,
                    "technique": words,
                    "seconds": one.epoch(name),
                    "gain": ratio.value,
                    "gain_low": ratio.low,
                    "gain_high": ratio.high,
                    "same": ratio.side == 0 and ratio.low is not None,
                    "exact": name != DGC,
                    "deviation": ratio.deviation,
                }
            )
            before = name
    return points


# Projections.


def projected(rows: Rows) -> dict[tuple[str, str, str], dict[str, Epoch]]:
    """(dataset, model, links) -> epochs of the baselines and of DGC; projections all of them.

    DGC with stale rows is there where a race of the model on real data says what share of the bytes
    still travels.
    """
    found: dict[tuple[str, str, str], dict[str, Epoch]] = {}
    shares = sent_shares(rows)
    for row in select(rows, experiment=NAME, part="projected"):
        for key in row.values:
            dataset, _, rest = key.partition("/")
            model, _, what = rest.partition("/")
            links, _, what = what.partition(" ")
            part, _, name = what.partition(" ")
            if links not in LINKS or part != "compute_s":
                continue
            head = f"{dataset}/{model}/{links}"
            parts = ("compute_s", "load_s", "communicate_s")
            found.setdefault((dataset, model, links), {})[name] = Epoch(
                *(row.values[f"{head} {part} {name}"] for part in parts)
            )
    for (_, model, _), epochs in found.items():
        if model in shares and EXACT in epochs:
            epochs[DGC] = with_share(epochs[EXACT], shares[model])
    return found


def sent_shares(rows: Rows) -> dict[str, float]:
    """By model: mean share of rows that travel with stale rows, over races on real data."""
    shares: dict[str, list[float]] = {}
    for one in real(races(rows, NAME)):
        if one.has("sent", DGC):
            shares.setdefault(one.model, []).append(one.value("sent", DGC))
    return {model: fmean(values) for model, values in shares.items()}


def projected_gain(epochs: Mapping[str, Epoch], name: str) -> float | None:
    """Seconds of the best baseline over those of one of DGC's steps; None where it is not there."""
    if name not in epochs:
        return None
    return min(epochs[n].seconds for n in BASELINE_NAMES) / epochs[name].seconds


def projected_points(rows: Rows) -> list[dict[str, Any]]:
    """DGC's steps over the best baseline by model and graph, for both links."""
    ids = projected_ids(rows)
    points = []
    for (dataset, model, links), epochs in projected(rows).items():
        for name in (PLAIN, EXACT, DGC):
            gain = projected_gain(epochs, name)
            if gain is None:
                continue
            points.append(
                {
                    "panel": MODEL_TITLES[model],
                    "row": f"{dataset_title(dataset)}, {link_title(links)}",
                    "system": _system(name),
                    "baseline": "best baseline",
                    "value": gain,
                    "projected": True,
                    "twin": True,
                    "row_ids": [ids[dataset]] if dataset in ids else [],
                }
            )
    return points


def projected_ids(rows: Rows) -> dict[str, str]:
    """Dataset -> id of the row that projects it."""
    return {
        key.partition("/")[0]: row.id
        for row in select(rows, experiment=NAME, part="projected")
        for key in row.counters
    }


def link_title(links: str) -> str:
    return {"nvlink": "NVLink", "pcie": "PCIe"}[links]
