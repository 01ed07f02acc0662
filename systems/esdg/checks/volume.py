"""Claims on volumes and times of both partitions (sections 4.1, 4.2, 5.5 and 6.4, Table 2)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from dgbench.lab.evidence import finding, missing
from dgbench.lab.table import number, rows_of
from dgbench.systems.base import Claim, Finding
from dgbench.systems.esdg.experiments.preparation import TITLES, prepared, seconds_of, slowdown
from dgbench.systems.esdg.experiments.settings import MODEL_TITLES, MODELS, table2
from dgbench.systems.esdg.experiments.table2 import (
    billions,
    floats,
    on_sockets,
    parted,
    ratios,
    remote_parts,
    remote_per_vertex_step,
    rounds_to,
    standing_for_paper,
    walked,
)
from dgbench.systems.esdg.experiments.table2_runs import EXTRAS, HYPER_FLOATS, LEAN, RANKS

NONE = "the experiment 'table2' did not run"
NO_PARTS = "no vertices were parted in this run"
NO_SAMPLE = "needs real data of the paper's generator: dgbench data get amlsim-20k-cycle200"
PASSES = 3
SMALL = "20 000 accounts stand for a million"
ALIKE = 0.25
"""Tolerance within which two volumes are `about equal`."""
INSIGNIFICANT = 0.01
MUCH = 10
"""From how many times as long on preparation `costs much`."""

MODEL_OF = {"tmgcn": "tm_gcn", "cdgcn": "cd_gcn", "egcn": "evolvegcn_o"}

Rows = Sequence[Any]


def _model(claim: Claim) -> str:
    return MODEL_OF[claim.id.rsplit("-", 1)[1]]


def _trained(rows: Rows) -> list[Any]:
    """Rows of trained epochs, whose exchanges were counted."""
    return rows_of(rows, experiment="table2", part="time")


def volume(claim: Claim, rows: Rows) -> Finding:
    """Table 2's volumes of the snapshot partition, counted at its size."""
    model = _model(claim)
    found = [r for r in walked(rows, model=model) if r.params["ranks"] in RANKS]
    if {r.params["ranks"] for r in found} != set(RANKS):
        return missing(f"{NONE} at {', '.join(map(str, RANKS))} ranks")
    printed = table2("volume", model)
    return finding(
        found,
        measured={str(r.params["ranks"]): floats(r) / 1e9 for r in found},
        holds=all(
            rounds_to(floats(r), printed[r.params["ranks"]])
            and floats(r) == floats(r, method="formula")
            for r in found
        ),
        reason="T = 192, N = 1 M, three passes; every message counted",
    )


def volume_factor(claim: Claim, rows: Rows) -> Finding:
    """T N (P - 1) / P, to the float."""
    found = [r for r in walked(rows) if _width(r) and not _uneven(r)]
    ranks = sorted({r.params["ranks"] for r in found})
    if len(ranks) < 2:
        return missing(f"{NONE} for several numbers of ranks")
    return finding(
        found,
        measured=f"V (P-1)/P to the float at P = {', '.join(map(str, ranks))}"
        if all(_exact(r) for r in found)
        else "other volumes",
        holds=all(_exact(r) for r in found),
        reason="V: 36 floats per vertex and step for TM-GCN, 96 for CD-GCN, in three passes",
    )


def _width(row: Any) -> int:
    """Floats of a vertex and step that a pass redistributes."""
    return number(row, "columns", of="redistributed")


def _vertex_steps(row: Any) -> int:
    """T N of the paper's size, or those that were trained."""
    if row.params["part"] == "walk":
        return number(row, "snapshots") * number(row, "vertices")
    return number(row, "vertices", of="steps")


def _bound(row: Any) -> int:
    """Upper bound of the floats that ranks send, for any number of ranks."""
    return PASSES * _width(row) * _vertex_steps(row)


def _uneven(row: Any) -> bool:
    """Return True if ranks have shares of different sizes, both of steps and of vertices."""
    ranks = row.params["ranks"]
    return bool(number(row, "snapshots") % ranks and number(row, "vertices") % ranks)


def _exact(row: Any) -> bool:
    ranks = row.params["ranks"]
    return floats(row) * ranks == _bound(row) * (ranks - 1)


def volume_constant(claim: Claim, rows: Rows) -> Finding:
    """Floats per vertex and step stay below the same bound for every P and every graph."""
    walks = [r for r in walked(rows) if _width(r)]
    trained = [r for r in _trained(rows) if _width(r)]
    densities = {round(number(r, "edges") / _vertex_steps(r), 3) for r in trained}
    if len({r.params["ranks"] for r in walks}) < 2 or not trained:
        return missing(NONE)
    bounded = all(floats(r) <= _bound(r) for r in walks) and all(
        floats(r, setting="snapshot") <= _bound(r) for r in trained
    )
    same = all(_as_formula(r, "snapshot") for r in trained)
    shown: dict[str, str] = {}
    for model in dict.fromkeys(r.params["model"] for r in walks):
        per = [floats(r) / _vertex_steps(r) for r in walks if r.params["model"] == model]
        shown[MODEL_TITLES[model]] = f"{min(per):.3g} to {max(per):.3g} floats per vertex-step"
    return finding(
        [*walks, *trained],
        measured=shown,
        holds=bounded and same and len(densities) > 1,
        direction=bounded and same,
        reason=f"P up to {max(r.params['ranks'] for r in walks)}; trained on snapshots of "
        + " and ".join(f"{d:.2g}" for d in sorted(densities))
        + " edges per vertex",
    )


