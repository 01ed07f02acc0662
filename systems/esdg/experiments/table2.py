"""Table 2: volume and time of the snapshot partition and of the vertex partition (section 6.4)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import chart, joined, sweep
from dgbench.lab.compare import TURN_INTERVAL, Ratio, ratio_of
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.table import Table, number, rows_of
from dgbench.lab.verbs import cells_of, turns_gain
from dgbench.systems.base import (
    Cell,
    Contender,
    Experiment,
    FigureSpec,
    Measurement,
    Preset,
    RunContext,
)
from dgbench.systems.base.transport import TITLES, Transport
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.esdg.experiments.main_races import PARTITIONS
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODEL_TITLES, MODELS, table2
from dgbench.systems.esdg.experiments.table2_runs import (
    CUTS,
    EXTRAS,
    GENERATED,
    LEAN,
    MIXINGS,
    RANKS,
    SAMPLES,
    draw,
    methods,
    mix,
    part,
    race,
    sample_workload,
    walk,
)

KAHYPAR_LIMIT_S: Final = 1800
SAMPLE_ACCOUNTS: Final = 20_000
SOCKETS: Final[tuple[Transport, Transport]] = ("gloo", "backend")
"""Transports between ranks of CPUs, and of devices, where they share no memory."""

VERTEX: Final = {"vertex": Contender("", "Vertex partition")}
"""Title of the partition that points name like a system."""

Rows = Sequence[Any]


class Table2(Experiment):
    paper = "esdg"
    name = "table2"
    title = "Table 2: volume and time of both partitions"
    question = "What do snapshot and vertex partition send, and which of them is faster?"
    main_race = PARTITIONS
    control: ClassVar = {
        "part": "time",
        "cut": "dense",
        "model": MODELS[0],
        "transport": "gloo",
    }
    reading = (
        "Volumes of the snapshot partition are counted at the paper's size, message by message and "
        "without data, as three passes: forward, its re-run and backward. For the vertex partition "
        "a vertex's own part does not count. PaToH is not free: KaHyPar or METIS parts "
        "the vertices where they are installed, consecutive ranges otherwise, and each row says "
        "which. Runs of the generator with 20 000 accounts stand for a million: cut by their own "
        "steps, and into 9 windows, which have as many edges per vertex as the paper's steps; the "
        "presets full and paper draw a million by its rules and published parameters. Times are "
        "those of processes that share one machine's cores; rows travel over Gloo's sockets, as "
        "between the machines of a cluster, and in rows of their own through shared memory. Where "
        "the snapshot partition of EvolveGCN skips the first pass, which computes for nobody, a "
        "vertex partition that skips it too runs beside. Our own additions keep what was exchanged "
        "for the re-run (reuse), send narrower rows (late), and bring home only those outputs that "
        "the loss reads (scored)."
    )
    claims = (
        "esdg-s1-volume-constant",
        "esdg-s41-vertex-volume",
        "esdg-s41-vertex-volume-grows",
        "esdg-s42-redistributions",
        "esdg-s64-volume-factor",
        "esdg-s55-evolvegcn-comm",
        "esdg-tab2-hyper-time-tmgcn",
        "esdg-tab2-hyper-time-cdgcn",
        "esdg-tab2-hyper-time-egcn",
        *(f"esdg-tab2-volume-{m}" for m in ("tmgcn", "cdgcn", "egcn")),
        *(f"esdg-tab2-hyper-volume-{m}" for m in ("tmgcn", "cdgcn", "egcn")),
        "esdg-tab2-cross-tmgcn",
        "esdg-tab2-cross-cdgcn",
        "esdg-tab2-egcn-superior",
        "esdg-tab2-time-order",
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        whole = preset in ("full", "paper")
        found = [
            self._cell({"part": "walk", "model": model, "ranks": ranks}, timeout_s=120)
            for model in MODELS
            for ranks in ((4,) if preset == "smoke" else (*RANKS, 128) if whole else RANKS)
        ]
        for dataset, cut in _cuts(preset):
            for method in methods(preset):
                lacking = method != "ranges" and importlib.util.find_spec(method) is None
                found += [
                    self._cell(
                        {
                            "part": "parts",
                            "dataset": dataset,
                            "cut": cut,
                            "model": model,
                            "method": method,
                        },
                        timeout_s=KAHYPAR_LIMIT_S if method == "kahypar" else 300,
                        unavailable=f"pip install {method}" if lacking else "",
                    )
                    for model in (MODELS if whole else MODELS[:2])
                ]
        if whole:
            # The paper's number of accounts, and the best of the searches for parts.
            found += [
                self._cell(
                    {
                        "part": "parts",
                        "dataset": dataset,
                        "cut": "dense",
                        "model": model,
                        "method": method,
                    },
                    timeout_s=KAHYPAR_LIMIT_S,
                    unavailable="" if importlib.util.find_spec(method) else f"pip install {method}",
                )
                for dataset in GENERATED
                for method in ("pymetis", "kahypar")
                for model in MODELS[:2]
            ]
        if preset != "smoke":
            found += [
                self._cell({"part": "mixing", "dataset": "amlsim", "mixing": mixing})
                for mixing in MIXINGS
            ]
        found += [
            self._cell(
                {
                    "part": "time",
                    "dataset": SAMPLES[0],
                    "cut": cut,
                    "model": model,
                    "ranks": ranks,
                    "transport": transport,
                },
                timeout_s=600 if whole else 60,
                unavailable=devices_lacking(ranks, device),
                # For the figure over time.
                phases=race_number == place == 0 and preset != "quick",
                repeats=turn_rounds(preset) if _judged(cut, ranks, transport) else 1,
                interleaved=True,
            )
            for race_number, (cut, ranks, models, transport) in enumerate(_timed(preset, device))
            for place, model in enumerate(models)
        ]
        return found

    def _cell(self, params: dict[str, Any], **fields: Any) -> Cell:
        words = [str(v) for v in params.values()]
        return self.cell_of(params, "/".join(words), **fields)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        params, preset = cell.params, context.preset
        if params["part"] == "walk":
            return walk(str(params["model"]), int(params["ranks"]))  # type: ignore[arg-type]
        if params["part"] == "mixing":
            return mix(float(params["mixing"]), preset)  # type: ignore[arg-type]
        if params["dataset"] in GENERATED:
            return draw(str(params["dataset"]), str(params["model"]), str(params["method"]))
        task = sample_workload(params, preset)
        if params["part"] == "parts":
            return part(task, str(params["method"]))
        silent = params["model"] == "evolvegcn_o"
        return race(
            task,
            int(params["ranks"]),  # type: ignore[arg-type]
            context,
            {} if silent else EXTRAS[str(params["cut"])],
            transport=params["transport"],  # type: ignore[arg-type]
            lean=silent,
            control=self.controls(cell),
        )

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("table2", "Billions of floats per epoch at the paper's size", volume_points,
                xlabel="ranks", ylabel="floats, billions", base=2, ylog=False),
            chart("speedup", "table2_time",
                "Snapshot partition over vertex partition, time of an epoch", time_points,
                baseline_label="vertex partition", xlabel="speed-up over the vertex partition",
                interval=TURN_INTERVAL, main=True, contenders=VERTEX),
            chart("time_split", "table2_split",
                "What the ranks of both partitions spend an epoch on", split_points,
                xlabel="time of one epoch, ms",
                phases_from="timed in the same epochs; communicate: waiting for other ranks",
                contenders=VERTEX),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        walks = walked(rows)
        if not walks:
            return ""
        right = sum(rounds_to(floats(r), _printed(r)) for r in walks if _is_printed(r))
        total = sum(_is_printed(r) for r in walks)
        words = [
            f"{right} of {total} printed volumes of the snapshot partition come out to every digit."
        ]
        found = ratios(rows)
        if found:
            shown = [
                f"{ratio.value:.2g}x for {MODEL_TITLES[model]} ({ranks} ranks)"
                for (model, ranks, cut), ratio in found.items()
                if cut == "dense"
            ]
            words.append(
                f"Over Gloo on this machine's cores it trains {', '.join(shown)} as fast as the "
                "vertex partition."
            )
        beyond = {
            key: ratio
            for name in EXTRAS["dense"]
            for key, ratio in ratios(rows, name).items()
            if key[0] == "cd_gcn"
        }
        if beyond:
            shown = [f"{ratio.value:.2g}x ({key[1]} ranks)" for key, ratio in beyond.items()]
            words.append(f"Sending less than the paper, CD-GCN reaches {', '.join(shown)}.")
        return " ".join(words)


def _cuts(preset: Preset) -> list[tuple[str, str]]:
    """Graphs whose vertices are parted; a twin decides nothing, so it needs time."""
    if preset == "smoke":
        return [(SAMPLES[0], "dense")]
    if preset == "quick":
        return [(SAMPLES[0], cut) for cut in CUTS]
    return [*((name, cut) for name in SAMPLES for cut in CUTS), ("amlsim", "own")]


def _timed(preset: Preset, device: str) -> list[tuple[str, int, tuple[str, ...], Transport]]:
    """(cut, ranks, models, transport) that are raced; devices have NCCL and no shared memory."""
    if device == "cuda":
        here = [one for one in _timed(preset, "cpu") if one[3] == SOCKETS[0]]
        return [(*rest, SOCKETS[1]) for *rest, _ in here]
    if preset == "smoke":
        return [("dense", 2, MODELS[:1], "gloo")]
    moving = MODELS[:2]
    if preset == "quick":
        return [
            ("dense", 4, MODELS, "gloo"),
            # The second graph shows that volumes do not depend on it.
            ("own", 2, MODELS[:1], "gloo"),
        ]
    return [
        *((cut, ranks, MODELS, "gloo") for cut in CUTS for ranks in (2, 4, 8)),
        *(("dense", ranks, moving, "auto") for ranks in (2, 4)),
    ]


def _judged(cut: str, ranks: int, transport: Transport) -> bool:
    """Return True for the races that a claim on times rests on."""
    return cut == "dense" and ranks == RANKS[0] and transport in SOCKETS


def on_sockets(rows: Rows, **params: Any) -> list[Any]:
    """Timed rows of ranks that the backend connects, by these params."""
    found = rows_of(rows, experiment="table2", part="time", **params)
    return [row for row in found if row.params["transport"] in SOCKETS]


def walked(rows: Rows, **params: Any) -> list[Any]:
    """Rows counted at the paper's size."""
    return rows_of(rows, experiment="table2", part="walk", **params)


