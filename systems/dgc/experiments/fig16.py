"""Figure 16: how well chunk times are predicted, and how even the workers are (section 7.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.supergraph import Supergraph, chunk_traffic
from dgbench.lab.charts import failed, sweep
from dgbench.lab.compare import select
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck, at_most, close, summarised
from dgbench.lab.table import Entry, Table
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.sequences import load_sequences, vertex_steps
from dgbench.systems.dgc.assignment import assign_chunks
from dgbench.systems.dgc.chunk_oracle import check_chunk
from dgbench.systems.dgc.chunk_samples import GraphChunks, cuts_of
from dgbench.systems.dgc.chunk_times import ENCODERS, ChunkTimer, model_named
from dgbench.systems.dgc.experiments.settings import (
    BY_NAME,
    HELD,
    MODEL_TITLES,
    MODELS,
    workload,
)
from dgbench.systems.dgc.predictor import HIDDEN_LAYERS, inputs_of
from dgbench.systems.dgc.recount import (
    EXACT,
    EdgeRecount,
    check_cut,
    drawn,
    recounted,
)
from dgbench.systems.dgc.study import FULL, GUESSES, HIDDEN, WHOLE, Study, StudySize, study
from dgbench.systems.dgc.supergraph import chunk_cap, make_chunks
from dgbench.systems.dgc.volumes import shape_of

WORKERS: Final = 4
WORKLOADS: Final = ("vertices", "edges", "linear", "mlp", "measured")
"""By what chunks are dealt out; `measured` is the floor: their own times."""
WORKLOAD_TITLES: Final = {
    "vertices": "vertex count",
    "edges": "edge count",
    "linear": "linear model",
    "mlp": "two perceptrons",
    "measured": "measured times",
}
GUESS_TITLES: Final = {
    name: WORKLOAD_TITLES.get(name, f"{WORKLOAD_TITLES['mlp']}, the paper's inputs")
    for name in GUESSES
}
ENCODER_TITLES: Final = {"structure": "structure encoder", "time": "time encoder", WHOLE: "both"}
DATASETS: Final = dict.fromkeys(("smoke", "quick"), ("email-eu-core",))
CUTS: Final = (16, 256)
"""Chunks of a graph that the perceptrons are trained on, about; the partition itself has others."""
CUT_SEEDS: Final = {"full": tuple(range(1, 13)), "paper": tuple(range(1, 26))}
"""Seeds of label propagation, each of which makes another partition of a graph to train on: so many
that the paper's 50 000 chunks are there. One in the smaller presets."""
SMALL: Final = 200_000
"""Vertex-steps up to which a graph is cut by all of these seeds; beyond, one takes long enough."""
MORE_CUTS: Final = {"full": (16, 64, 256, 1024), "paper": (16, 64, 256, 1024)}
FUSED: Final = ("vertices", "linear", "mlp")
"""Workload models of which each worker is also run whole."""
PAPER_CHUNKS: Final = 50_000
PREDICTED: Final = 1e-4
"""Relative rounding of a time that float32 perceptrons give as a logarithm."""

SIZES: Final = {
    "smoke": StudySize(
        train=40, test=20, largest=512, budget_s=0.5, epochs=20, units=64, aim_s=5e-4
    ),
    "quick": StudySize(train=2000, test=40, largest=2048, budget_s=1.0, aim_s=7e-4),
    # As many of the paper's as there is time for, from many partitions.
    "full": replace(FULL, train=PAPER_CHUNKS, budget_s=1300.0, hidden_dims=(HIDDEN,), aim_s=1e-3),
    "paper": replace(FULL, train=PAPER_CHUNKS, budget_s=7200.0, hidden_dims=(HIDDEN,)),
}


