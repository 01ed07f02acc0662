"""Claims on the times of chunks, on predicting them, and on how even they make workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.lab.evidence import finding, from_ratio, missing, some
from dgbench.lab.paper import Check
from dgbench.lab.table import number
from dgbench.lab.verbs import asking, readings
from dgbench.systems.base import Claim, Finding
from dgbench.systems.dgc.experiments.fig7 import spreads
from dgbench.systems.dgc.experiments.fig16 import (
    ENCODER_TITLES,
    divergences,
    error_of,
    mean_divergence,
    rows_of,
)
from dgbench.systems.dgc.experiments.settings import BY_NAME, MODEL_TITLES

NO_TRAINING = "no predictor was trained in this run: the experiment 'fig16' did not run"
MLP = "mlp"

Rows = Sequence[Any]
Said = dict[str, Any]


def time_gap(claim: Claim, rows: Rows) -> Finding:
    """Slowest over fastest of four chunks of equally many vertices, sequences padded as unfused.

    The paper names neither the graph, the model nor the size: each of ours is a reading.
    """
    every = spreads(rows, "padded")
    found = {key: ratio for key, ratio in every.items() if not ratio.twin} or every
    if not found:
        return missing("no chunks of equal size were timed in this run")
    told = {}
    for (dataset, model), ratio in found.items():
        fused = spreads(rows)[dataset, model].value
        told[f"{MODEL_TITLES[model]} on {BY_NAME[dataset].title}"] = from_ratio(
            ratio,
            target=float(claim.value),
            reason=f"sequences padded; {fused:.2g}x once they are packed",
        )
    return Finding(readings=told)


def _chunks(row: Any) -> int:
    """Chunks that a row's perceptrons were trained on; older rows counted them."""
    return int(number(row, "training_chunks", number(row, "chunks", 0, of="trained")))


def training(claim: Claim, rows: Rows) -> Finding:
    """Layers, units, chunks and epochs of the perceptrons that were trained."""
    found = [row for row in rows_of(rows) if _chunks(row)]
    if not found:
        return missing(NO_TRAINING)
    row = max(found, key=_chunks)
    measured = {
        "hidden_layers": number(row, "hidden_size", of="layers"),
        "hidden_units": number(row, "hidden_size", of="units"),
        "chunks": _chunks(row),
        "epochs": number(row, "epochs"),
    }
    wanted = {**claim.value, "hidden_layers": 3}  # printed as a word
    net = all(measured[key] == wanted[key] for key in measured if key != "chunks")
    enough = measured["chunks"] >= wanted["chunks"]
    return finding(
        [row],
        measured=measured,
        holds=net and enough,
        direction=net,
        reason=""
        if enough
        else f"{measured['chunks']} chunks measured on this machine, the paper has "
        f"{wanted['chunks']}; --preset full measures as many as it finds time for",
    )


def error_by(guess: str) -> Check:
    """The largest error of the workload, both encoders together, over the models."""

    @asking(rows_of, NO_TRAINING)
    def check(claim: Claim, found: Rows) -> Said:
        worst = max(found, key=lambda row: error_of(row, guess).value)
        whole = error_of(worst, guess)
        value, low, high = (100 * end for end in (whole.value, whole.of.low, whole.of.high))
        parts = ", ".join(
            f"{title} {100 * error_of(worst, guess, encoder).value:.1f} %"
            for encoder, title in ENCODER_TITLES.items()
            if encoder != "both"
        )
        return {
            "measured": value,
            "low": low,
            "high": high,
            "reason": (
                f"{MODEL_TITLES[worst.params['model']]}, trained on {_chunks(worst)} of the "
                f"paper's 50 000 chunks, {number(worst, 'chunks', of='tested')} unseen ones; "
                f"{parts}; measured again they change by "
                f"{100 * error_of(worst, 'measured').value:.1f} %"
            ),
        }

    return check


error: Final = readings(
    "sequence length is named as a factor, but is none of the printed inputs",
    **{
        "the paper's inputs": error_by("mlp, the paper's inputs"),
        "with lengths of sequences": error_by(MLP),
    },
)


@asking(rows_of, NO_TRAINING)
def divergence(claim: Claim, found: Rows) -> Said:
    """Mean Tmax/Tmin by one workload model; the paper has perceptrons below vertices."""
    name = MLP if claim.id.endswith("mlp") else "vertices"
    mean = {key: mean_divergence(found, key) for key in (MLP, "vertices")}
    pairs = list(zip(divergences(found, MLP), divergences(found, "vertices"), strict=True))
    worse = sorted({BY_NAME[a["dataset"]].title for a, b in pairs if a.value >= b.value})
    graphs = sorted({one["dataset"] for one, _ in pairs})
    said = f"not below vertex count on {', '.join(worse)}" if worse else "below it on every graph"
    return {
        "measured": mean[name],
        "direction": mean[MLP] < mean["vertices"],
        "target": float(claim.value["mean"]),
        "reason": f"measured chunk times added up by worker on {some(len(graphs), 'graph')}; "
        f"perceptrons {mean[MLP]:.2f}, vertex count {mean['vertices']:.2f}, {said}",
    }