def parted(rows: Rows, **params: Any) -> list[Any]:
    """Rows of remote reads: no twins first, then those of more vertices, of better partitioners."""
    found = rows_of(rows, experiment="table2", part="parts", **params)
    return sorted(
        found, key=lambda r: (bool(r.data.get("twin")), -accounts(r), remote_parts(r, RANKS[-1]))
    )


def accounts(row: Any) -> int:
    """Vertices of a parted graph; rows that do not say are of the published samples."""
    return number(row, "vertices", SAMPLE_ACCOUNTS, of="graph")


def remote_per_vertex_step(rows: Rows, model: str, parts: int) -> float | None:
    """Parts other than the owner that read a vertex at a step, on average (lambda, section 4.1).

    From the generator's real samples at the paper's number of edges per vertex, parted by the best
    partitioner of the run; else from what there is, a twin at last. None where nothing was parted
    into so many.

    Args:
        rows: of a run.
        model: whose smoothing the snapshots have.
        parts: 4, 16 or 64.
    """
    row = standing_for_paper(rows, model)
    return None if row is None else number(row, "density", None, **_remote(parts))


def remote_parts(row: Any, parts: int) -> float:
    """The same of a row of remote reads."""
    return number(row, "density", **_remote(parts))


def _remote(parts: int) -> dict[str, Any]:
    return {"of": "remote_reads", "ranks": parts}