class Fig16(Grid):
    paper = "dgc"
    name = "fig16"
    title = "Figure 16: predicted chunk times, even work"
    claims = (
        "dgc-s64-mlp-training",
        "dgc-fig16-mlp-error",
        "dgc-fig16-divergence-mlp",
        "dgc-fig16-divergence-vertices",
    )
    question = "How well are times of unseen chunks predicted, and does it even out the workers?"
    reading = (
        "The paper does not say whether its 1000 chunks were unseen; ours are. Its perceptrons see "
        "vertices, edges and dimensions; ours also the number of sequences and their padded rows, "
        "which it names as a factor, with its own inputs beside them. A pair is trained per model. "
        "Half of the chunks are random, half cut from the graphs at other caps. "
        "Chunks of each graph are then dealt to 4 workers by each "
        "workload model with the corrected algorithm 1, and the measured times of a worker's "
        "chunks are added up: Tmax/Tmin is the paper's divergence, max/mean our bar's. Beside the "
        "sums, every worker runs all its chunks as one, as after fusion: a chunk's fixed cost, "
        "most of a tiny one's time, is then paid once, and chunks are weighed by what they add. "
        "`Measured again` is the noise of the clock: no predictor can be expected "
        "below it."
    )

    axes: ClassVar = {"model": {"smoke": MODELS[:1], "quick": MODELS[:1], None: MODELS}}
    fixed: ClassVar = {"ranks": WORKERS}
    group = "{model}"
    timeout_s: ClassVar = {"full": 3600, "paper": 6 * 3600, None: 90}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        with one_thread():
            return self._run(cell, context)

    def _run(self, cell: Cell, context: RunContext) -> Measurement:
        model, preset = str(cell.params["model"]), context.preset
        names = DATASETS.get(preset, tuple(graph.name for graph in HELD))
        parts = [_Parted.of(name, model, preset) for name in names]
        size = SIZES[preset]
        training = [cut for part in parts for cut in part.others(preset)]
        found = study(model, training, size, device=context.device)
        out = Measurement()
        _observe_study(out, found)
        out.observe("hidden_size", HIDDEN_LAYERS, of="layers")
        out.observe("hidden_size", size.units, of="units")
        out.observe("epochs", size.epochs)
        out.observe("chunks", found.tested, of="tested")
        again = preset in ("full", "paper")
        timer = ChunkTimer(
            model_named(model, 2, HIDDEN), device=context.device, least=2, aim_s=size.aim_s
        )
        checks: list[ResultCheck] = []
        for part in parts:
            edges = EdgeRecount(part.data)
            some = drawn(range(part.cut.count), 2)
            checks += check_cut(edges, part.cut, some, chunk_cap(part.graph, WORKERS))
            chunks = [part.cut[i] for i in range(part.cut.count)]
            taken = timer.measure(chunks, passes=2 if again else 1)
            part.balances(out, found, taken.sum(1))
            out.observe("chunks", part.cut.count, dataset=part.name)
            if preset != "quick":  # no claim reads it
                part.fused(out, found, timer, taken.sum(1))
            for encoder in ENCODERS:
                checks += check_chunk(timer, chunks[some[-1]], encoder)
            checks += recounted(out, part.recomputed(found, taken.sum(1).tolist()))
        checks += check_study(found)
        described = [describe(part.data) for part in parts]
        out.data = {
            "dataset": ", ".join(names),
            "twin": any(entry["twin"] for entry in described),
            "scale": 1.0,
            "note": "; ".join(dict.fromkeys(e["note"] for e in described if e["note"])),
        }
        out.checks = summarised(checks)
        out.notes = [
            f"trained on {found.trained} chunks in {found.train_s:.1f} s, "
            f"{found.rate:.0f} chunks measured in a minute"
        ]
        return out

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("fig16a", "Error on unseen chunks", error_points, xlabel="",
                ylabel="mean |predicted - measured| / measured, percent", hline=10.0,
                hline_label="the paper's bound"),
            sweep("fig16b", "Slowest over fastest of 4 workers", divergence_points, xlabel="",
                ylabel="Tmax / Tmin"),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = rows_of(rows)
        if not found:
            return ""
        errors, floors = ([error_of(row, of).value for row in found] for of in ("mlp", "measured"))
        mean = {name: mean_divergence(found, name) for name in ("mlp", "vertices")}
        return (
            f"Errors of {_range(errors)} on unseen chunks (measured again: "
            f"{_range(floors)}); Tmax/Tmin of 4 workers is "
            f"{mean['mlp']:.2f} by the perceptrons and {mean['vertices']:.2f} by vertex count."
        )


def _range(shares: Sequence[float]) -> str:
    """Shares in percent, from the least to the most where these differ."""
    return " to ".join(dict.fromkeys(f"{share:.1%}" for share in (min(shares), max(shares))))


