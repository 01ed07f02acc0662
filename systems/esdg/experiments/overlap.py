"""Overlap of exchanges with convolutions: what ESDG leaves to the future (SC 2021, section 4.2)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from dgbench.lab.compare import TURN_INTERVAL, gains, select
from dgbench.lab.result_checks import equal
from dgbench.runtime.statistics import median_interval
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import load_timeline
from dgbench.systems.esdg.experiments.overlap_turns import (
    MESSAGE_S,
    Medium,
    OverlapTurns,
    take_overlap_turns,
)
from dgbench.systems.esdg.experiments.recount import OVER_PAIRS, Widths, redistributed
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODEL_TITLES, workload
from dgbench.systems.esdg.oracle import TimelineOracle, largest_gap

NAME: Final = "overlap"
MODELS: Final = ("tm_gcn", "cd_gcn")
"""EvolveGCN exchanges nothing under this partition."""

WIRE: Final = Medium("wire as slow as convolutions", "shared", "convolutions")
"""The hardest case: nothing is left over on either side."""

SLOW: Final = Medium("wire as slow as computing", "shared", "computing")
GLOO, SHARED = Medium("Gloo", "collective"), Medium("shared memory", "shared")

PIECES: Final = {"smoke": (1, 2), "quick": (1, 2, 4), "full": (1, 2, 4, 8), "paper": (1, 2, 4, 8)}
RANKS: Final = {"smoke": (2,), "quick": (2,), "full": (2, 4, 8), "paper": (2, 4, 8)}
TURNS: Final = {"smoke": 2, "quick": 6, "full": 15, "paper": 15}
"""Six are the fewest whose extremes bound a median with 95 %."""

SNAPSHOTS: Final = {"smoke": 9, "full": 97, "paper": None}
QUICK_SNAPSHOTS: Final = {"tm_gcn": 33, "cd_gcn": 17}
"""TM-GCN's convolutions are large enough beside pieces of half as many for an epoch to gain."""

HALF: Final = 0.5
"""Share of what can be hidden that is to be hidden."""