def billions(row: Any, **dims: int) -> float:
    """Floats of an epoch at the paper's size, in billions."""
    return number(row, "estimate", of="floats", **dims)


def floats(row: Any, **dims: str) -> int:
    """Floats that were counted in an epoch."""
    return number(row, "floats", **dims)


def standing_for_paper(rows: Rows, model: str) -> Any | None:
    """The row of remote reads that comes nearest to the paper's graph, or None.

    EvolveGCN's smoothing keeps the same edges as TM-GCN's where life and window are equal, as in
    the samples, so that its rows may be TM-GCN's.
    """
    names = [model, "tm_gcn"] if model == "evolvegcn_o" else [model]
    for wanted in ({"cut": "dense"}, {}):
        for name in names:
            found = parted(rows, model=name, **wanted)
            if found:
                return found[0]
    return None


def _is_printed(row: Any) -> bool:
    return row.params["ranks"] in RANKS


def _printed(row: Any) -> float:
    return table2("volume", row.params["model"])[row.params["ranks"]]


def rounds_to(floats: int, printed: float) -> bool:
    """Return True if a count rounds to a printed number of billions with one decimal."""
    return abs(floats / 1e9 - printed) <= 0.05


def ratios(
    rows: Rows, name: str = "snapshot", transport: Transport | None = None
) -> dict[tuple[str, int, str], Ratio]:
    """(model, ranks, cut) -> time of the vertex partition over that of the snapshot partition.

    Args:
        rows: of a run.
        name: `snapshot` is the paper's exchanges; one of `EXTRAS`, or `LEAN`, where both skip the
            first pass.
        transport: what carried rows; None: the backend, Gloo or NCCL.
    """
    if transport is None:
        chosen = on_sockets(rows)
    else:
        chosen = rows_of(rows, experiment="table2", part="time", transport=transport)
    found = Table.of(chosen).where("speedup", setting=name).by("model", "ranks", "cut")
    return {key: ratio_of(gains) for key, gains in found.items()}