def redistributions(claim: Claim, rows: Rows) -> Finding:
    """All-to-alls of a pass per layer with a temporal half that needs them."""
    found = [r for r in walked(rows) if number(r, "exchanges", of="layers")]
    if not found:
        return missing(NONE)
    counted = {
        phase: {
            number(r, "exchanges", phase=phase) / number(r, "exchanges", of="layers") for r in found
        }
        for phase in ("forward", "backward")
    }
    return finding(
        found,
        measured={phase: max(values) for phase, values in counted.items()},
        holds=all(values == {claim.value[phase]} for phase, values in counted.items()),
        reason="both layers of CD-GCN; of TM-GCN the first, as nothing reads its last average",
    )


def evolvegcn(claim: Claim, rows: Rows) -> Finding:
    """No activation is sent, and gradients are few beside what the other models send."""
    walks = walked(rows, model="evolvegcn_o")
    trained = [r for r in _trained(rows) if r.params["model"] == "evolvegcn_o"]
    if not walks:
        return missing(NONE)
    once = all(
        # One ring of all gradients and one of the loss.
        floats(r, setting="snapshot", of="reduced")
        == 2 * (r.params["ranks"] - 1) * (number(r, "parameters") + 1)
        for r in trained
    )
    silent = not any(map(floats, walks)) and not any(floats(r, setting="snapshot") for r in trained)
    others = {r.params["ranks"]: r for r in walked(rows, model="tm_gcn")}
    shares = [
        floats(r, of="gradients") / floats(others[r.params["ranks"]])
        for r in walks
        if r.params["ranks"] in others
    ]
    if not shares:
        return missing("TM-GCN was not counted beside it")
    return finding(
        [*walks, *trained],
        measured=f"no activations; gradients at most {max(shares):.1e} of TM-GCN's volume",
        holds=silent and once and max(shares) < INSIGNIFICANT,
        reason="one all-reduce of gradients per epoch" if trained else "",
    )


def vertex_volume(claim: Claim, rows: Rows) -> Finding:
    """Check trained epochs' traffic against 18 floats per remote reader, and the pairs' ends."""
    found = _trained(rows)
    if not found:
        return missing(NONE)
    right = [_as_formula(row, "vertex") for row in found]
    return finding(
        found,
        measured=f"equal to the float in {sum(right)} of {len(found)} epochs",
        holds=all(right),
        reason="lambda without the owner; hidden features of the second layer, three passes",
    )


def _as_formula(row: Any, setting: str) -> bool:
    return floats(row, setting=setting) == floats(row, setting=setting, method="formula")


def vertex_grows(claim: Claim, rows: Rows) -> Finding:
    """More parts and more edges per vertex, more remote readers; planted blocks beside it."""
    planted = rows_of(rows, experiment="table2", part="mixing")
    real = [r for r in parted(rows) if not r.data.get("twin")]
    found = real or planted
    if not found:
        return missing(NO_PARTS)
    grows = all(map(_grows, [*real, *planted]))
    cuts = {
        cut: [r for r in real if r.params["cut"] == cut and r.params["model"] == "cd_gcn"]
        for cut in ("own", "dense")
    }
    denser = all(
        remote_parts(thick, p) > remote_parts(thin, p)
        for thick in cuts["dense"]
        for thin in cuts["own"]
        for p in RANKS
    )
    words = [f"real: {_span(real)}"] if real else []
    if planted:
        words.append(f"planted blocks: {_span(planted)}")
    return finding(
        found,
        measured="; ".join(words) + " remote parts per vertex-step from 4 to 64 parts",
        holds=grows and denser,
        reason=f"mixing {', '.join(str(r.params['mixing']) for r in planted)}" if planted else "",
    )


def _grows(row: Any) -> bool:
    reads = [number(row, "remote_reads", ranks=p) for p in RANKS]
    return all(a < b for a, b in pairwise(reads))


def _span(rows: Rows) -> str:
    factors = [remote_parts(r, RANKS[-1]) / remote_parts(r, RANKS[0]) for r in rows]
    return f"{min(factors):.2g}x to {max(factors):.2g}x"


def _sample(rows: Rows, model: str) -> list[Any]:
    """The row of a real sample that stands for the paper's graph, or nothing."""
    row = standing_for_paper(rows, model)
    return [] if row is None or row.data.get("twin") or row.params["cut"] != "dense" else [row]


def _density(row: Any) -> float:
    """Edges of a vertex and step."""
    return number(row, "density", of="edges")


