"""Overlap of exchanges with convolutions: what ESDG leaves to the future (SC 2021, section 4.2)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from dgbench.lab.charts import chart, mark, sweep
from dgbench.lab.compare import TURN_INTERVAL, observe_speedup
from dgbench.lab.result_checks import equal
from dgbench.lab.table import Entry, Table, number
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

PIECES: Final = {"smoke": (1, 2), "full": (1, 2, 4, 8), "paper": (1, 2, 4, 8)}
RANKS: Final = {"smoke": (2,), "full": (2, 4, 8), "paper": (2, 4, 8)}
"""Quick has none: no claim is about this."""
TURNS: Final = {"smoke": 2, "full": 15, "paper": 15}
"""Six are the fewest whose extremes bound a median with 95 %."""

SNAPSHOTS: Final = {"smoke": 9, "full": 97, "paper": None}

HALF: Final = 0.5
"""Share of what can be hidden that is to be hidden."""
ONE_PIECE: Final = "one piece"
"""Baseline whose exchanges are not cut."""


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
            self.cell_of(
                {"dataset": "amlsim", "model": model, "ranks": ranks},
                f"{model}/{ranks}",
                timeout_s=60 if preset == "smoke" else 1800,
                unavailable="runs on ranks of CPUs" if device == "cuda" else "",
            )
            for model in (MODELS[:1] if preset == "smoke" else MODELS)
            for ranks in RANKS.get(preset, ())
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        preset, ranks = context.preset, int(cell.params["ranks"])  # type: ignore[arg-type]
        graph, model = BY_NAME[str(cell.params["dataset"])], str(cell.params["model"])
        task = workload(graph, model, preset, snapshots=SNAPSHOTS[preset])
        data = load_timeline(task)
        cores = len(os.sched_getaffinity(0))
        media = media_for(preset, own_cores=ranks <= cores)
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
        checks += oracle.audited(found.audits, found.losses)
        dims = Widths.of(model, window=task.window).redistributed
        sent = int(redistributed(dims, len(data) - 1, data.num_nodes, ranks, forward=1).sum())
        wanted = dict.fromkeys(found.floats, sent)
        checks.append(equal("counters", found.floats, wanted, against=OVER_PAIRS))
        row = observed(found, media)
        row.observe("cores", cores)
        row.notes = [
            f"{ranks} processes with one thread each; wires are emulated, their seconds are those "
            "of each rank's processor and of waiting",
        ]
        if ranks > cores:
            row.notes.append(f"real links left out: {ranks} ranks have {cores} cores")
        row.deviation = {"gradient": largest_gap(checks, "gradients")}
        row.data = describe(data)
        row.checks = checks
        return row

    def figures(self) -> list[FigureSpec]:
        return [
            chart("time_split", "overlap", "Epoch in pieces: computing and exposed exchanges",
                split_points, xlabel="time of one epoch, ms",
                phases_from="exchanges timed in the same epochs, compute: the rest"),
            sweep("overlap_share", "Hidden share of what convolutions can hide", share_points,
                xlabel="pieces", ylabel="hidden / hideable", base=2, ylog=False, hline=HALF,
                hline_label="half"),
            chart("speedup", "overlap_gain", "Epoch in one piece over epoch in several",
                gain_points, baseline_label="one piece", xlabel="one piece / several",
                interval=TURN_INTERVAL),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        said, reached, gained = [], [], []
        for row in Table.of(rows, experiment=NAME).rows:
            found = Table.of([row])
            name = f"{MODEL_TITLES[row.params['model']]} on {row.params['ranks']} ranks"
            most = max(one["pieces"] for one in found.where("phase_time", link=WIRE.name))
            for share in found.where("portion", of="hidden", link=WIRE.name, pieces=most):
                reached.append(share.value >= HALF)
                said.append(f"{name} {share.value:.2f} of it in {most} pieces")
                for gain in found.where("speedup", pieces=most):
                    link = gain["link"]
                    one, many = (
                        1e3 * number(row, "epoch_time", link=link, pieces=k) for k in (1, most)
                    )
                    end = f"{one:.1f} to {many:.1f} ms"
                    gained.append((gain.value, gain.of.low, name, link, end))
        if not said:
            return ""
        answer = (
            f"On an emulated wire as slow as the convolutions, {sum(reached)} of {len(reached)} "
            f"cases hide at least half of the hideable: {'; '.join(said)}."
        )
        sure = [g for g in gained if g[1] is not None and g[1] > 1]
        if not sure:
            return f"{answer} No epoch became shorter beyond doubt."
        _, _, name, link, end = max(sure)
        return (
            f"{answer} Epochs became shorter in {len(sure)} of {len(gained)} cases, most with "
            f"{name} on {_link(link)}: {end}."
        )


def media_for(preset: Preset, *, own_cores: bool) -> tuple[Medium, ...]:
    """Links of a cell; real ones only where every rank has a core."""
    wires = (WIRE,)
    if preset in ("full", "paper"):
        wires = (WIRE, SLOW)
    real = (GLOO,) if preset == "smoke" else (GLOO, SHARED)
    return (*wires, *real) if own_cores else wires


def observed(found: OverlapTurns, media: Sequence[Medium]) -> Measurement:
    """Observations of a row; by link and pieces, medians over the turns.

    Of an epoch its time, the part `exposed` and the part that is `hideable`. Against one piece in
    the same turn, as portions of what is hideable: what is `hidden` (of what was exposed) and what
    is `saved` (of the epoch); both are negative where pieces cost more than they hide.
    """
    row = Measurement()
    row.observe("operation_time", found.convolve_s, of="convolve")
    row.observe("operation_time", found.compute_s, of="compute")
    for link, wire in found.wires.items():
        row.observe("bandwidth", min(wire.bytes_per_second, 1e15), link=link)
    for (link, k), turns in found.turns.items():
        where = {"link": link, "pieces": k}
        plain = found.turns[link, 1]
        row.observe("epoch_time", median(turn.seconds for turn in turns), **where)
        row.observe("phase_time", median(turn.exposed for turn in turns), phase="exposed", **where)
        if k == 1:
            continue
        pairs = list(zip(plain, turns, strict=True))
        hidden, low, high = median_interval([one.exposed - many.exposed for one, many in pairs])
        observe_speedup(row, [t.seconds for t in plain], [t.seconds for t in turns], **where)
        saved = median(one.seconds - many.seconds for one, many in pairs)
        exposed = median(turn.exposed for turn in plain)
        hideable = hideable_seconds(exposed, found.convolve_s, k)
        row.observe("phase_time", hideable, phase="hideable", **where)
        if hideable > 0:
            bounded = low is not None and high is not None
            ends = {"low": low / hideable, "high": high / hideable} if bounded else {}
            row.observe("portion", hidden / hideable, **ends, of="hidden", **where)
            row.observe("portion", saved / hideable, of="saved", **where)
    for pieces, count in found.messages.items():
        row.observe("messages", count, pieces=pieces)
    row.observe("floats", found.floats[1])
    row.observe("exchanged", found.sent_bytes)
    for medium in media:
        row.observe("turns", len(found.turns[medium.name, 1]), link=medium.name)
    samples = [turn.seconds for turn in found.turns[media[0].name, 1]]
    row.observe("epoch_time", median(samples), samples=samples)
    return row


def hideable_seconds(exposed_s: float, convolve_s: float, pieces: int) -> float:
    """Seconds that k pieces could hide: the shorter of both, except for the piece that stands
    alone."""
    return min(exposed_s, convolve_s) * (pieces - 1) / pieces


def _link(medium: str) -> str:
    return f"emulated {medium}" if medium.startswith("wire") else medium


def _panel(one: Entry) -> str:
    return f"{MODEL_TITLES[one['model']]}, {_link(one['link'])}"


def _found(rows: Sequence[Any], metric: str, **where: Any) -> Table:
    return Table.of(rows, experiment=NAME).where(metric, **where)


def split_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """A bar for each number of pieces: computing, and standing still in exchanges."""
    points = []
    for exposed in _found(rows, "phase_time", phase="exposed"):
        k = exposed["pieces"]
        total = number(exposed.row, "epoch_time", link=exposed["link"], pieces=k)
        phases = {"compute": max(0.0, total - exposed.value), "communicate": exposed.value}
        points += [
            mark(
                exposed.row,
                panel=_panel(exposed),
                row=f"P = {exposed['ranks']}, {k} piece{'s' * (k > 1)}",
                system="esdg",
                phase=phase,
                seconds=seconds,
                total=total,
                deviation=exposed.row.deviation.get("gradient"),
            )
            for phase, seconds in phases.items()
        ]
    return points


def gain_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Epochs of one piece over those of several, turn by turn."""
    return [
        {
            # Ranks stand in the panel, for not every link is there for every number of them.
            "panel": f"{_panel(gain)}, P = {gain['ranks']}",
            "row": f"{gain['pieces']} pieces",
            "system": "esdg",
            "baseline": ONE_PIECE,
            "value": gain.value,
            "low": gain.of.low,
            "high": gain.of.high,
            "n": number(gain.row, "turns", link=gain["link"]),
            "deviation": gain.row.deviation.get("gradient"),
            "row_ids": [gain.row.id],
        }
        for gain in _found(rows, "speedup")
    ]


def share_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Hidden share by pieces."""
    return [
        mark(
            share.row,
            panel=_panel(share),
            series=f"P = {share['ranks']}",
            x=share["pieces"],
            y=share.value,
            low=share.of.low,
            high=share.of.high,
        )
        for share in _found(rows, "portion", of="hidden")
    ]