def volume_points(rows: Rows) -> list[dict[str, Any]]:
    """Counted volumes of both partitions, and the printed ones."""
    points = []
    for model in MODELS:
        panel = MODEL_TITLES[model]
        for row in walked(rows, model=model):
            point = {"panel": panel, "x": row.params["ranks"], "counted": True, "row_ids": [row.id]}
            points.append({**point, "series": "snapshots, counted", "y": billions(row)})
        row = standing_for_paper(rows, model)
        if row is not None and row.params["cut"] == "dense":
            points += [
                {
                    "panel": panel,
                    "series": "vertices, the largest graph scaled",
                    "x": ranks,
                    "y": billions(row, ranks=ranks),
                    "projected": True,
                    "row_ids": [row.id],
                }
                for ranks in RANKS
            ]
        for column, words in (("volume", "snapshots, paper"), ("hyper-volume", "vertices, paper")):
            points += [
                {"panel": panel, "series": words, "x": ranks, "y": value, "counted": True}
                for ranks, value in table2(column, model).items()
                if points
            ]
    return points


def time_points(rows: Rows) -> list[dict[str, Any]]:
    """Gains by model, and by cut, ranks and transport that more than one model ran with."""
    mine = [r for r in rows if r.experiment == "table2" and not r.instrumented]
    mine = [r for r in mine if r.params.get("part") == "time"]
    models: dict[tuple[str, int, str], set[str]] = {}
    for row in mine:
        key = tuple(row.params[k] for k in ("cut", "ranks", "transport"))
        models.setdefault(key, set()).add(row.params["model"])
    most = max(map(len, models.values()), default=0)
    points = []
    for cell in cells_of(mine):
        row = next((one for one in cell if one.status == "ok"), cell[0])
        model, ranks, cut, transport = (
            row.params[k] for k in ("model", "ranks", "cut", "transport")
        )
        if len(models[cut, ranks, transport]) < min(most, 2):
            continue
        graph = BY_NAME[row.params["dataset"]].title
        point: dict[str, Any] = {
            "panel": MODEL_TITLES[model],
            "row": f"{graph}, {cut}, {ranks} ranks, {TITLES[transport]}",
            "baseline": "vertex",
            "row_ids": [one.id for one in cell],
        }
        if row.status != "ok":
            points.append({**point, "system": "esdg", "failed": f"{row.status}: {row.reason}"})
            continue
        titles = {"snapshot": "esdg", LEAN: "ESDG, both lean"}
        for name in ("snapshot", *EXTRAS[cut], LEAN):
            ratio = turns_gain(cell, setting=name)
            if ratio is None:
                continue
            points.append(
                {
                    **point,
                    "system": titles.get(name, f"ESDG, {name}"),
                    "value": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "n": ratio.n,
                    "deviation": ratio.deviation,
                }
            )
    return points


def split_points(rows: Rows) -> list[dict[str, Any]]:
    """Computing and standing still, by model and partition, of the largest groups of ranks."""
    points = []
    found = on_sockets(rows, cut="dense")
    most = max((r.params["ranks"] for r in found if r.params["ranks"] <= 4), default=0)
    for row in found:
        if row.params["ranks"] != most:
            continue
        for name, title in (("snapshot", "esdg"), ("vertex", "vertex")):
            points += [
                {
                    "panel": f"{most} ranks",
                    "row": MODEL_TITLES[row.params["model"]],
                    "system": title,
                    "phase": phase,
                    "seconds": number(row, "phase_time", phase=phase, setting=name),
                    "total": number(row, "epoch_time", setting=name),
                    "row_ids": [row.id],
                }
                for phase in ("compute", "communicate")
            ]
    return joined(points, "seconds", "total")
