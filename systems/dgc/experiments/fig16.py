"""Figure 16: how well chunk times are predicted, and how even the workers are (section 7.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.supergraph import chunk_traffic
from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import FigureForm, Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import computed, observed
from dgbench.lab.result_checks import ResultCheck, at_most, close, summarised
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Table
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.sequences import load_sequences
from dgbench.systems.dgc.assignment import assign_chunks
from dgbench.systems.dgc.chunk_oracle import check_chunk
from dgbench.systems.dgc.chunk_samples import GraphChunks, cuts_of
from dgbench.systems.dgc.chunk_times import ENCODERS, ChunkTimer, model_named
from dgbench.systems.dgc.experiments.partition import weighted
from dgbench.systems.dgc.experiments.settings import BY_NAME, FORMS, HELD, MODELS, workload
from dgbench.systems.dgc.predictor import HIDDEN_LAYERS, inputs_of
from dgbench.systems.dgc.recount import EXACT, EdgeRecount, check_cut, drawn
from dgbench.systems.dgc.study import FULL, HIDDEN, WHOLE, Study, StudySize, study
from dgbench.systems.dgc.supergraph import chunk_cap, make_chunks

WORKERS: Final = 4
WORKLOADS: Final = ("vertices", "edges", "linear", "mlp", "measured")
"""By what chunks are dealt out; `measured` is the floor: their own times."""
DATASETS: Final = dict.fromkeys(("smoke", "quick"), ("email-eu-core",))
CUTS: Final = {"smoke": (16, 256), "quick": (16, 256), None: (16, 64, 256, 1024)}
"""Chunks of a graph that the perceptrons are trained on, about; the partition itself has others."""
CUT_SEEDS: Final = {"full": tuple(range(1, 13)), "paper": tuple(range(1, 26))}
"""Seeds of label propagation, each of which makes another partition of a graph to train on: so many
that the paper's 50 000 chunks are there. One in the smaller presets."""
SMALL: Final = 200_000
"""Vertex-steps up to which a graph is cut by all of these seeds; beyond, one takes long enough."""
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


def errors(context: EvaluationContext) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
    """Percent that each way to predict is off, with its interval, and that times change when
    measured again; of several processes their mean."""
    every = Table.of(context.rows, experiment="fig16").where("prediction_error", dataset=None)
    for key, found in every.by(*GUESSED).items():
        dims = dict(zip(GUESSED, key, strict=True))
        ends = ([one.of.low for one in found if one.of.low is not None],
                [one.of.high for one in found if one.of.high is not None])  # fmt: skip
        low, high = (100 * fmean(each) if len(each) == len(found) else None for each in ends)
        if dims["method"] == "measured":
            dims["method"] = AGAIN
        kind = "exact" if low is None else "seeds"
        yield dims, Estimate(100 * fmean(found.values), low, high, tuple(found.rows), kind)


def largest_error(method: str) -> outcomes.Rule:
    """The largest error of a way to predict over the models, with its interval."""

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        numbers = ERROR.where(phase=WHOLE, method=method).estimates(context)
        if not numbers:
            return outcomes.RuleOutcome(lacking="no predictor was trained in this run")
        worst = max(numbers.values(), key=lambda one: one.value)
        outcome = outcomes.outcome(context, numbers, "%")
        return replace(outcome, reported=worst, measured=worst.value)

    return rule


def divergence_near_claim(method: str) -> outcomes.Rule:
    """Mean Tmax/Tmin by one workload model; the paper has perceptrons below vertices."""
    mean = {name: DIVERGENCE.where(method=name, format=None).mean_over("model", "dataset")
            for name in (MLP, "vertices")}  # fmt: skip
    return combine.or_direction(
        rules.near_claim(mean[method]), rules.all_below(mean[MLP].less(mean["vertices"]), 0.0)
    )


GUESSED: Final = ("model", "phase", "method")
MLP, PLAIN, AGAIN = "mlp", "mlp, the paper's inputs", "measured again"
ERROR: Final = computed(errors, per=GUESSED)
ERROR_AGAIN: Final = ERROR.where(phase=WHOLE, method=AGAIN)
DIVERGENCE: Final = observed("divergence", per=("model", "dataset", "method")).pooled("mean")
NET: Final = combine.both(
    rules.all_equal(
        observed("hidden_size", per=("model", "of")),
        lambda value, at: {"layers": 3, "units": value["hidden_units"]}[at["of"]],
    ),
    rules.all_equal(observed("epochs", per="model"), lambda value, _: value["epochs"]),
)
CHUNKS: Final = observed("training_chunks", per="model").joined_over(max, "model")