class Overlap(Experiment):
    paper = "esdg"
    name = NAME
    title = "Section 4.2: overlap of exchange and convolution (the paper's future work)"
    question = "How much of the waiting in exchanges can convolutions hide, and does an epoch gain?"
    reading = (
        "The paper exchanges, then computes; overlap is its future work, so no claim is answered "
        "here. A rank's snapshots travel in pieces: while one is convolved, others are under way, "
        "forward and backward. Exposed is the time that a rank stands still. Of C exposed in one "
        "piece, beside convolutions of K, k pieces could hide min(C, K) (k - 1) / k: the last "
        "piece has nothing left to stand beside. Copies hide something, too, and are not in K, so "
        "a share may exceed 1. Each piece costs messages and copies of its own, so an epoch gains "
        "less than is hidden, and nothing where snapshots are small. The emulated wire is one "
        f"outgoing link per rank, {MESSAGE_S * 1e6:g} us a message, with a bandwidth at which one "
        "epoch's messages take as long as its convolutions, or as all its computing; its seconds "
        "are a rank's processor seconds and its waiting, as with a core per rank and a network "
        "card. Over Gloo and shared memory the ranks' own processors carry the data, so there is "
        "little to gain. No checkpoints."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": "amlsim", "model": model, "ranks": ranks},
                group=f"{model}/{ranks}",
                timeout_s=60 if preset in ("smoke", "quick") else 1800,
                unavailable="runs on ranks of CPUs" if device == "cuda" else "",
            )
            for model in (MODELS[:1] if preset == "smoke" else MODELS)
            for ranks in RANKS[preset]
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        preset, ranks = context.preset, int(cell.params["ranks"])  # type: ignore[arg-type]
        graph, model = BY_NAME[str(cell.params["dataset"])], str(cell.params["model"])
        kept = QUICK_SNAPSHOTS[model] if preset == "quick" else SNAPSHOTS[preset]
        task = workload(graph, model, preset, snapshots=kept)
        data = load_timeline(task)
        cores = len(os.sched_getaffinity(0))
        media = media_for(preset, model, own_cores=ranks <= cores)
        oracle = TimelineOracle(task, data)
        found = take_overlap_turns(
            task,
            data,
            ranks,
            media,
            PIECES[preset],
            least=TURNS[preset],
            budget_s=context.budget_s if preset in ("full", "paper") else 1e-3,
            timeout_s=cell.timeout_s,
            request=oracle.request,
        )
        checks = oracle.trained_checks(found.before, found.after, found.losses)
        dims = Widths.of(model, window=task.window).redistributed
        sent = int(redistributed(dims, len(data) - 1, data.num_nodes, ranks, forward=1).sum())
        wanted = dict.fromkeys(found.floats, sent)
        checks.append(equal("counters", found.floats, wanted, against=OVER_PAIRS))
        values = values_of(found)
        notes = [
            f"{ranks} processes with one thread each; wires are emulated, their seconds are those "
            "of each rank's processor and of waiting",
        ]
        if ranks > cores:
            notes.append(f"real links left out: {ranks} ranks have {cores} cores")
        return Measurement(
            values=values | {"cores": cores},
            units={name: "B/s" for name in values if name.startswith("bandwidth")}
            | {name: "s" for name in values if "_s " in name or name.endswith("_s")},
            counters={f"messages {k}": n for k, n in found.messages.items()}
            | {"floats": found.floats[1], "bytes_of_a_rank": found.sent_bytes}
            | {f"turns {m.name}": len(found.turns[m.name, 1]) for m in media},
            samples=[turn.seconds for turn in found.turns[media[0].name, 1]],
            deviation={"gradient": largest_gap(checks, "gradients")},
            data=describe(data),
            notes=notes,
            checks=checks,
        )

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="time_split",
                name="overlap",
                title="Epoch in pieces: computing and exposed exchanges",
                points=split_points,
                options={
                    "xlabel": "time of one epoch, ms",
                    "phases_from": "exchanges timed in the same epochs, compute: the rest",
                },
            ),
            FigureSpec(
                kind="sweep",
                name="overlap_share",
                title="Hidden share of what convolutions can hide",
                points=share_points,
                options={
                    "xlabel": "pieces",
                    "ylabel": "hidden / hideable",
                    "base": 2,
                    "ylog": False,
                    "hline": HALF,
                    "hline_label": "half",
                },
            ),
            FigureSpec(
                kind="speedup",
                name="overlap_gain",
                title="Epoch in one piece over epoch in several",
                points=gain_points,
                options={
                    "baseline_label": "one piece",
                    "xlabel": "one piece / several",
                    "interval": TURN_INTERVAL,
                },
            ),
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        said, shares, gained = [], [], []
        for row in select(rows, experiment=NAME):
            k = max(pieces_of(row))
            share = row.values.get(f"hidden_share {WIRE.name} {k}")
            if share is None:
                continue
            shares.append(share)
            name = f"{MODEL_TITLES[row.params['model']]} on {row.params['ranks']} ranks"
            said.append(f"{name} {share:.2f} of it in {k} pieces")
            for medium in media_of(row):
                if f"gain {medium} {k}" not in row.values:  # an older run
                    continue
                gain = row.values[f"gain {medium} {k}"]
                end = f"{1e3 * row.values[f'epoch_s {medium} 1']:.1f} to "
                end += f"{1e3 * row.values[f'epoch_s {medium} {k}']:.1f} ms"
                gained.append((gain, row.values.get(f"low {medium} {k}"), name, medium, end))
        if not said:
            return ""
        reached = sum(share >= HALF for share in shares)
        found = (
            f"On an emulated wire as slow as the convolutions, {reached} of {len(shares)} cases "
            f"hide at least half of the hideable: {'; '.join(said)}."
        )
        sure = [g for g in gained if g[1] is not None and g[1] > 1]
        if not sure:
            return f"{found} No epoch became shorter beyond doubt."
        _, _, name, medium, end = max(sure)
        return (
            f"{found} Epochs became shorter in {len(sure)} of {len(gained)} cases, most with "
            f"{name} on {_link(medium)}: {end}."
        )


def media_for(preset: Preset, model: str, *, own_cores: bool) -> tuple[Medium, ...]:
    """Links of a cell; real ones only where every rank has a core."""
    wires = (WIRE,)
    if preset in ("full", "paper") or (preset == "quick" and model == MODELS[0]):
        wires = (WIRE, SLOW)
    real = (GLOO,) if preset in ("smoke", "quick") else (GLOO, SHARED)
    return (*wires, *real) if own_cores else wires