def hyper_volume(claim: Claim, rows: Rows) -> Finding:
    """Remote readers of a real sample as dense as the paper's graph, scaled to its size."""
    model = _model(claim)
    found = _sample(rows, model)
    if not found:
        return missing(NO_SAMPLE)
    row = found[0]
    counted = {p: billions(row, ranks=p) for p in RANKS}
    printed = table2("hyper-volume", model)
    per = ", ".join(f"{remote_parts(row, p):.2g}" for p in RANKS)
    wanted = ", ".join(
        f"{printed[p] / (HYPER_FLOATS * 0.192):.2g}" if p in printed else "-" for p in RANKS
    )
    return finding(
        found,
        measured={str(p): value for p, value in counted.items()},
        direction=_grows(row),
        reason=f"{SMALL}; {per} remote parts per vertex-step against {wanted} of the paper, with "
        f"{_density(row):.2g} edges per vertex-step; {row.notes[0]}",
    )


def cross(claim: Claim, rows: Rows) -> Finding:
    """Check which of both partitions sends more, at 4, 16 and 64 ranks."""
    model = _model(claim)
    found = _sample(rows, model)
    walks = {r.params["ranks"]: r for r in walked(rows, model=model)}
    if not found or not set(RANKS) <= set(walks):
        return missing(NO_SAMPLE if not found else NONE)
    share = {p: billions(found[0], ranks=p) / billions(walks[p]) for p in RANKS}
    if model == "tm_gcn":
        as_said = share[4] < 1 and abs(share[16] - 1) <= ALIKE and share[64] > 1
    else:
        as_said = max(share.values()) < 1 and _grows(found[0])
    return finding(
        [found[0], *(walks[p] for p in RANKS)],
        measured={str(p): f"{value:.2g} of the snapshot volume" for p, value in share.items()},
        holds=as_said,
        reason=f"{SMALL}, with {_density(found[0]):.2g} edges per vertex-step; {found[0].notes[0]}",
    )


def egcn_superior(claim: Claim, rows: Rows) -> Finding:
    walks = walked(rows, model="evolvegcn_o")
    remote = remote_per_vertex_step(rows, "evolvegcn_o", RANKS[0])
    found = _sample(rows, "evolvegcn_o")
    if not walks or remote is None or not found:
        return missing(NONE if not walks else NO_SAMPLE)
    return finding(
        [*walks, *found],
        measured=f"0 against {billions(found[0], ranks=4):.2g} to "
        f"{billions(found[0], ranks=64):.2g} billion floats",
        holds=not any(map(floats, walks)) and remote > 0,
        reason=SMALL,
    )


def time_order(claim: Claim, rows: Rows) -> Finding:
    """Snapshot against vertex partition at four ranks over Gloo, with the paper's exchanges.

    In turns on the same processes. One model whose interval lies below 1 contradicts the claim; an
    interval that holds 1 leaves it open, whatever the others say for it.
    """
    found = _raced(rows, "snapshot")
    if {model for model, _, _ in found} != set(MODELS):
        return missing(f"{NONE} for all three models on 4 ranks over Gloo")
    used = [r for r in on_sockets(rows) if r.params["ranks"] == 4]
    sides = [ratio.side for ratio in found.values()]
    beside = [
        f"{MODEL_TITLES[model]} {words}: {_gain(ratio)}"
        for name, words in (
            *((extra, extra) for extra in EXTRAS["dense"]),
            (LEAN, "without a first pass on either side"),
        )
        for (model, _, cut), ratio in _raced(rows, name).items()
        if cut == "dense"
    ]
    return finding(
        used,
        measured={
            f"{MODEL_TITLES[model]}, {cut}": _gain(ratio)
            for (model, _, cut), ratio in found.items()
        },
        direction=min(sides) > 0,
        undecided=min(sides) == 0,
        reason="4 processes on the cores of one machine; the growth at 64 ranks needs 64 devices"
        + "".join(f"; {words}" for words in beside),
    )


def _raced(rows: Rows, name: str) -> dict[Any, Any]:
    """Gains over Gloo on four ranks."""
    return {key: ratio for key, ratio in ratios(rows, name).items() if key[1] == 4}


def _gain(ratio: Any) -> str:
    ends = "" if ratio.low is None else f" [{ratio.low:.2g}, {ratio.high:.2g}]"
    return f"{ratio.value:.2g}x{ends}"


def preprocessing(claim: Claim, rows: Rows) -> Finding:
    """Seconds by the best search there is for parts, over seconds for shares of the snapshots."""
    for method in ("kahypar", "pymetis"):
        ratio = slowdown(rows, method)
        if ratio is None:
            continue
        found = prepared(rows, method=method)
        hyper = method == "kahypar"
        longest = {
            setting: max(seconds_of(row, setting) for row in found)
            for setting in ("snapshots", "vertices")
        }
        return finding(
            found,
            proxy="" if hyper else "METIS in place of a hypergraph partitioner",
            measured=f"{ratio.value:.2g} times as long",
            holds=ratio.value > MUCH and (ratio.low is None or ratio.low > 1),
            direction=ratio.value > 1,
            reason=f"{TITLES[method]}: {longest['vertices']:.2g} s against "
            f"{longest['snapshots'] * 1e6:.2g} microseconds",
        )
    return missing("needs a partitioner: pip install pymetis, or kahypar")