class Fig16(FormExperiment):
    forms, name = FORMS, "fig16"
    headline, unit = ERROR.where(phase=WHOLE, method=(MLP, AGAIN)), "%"
    figure_forms = (
        Sweep(
            "fig16a", "Error on unseen chunks", ERROR, panel="{model}", series="{method}",
            x="{phase}", gaps={"series": "two perceptrons", "x": "structure encoder"}, xlabel="",
            ylabel="mean |predicted - measured| / measured, percent", hline=10.0,
            hline_label="the paper's bound",
        ),
        FigureForm(
            "sweep", "fig16b", "Slowest over fastest of 4 workers", DIVERGENCE.per("format"),
            {"panel": "{model}{format}", "series": "{method}", "x": "{dataset}"},
            options={"xlabel": "", "ylabel": "Tmax / Tmin"},
        ),
    )  # fmt: skip
    claims = {
        "dgc-s64-mlp-training": combine.or_direction(
            combine.both(NET, rules.at_least(CHUNKS, PAPER_CHUNKS)), NET
        ),
        "dgc-fig16-mlp-error": combine.interpretations(
            "sequence length is named as a factor, but is none of the printed inputs",
            {
                words: combine.shown_beside(
                    largest_error(method), {"measured again": ERROR_AGAIN}, "%"
                )
                for words, method in (
                    ("the paper's inputs", PLAIN), ("with lengths of sequences", MLP),
                )
            },
        ),
        "dgc-fig16-divergence-mlp": divergence_near_claim(MLP),
        "dgc-fig16-divergence-vertices": divergence_near_claim("vertices"),
    }  # fmt: skip

    axes: ClassVar = {"model": {"smoke": MODELS[:1], "quick": MODELS[:1], None: MODELS}}
    fixed: ClassVar = {"ranks": WORKERS}
    group = "{model}"
    timeout_s: ClassVar = {"full": 3600, "paper": 6 * 3600, None: 90}

    @one_thread()
    def run(self, cell: Cell, context: RunContext) -> Measurement:
        model, preset = str(cell.params["model"]), context.preset
        names = DATASETS.get(preset, tuple(graph.name for graph in HELD))
        parts = [_Parted(name, model, preset) for name in names]
        size = SIZES[preset]
        training = [cut for part in parts for cut in part.others(preset)]
        found = study(model, training, size, device=context.device)
        out = Measurement()
        _observe_study(out, found)
        out.observe("hidden_size", HIDDEN_LAYERS, of="layers")
        out.observe("hidden_size", size.units, of="units")
        out.observe("epochs", size.epochs)
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
            seconds = timer.measure(chunks, passes=2 if again else 1).sum(1)
            part.balances(out, found, seconds)
            if preset != "quick":  # no claim reads it
                part.fused(out, found, timer, seconds)
            for encoder in ENCODERS:
                checks += check_chunk(timer, chunks[some[-1]], encoder)
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


class _Parted:
    """One graph and its chunks for `WORKERS` workers, as Algorithm 1 gets them."""

    def __init__(self, name: str, model: str, preset: Preset) -> None:
        """Open a graph, weigh its edges as the model sends along them, and cut it."""
        snapshots = {"snapshots": None} if preset != "smoke" else {}
        task = workload(BY_NAME[name], model, preset, **snapshots)
        self.name, self.data = name, load_sequences(task)
        self.graph, _ = weighted(self.data, task)
        made = make_chunks(self.graph, chunk_cap(self.graph, WORKERS))
        self.cut = GraphChunks(self.graph, made.chunk, made.count, name)
        self._traffic = chunk_traffic(self.graph, made.chunk, made.count)

    def others(self, preset: Preset) -> list[GraphChunks]:
        """Cuts of the same graph at other caps and other seeds, to train on."""
        small = self.graph.num_vertices <= SMALL
        caps = [max(1, self.graph.num_vertices // count) for count in by_preset(CUTS, preset)]
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
        """Divergence of the measured times by each workload model."""
        for name in WORKLOADS:
            worker = self.assigned(found, seconds, name)
            loads = torch.zeros(WORKERS, dtype=torch.float64).index_add_(0, worker.long(), seconds)
            out.observe("divergence", divergence(loads), method=name, dataset=self.name)

    def fused(self, out: Measurement, found: Study, timer: ChunkTimer, seconds: Tensor) -> None:
        """The same of workers that run all their chunks as one, as chunk fusion does."""
        for name in FUSED:
            worker = self.assigned(found, seconds, name, fused=True)
            shares = [
                self.cut.together((worker == m).nonzero().squeeze(1).tolist())
                for m in range(WORKERS)
            ]
            loads = timer.measure(shares, passes=1).sum(1)
            dims = {"method": name, "dataset": self.name, "format": "fused"}
            out.observe("divergence", divergence(loads), **dims)


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


def divergence(loads: Tensor) -> float:
    """Tmax/Tmin; a worker without work counts as one of a thousandth of the mean."""
    return float(loads.max()) / max(float(loads.min()), 1e-3 * float(loads.mean()))


def _observe_study(out: Measurement, found: Study) -> None:
    """Every error with its interval, the noise of the clock, and how many chunks were measured."""
    for (encoder, guess), error in found.errors.items():
        ends = {"low": error.low, "high": error.high}
        out.observe("prediction_error", error.mean, phase=encoder, method=guess, **ends)
    for encoder, change in found.repeat.items():
        out.observe("prediction_error", change, phase=encoder, method="measured")
    out.observe("training_chunks", found.trained)