def values_of(found: OverlapTurns) -> dict[str, float]:
    """Named values of a row; per medium and pieces, medians over the turns.

    `epoch_s`, `exposed_s`; against one piece in the same turn `hidden_s` (exposed) and `saved_s`
    (epoch); `hideable_s`; `hidden_share` and `saved_share` of it, `hidden_low` and `hidden_high`
    bounding the first; `gain`, `low` and `high`, the epoch in one piece over that in k. Per medium
    `bandwidth`.
    """
    values = {"convolve_s": found.convolve_s, "compute_s": found.compute_s}
    values |= {
        f"bandwidth {name}": min(w.bytes_per_second, 1e15) for name, w in found.wires.items()
    }
    for (medium, k), turns in found.turns.items():
        plain, end = found.turns[medium, 1], f"{medium} {k}"
        values[f"epoch_s {end}"] = median(turn.seconds for turn in turns)
        values[f"exposed_s {end}"] = median(turn.exposed for turn in turns)
        if k == 1:
            continue
        pairs = list(zip(plain, turns, strict=True))
        hidden, *bounds = median_interval([one.exposed - many.exposed for one, many in pairs])
        values |= gains(end, [t.seconds for t in plain], [t.seconds for t in turns])
        saved = median(one.seconds - many.seconds for one, many in pairs)
        exposed = median(turn.exposed for turn in plain)
        hideable = hideable_seconds(exposed, found.convolve_s, k)
        values |= {
            f"hidden_s {end}": hidden,
            f"saved_s {end}": saved,
            f"hideable_s {end}": hideable,
        }
        if hideable > 0:
            values |= {
                f"hidden_share {end}": hidden / hideable,
                f"saved_share {end}": saved / hideable,
            }
            if None not in bounds:
                ends = zip(("hidden_low", "hidden_high"), bounds, strict=True)
                values |= {f"{name} {end}": bound / hideable for name, bound in ends}
    return values


def hideable_seconds(exposed_s: float, convolve_s: float, pieces: int) -> float:
    """What k pieces could hide: the shorter of both, but for the piece that stands alone."""
    return min(exposed_s, convolve_s) * (pieces - 1) / pieces


def media_of(row: Any) -> list[str]:
    """Names of the links of a row, in order."""
    start = "exposed_s "
    return [n[len(start) : -2] for n in row.values if n.startswith(start) and n.endswith(" 1")]


def pieces_of(row: Any) -> list[int]:
    """Numbers of pieces of a row, in order."""
    start = f"exposed_s {WIRE.name} "
    return [int(n[len(start) :]) for n in row.values if n.startswith(start)]


def _link(medium: str) -> str:
    return f"emulated {medium}" if medium.startswith("wire") else medium


def _panel(row: Any, medium: str) -> str:
    return f"{MODEL_TITLES[row.params['model']]}, {_link(medium)}"


def split_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """A bar for each number of pieces: computing, and standing still in exchanges."""
    points = []
    for row in select(rows, experiment=NAME):
        for medium in media_of(row):
            for k in pieces_of(row):
                total = row.values[f"epoch_s {medium} {k}"]
                exposed = row.values[f"exposed_s {medium} {k}"]
                phases = {"compute": max(0.0, total - exposed), "communicate": exposed}
                for phase, seconds in phases.items():
                    points.append(
                        {
                            "panel": _panel(row, medium),
                            "row": f"P = {row.params['ranks']}, {k} piece{'s' * (k > 1)}",
                            "system": "esdg",
                            "phase": phase,
                            "seconds": seconds,
                            "total": total,
                            "twin": bool(row.data.get("twin")),
                            "deviation": row.deviation.get("gradient"),
                            "row_ids": [row.id],
                        }
                    )
    return points


def gain_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Epochs of one piece over those of several, turn by turn."""
    return [
        {
            # Ranks stand in the panel, for not every link is there for every number of them.
            "panel": f"{_panel(row, medium)}, P = {row.params['ranks']}",
            "row": f"{k} pieces",
            "system": "esdg",
            "baseline": "one piece",
            "value": row.values[f"gain {medium} {k}"],
            "low": row.values.get(f"low {medium} {k}"),
            "high": row.values.get(f"high {medium} {k}"),
            "n": row.counters[f"turns {medium}"],
            "deviation": row.deviation.get("gradient"),
            "row_ids": [row.id],
        }
        for row in select(rows, experiment=NAME)
        for medium in media_of(row)
        for k in pieces_of(row)
        if f"gain {medium} {k}" in row.values
    ]


def share_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Hidden share by pieces."""
    return [
        {
            "panel": _panel(row, medium),
            "series": f"P = {row.params['ranks']}",
            "x": k,
            "y": row.values[f"hidden_share {medium} {k}"],
            "low": row.values.get(f"hidden_low {medium} {k}"),
            "high": row.values.get(f"hidden_high {medium} {k}"),
            "twin": bool(row.data.get("twin")),
            "row_ids": [row.id],
        }
        for row in select(rows, experiment=NAME)
        for medium in media_of(row)
        for k in pieces_of(row)
        if f"hidden_share {medium} {k}" in row.values
    ]