class _Parted:
    """One graph and its chunks for `WORKERS` workers, as Algorithm 1 gets them."""

    def __init__(self, name: str, data: Any, graph: Supergraph) -> None:
        made = make_chunks(graph, chunk_cap(graph, WORKERS))
        self.name, self.data, self.graph = name, data, graph
        self.cut = GraphChunks(graph, made.chunk, made.count, name)
        self._traffic = chunk_traffic(graph, made.chunk, made.count)

    @classmethod
    def of(cls, name: str, model: str, preset: Preset) -> _Parted:
        """Open a graph, weigh its edges as the model sends along them, and cut it."""
        snapshots = {"snapshots": None} if preset != "smoke" else {}
        task = workload(BY_NAME[name], model, preset, **snapshots)
        data = load_sequences(task)
        counts = shape_of(model_named(model, task.feature_dim, task.hidden_dim)).counts()
        spatial, temporal = counts.weights()
        graph = vertex_steps(
            data, task, spatial=spatial, temporal=temporal, per_length=counts.all_steps
        )
        return cls(name, data, graph)

    def others(self, preset: Preset) -> list[GraphChunks]:
        """Cuts of the same graph at other caps and other seeds, to train on."""
        small = self.graph.num_vertices <= SMALL
        counts = MORE_CUTS.get(preset, CUTS)
        caps = [max(1, self.graph.num_vertices // count) for count in counts]
        return [
            cut
            for seed in (CUT_SEEDS.get(preset, (1,)) if small else (1,))
            for cut in cuts_of(self.graph, caps, source=self.name, seed=seed)
        ]

    def assigned(self, found: Study, seconds: Tensor, name: str, *, fused: bool = False) -> Tensor:
        """int32[C], the worker of each chunk when dealt out by a workload model."""
        sizes = self.cut.statistics
        if name == "measured":
            guess = seconds
        elif name in ("vertices", "edges"):
            guess = getattr(sizes, name).double()
        else:
            guess = found.workload(name, sizes, fused=fused)
        return assign_chunks(guess, self._traffic, WORKERS).worker

    def balances(self, out: Measurement, found: Study, seconds: Tensor) -> None:
        """Divergence and imbalance of the measured times by each workload model."""
        for name in WORKLOADS:
            worker = self.assigned(found, seconds, name)
            loads = torch.zeros(WORKERS, dtype=torch.float64).index_add_(0, worker.long(), seconds)
            _observe_evenness(out, loads, method=name, dataset=self.name)

    def recomputed(self, found: Study, seconds: list[float]) -> Measurement:
        """Recompute the values of `balances` chunk by chunk."""
        out = Measurement()
        for name in WORKLOADS:
            loads = [0.0] * WORKERS
            worker = self.assigned(found, torch.tensor(seconds, dtype=torch.float64), name)
            for owner, spent in zip(worker.tolist(), seconds, strict=True):
                loads[owner] += spent
            mean, dims = sum(loads) / WORKERS, {"method": name, "dataset": self.name}
            out.observe("divergence", max(loads) / max(min(loads), 1e-3 * mean), **dims)
            out.observe("imbalance", max(loads) / mean, **dims)
        return out

    def fused(self, out: Measurement, found: Study, timer: ChunkTimer, seconds: Tensor) -> None:
        """The same of workers that run all their chunks as one, as chunk fusion does."""
        for name in FUSED:
            worker = self.assigned(found, seconds, name, fused=True)
            shares = [
                self.cut.together((worker == m).nonzero().squeeze(1).tolist())
                for m in range(WORKERS)
            ]
            loads = timer.measure(shares, passes=1).sum(1)
            _observe_evenness(out, loads, method=name, dataset=self.name, format="fused")


def check_study(found: Study) -> list[ResultCheck]:
    """Checks of the perceptrons and of the errors, entry by entry in numpy and float64."""
    checks = []
    for encoder, known in found.predictors.items():
        for name, net in (("mlp", known.mlp), ("mlp, the paper's inputs", known.plain)):
            inputs = inputs_of(found.unseen, found.shapes[0], encoder,
                               "lengths" if name == "mlp" else "paper")  # fmt: skip
            x = (inputs.double() - net.mean.double()).numpy() / net.scale.double().numpy()
            for number, (weight, bias) in enumerate(net.layers):
                x = x @ weight.double().numpy().T + bias.double().numpy()
                x = np.maximum(x, 0.0) if number + 1 < len(net.layers) else x
            guess = known.guess(name, found.unseen, found.shapes[0], encoder).numpy()
            relative = np.abs(guess / np.exp(x[:, 0]) - 1)
            checks.append(
                at_most("predictions", float(relative.max()), PREDICTED, against="numpy in float64",
                        compared=guess.size, part=f"{name}, {encoder}")
            )  # fmt: skip
            measured = found.measured[:, ENCODERS.index(encoder)].numpy()
            error = sum(abs(g - m) / m for g, m in zip(guess, measured, strict=True)) / guess.size
            own = {name: found.errors[encoder, name].mean}
            checks.append(close("values", own, {name: float(error)}, EXACT, against="equation 8"))
    return checks


def _observe_evenness(out: Measurement, loads: Tensor, **dims: str) -> None:
    """Tmax/Tmin and max/mean; a worker without work counts as one of a thousandth of the mean."""
    mean = float(loads.mean())
    least = max(float(loads.min()), 1e-3 * mean)
    out.observe("divergence", float(loads.max()) / least, **dims)
    out.observe("imbalance", float(loads.max()) / mean, **dims)


def _observe_study(out: Measurement, found: Study) -> None:
    """Every error with its interval, the noise of the clock, and what was measured."""
    for (encoder, guess), error in found.errors.items():
        ends = {"low": error.low, "high": error.high}
        out.observe("prediction_error", error.mean, phase=encoder, method=guess, **ends)
    for source, error in found.by_source.items():
        dims = {"phase": WHOLE, "method": "mlp", "dataset": source}
        out.observe("prediction_error", error.mean, **dims)
    for encoder, change in found.repeat.items():
        out.observe("prediction_error", change, phase=encoder, method="measured")
    out.observe("throughput", found.rate / 60)
    out.observe("operation_time", found.smallest_s, of="smallest")
    out.observe("operation_time", found.largest_s, of="largest")
    out.observe("preparation_time", found.train_s, phase="training")
    out.observe("training_chunks", found.trained)


def rows_of(rows: Sequence[Any]) -> list[Any]:
    """Usable rows of this experiment."""
    return select(rows, experiment="fig16")


def datasets_of(row: Any) -> list[str]:
    """The graphs whose chunks were dealt out in a row."""
    return list(Table.of([row]).where("divergence").by("dataset"))


def divergences(rows: Sequence[Any], name: str, kind: str | None = None) -> Table:
    """Tmax/Tmin of graphs and models by a workload model; `fused` for chunks run as one."""
    return Table.of(rows).where("divergence", method=name, format=kind)


def mean_divergence(rows: Sequence[Any], name: str) -> float:
    """Mean Tmax/Tmin over graphs and models by a workload model."""
    found = divergences(rows, name).values
    return sum(found) / len(found)


def error_of(row: Any, guess: str, encoder: str = WHOLE) -> Entry:
    """Error of a way to predict, with its interval; of `measured`, the change measured again."""
    found = Table.of([row]).where("prediction_error", phase=encoder, method=guess)
    return next(one for one in found if "dataset" not in one.of.dims)


def error_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """A dot per predictor and encoder, one panel per model; and what measuring again gives."""
    found: list[dict[str, Any]] = []
    for row in rows:
        if row.experiment != "fig16" or row.instrumented:
            continue
        base = {"panel": MODEL_TITLES[row.params["model"]], "row_ids": [row.id]}
        if row.status != "ok":
            x = ENCODER_TITLES[ENCODERS[0]]
            series = WORKLOAD_TITLES["mlp"]
            found.append({**base, "series": series, "x": x, "failed": failed(row)})
            continue
        for encoder, title in ENCODER_TITLES.items():
            for guess in GUESSES:
                error = error_of(row, guess, encoder)
                ends = {"low": 100 * error.of.low, "high": 100 * error.of.high}
                point = {"y": 100 * error.value, **ends}
                found.append({**base, "series": GUESS_TITLES[guess], "x": title, **point})
            again = 100 * error_of(row, "measured", encoder).value
            found.append({**base, "series": "measured again", "x": title, "y": again})
    return found


def divergence_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """A dot per workload model and graph; panels by model, chunk by chunk and as one."""
    found: list[dict[str, Any]] = []
    for row in rows_of(rows):
        title, twin = MODEL_TITLES[row.params["model"]], bool(row.data.get("twin"))
        for kind, words, names in ((None, "", WORKLOADS), ("fused", ", workers as one", FUSED)):
            for dataset in datasets_of(row):
                for name in names:
                    measured = divergences([row], name, kind).where(dataset=dataset)
                    if not len(measured):
                        continue  # workers are run as one only where there is time for it
                    point = {
                        "series": WORKLOAD_TITLES[name],
                        "x": BY_NAME[dataset].title,
                        "y": measured[-1].value,
                    }
                    base = {"panel": title + words, "row_ids": [row.id], "twin": twin}
                    found.append({**base, **point})
    return found
