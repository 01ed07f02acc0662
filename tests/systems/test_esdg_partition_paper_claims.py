"""Checks of the claims on partitions: each can hold and can fail."""

from __future__ import annotations

from typing import Any

import pytest
from paper_rows import answered_by

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import decide
from dgbench.harness.store.row import Row
from dgbench.systems.esdg import PAPER
from dgbench.systems.esdg import claims as table
from dgbench.systems.esdg.checks import convergence, volume
from dgbench.systems.esdg.experiments.settings import MODELS
from dgbench.systems.esdg.experiments.table2_runs import RANKS

OWN = answered_by(table.TABLE, volume, convergence)
CLAIMS = {claim.id: claim for claim in load_ledger(PAPER.ledger) if claim.id in OWN}
WIDTH = {"tm_gcn": 12, "cd_gcn": 32, "evolvegcn_o": 0}
LAYERS = {"tm_gcn": 1, "cd_gcn": 2, "evolvegcn_o": 0}
T, N = 192, 1_000_000


def row(experiment: str, params: dict[str, Any], **fields: Any) -> Row:
    name = "-".join(map(str, params.values()))
    fields = {"device": "cpu", "preset": "quick", "status": "ok", **fields}
    return Row(id=f"{experiment}-{name}", paper="esdg", experiment=experiment, params=params,
               **fields)  # fmt: skip


def walk(model: str, ranks: int, **counters: int) -> Row:
    floats = 3 * WIDTH[model] * T * N * (ranks - 1) // ranks
    counted = {
        "floats": floats,
        "formula": floats,
        "T": T,
        "N": N,
        "width": WIDTH[model],
        "layers": LAYERS[model],
        "exchanges_forward": 2 * LAYERS[model],
        "exchanges_backward": 2 * LAYERS[model],
        "gradients": 1000,
    } | counters
    return row("table2", {"part": "walk", "model": model, "ranks": ranks}, counters=counted,
               values={"billions": counted["floats"] / 1e9})  # fmt: skip


def walks(**counters: int) -> list[Row]:
    return [walk(model, ranks, **counters) for model in MODELS for ranks in RANKS]


def race(
    model: str,
    cut: str = "dense",
    ranks: int = 4,
    gain: float = 2.0,
    transport: str = "gloo",
    **counters: int,
) -> Row:
    sent = 3 * WIDTH[model] * 1000 * (ranks - 1) // ranks
    counted = {
        "sent_snapshot": sent,
        "formula_snapshot": sent,
        "sent_vertex": 500,
        "formula_vertex": 500,
        "vertex_steps": 1000,
        "edges": 3000 if cut == "dense" else 100,
        "width": WIDTH[model],
        "parameters": 9,
        "reduced_snapshot": 2 * (ranks - 1) * 10,
    } | counters
    values = {"gain snapshot": gain, "low snapshot": 0.9 * gain, "high snapshot": 1.1 * gain}
    params = {"part": "time", "dataset": "amlsim-20k-cycle200", "cut": cut, "model": model,
              "ranks": ranks, "transport": transport}  # fmt: skip
    return row("table2", params, counters=counted, values=values, deviation={"output": 1e-7})


def parts(
    model: str = "tm_gcn",
    remote: tuple[float, ...] = (1.0, 1.8, 2.2),
    cut: str = "dense",
    twin: bool = False,
) -> Row:
    keyed = dict(zip(RANKS, remote, strict=True))
    return row(
        "table2",
        {"part": "parts", "dataset": "amlsim", "cut": cut, "model": model, "method": "pymetis"},
        counters={f"remote_{p}": int(1000 * v) for p, v in keyed.items()},
        values={f"remote_{p}": v for p, v in keyed.items()}
        | {f"billions_{p}": 18 * v * 0.192 for p, v in keyed.items()}
        | {"edges per vertex-step": 3.2},
        data={"twin": twin},
        notes=["vertices parted by pymetis"],
    )


def mixing(*remote: float) -> Row:
    keyed = dict(zip(RANKS, remote, strict=True))
    return row(
        "table2",
        {"part": "mixing", "dataset": "amlsim", "mixing": 0.3},
        counters={f"remote_{p}": int(1000 * v) for p, v in keyed.items()},
        values={f"remote_{p}": v for p, v in keyed.items()},
        data={"twin": True},
    )


def prepared(method: str, gain: float) -> Row:
    values = {"snapshots_s": 1e-5, "vertices_s": gain * 1e-5, "parts_s": 1e-5,
              "gain preparation": gain, "low preparation": 0.8 * gain,
              "high preparation": 1.2 * gain}  # fmt: skip
    params = {"dataset": "amlsim-20k-cycle200", "ranks": 4, "method": method}
    return row("preparation", params, values=values, deviation={"output": 0.0})


def trained(
    model: str,
    *,
    late: float = 0.0,
    early: float = 0.0,
    accuracy: float = 0.0,
    double: float = 0.0,
    noisy: bool = False,
    **counters: int,
) -> Row:
    epochs = 10
    plain = [1 / (1 + e) + 0.5 * (noisy and e % 2) for e in range(epochs)]
    bent = [x * (1 + (late if e >= epochs // 2 else early)) for e, x in enumerate(plain)]
    curves = {
        "loss plain": plain,
        "loss snapshot": plain,
        "loss vertex": bent,
        "accuracy plain": [0.5] * epochs,
        "accuracy snapshot": [0.5] * epochs,
        "accuracy vertex": [0.5 + accuracy] * epochs,
        "loss64 plain": plain,
        "loss64 snapshot": plain,
        "loss64 vertex": [x * (1 + double) for x in plain],
    }
    return row(
        "fig6",
        {"dataset": "amlsim-20k-cycle200", "model": model, "ranks": 2},
        values={f"{name} {i}": v for name, vs in curves.items() for i, v in enumerate(vs)},
        counters={"epochs": epochs, "edges": 1000, "positives": 101, "negatives": 101,
                  "rounded_up": 2} | counters,
        deviation={"gradient": 1e-7},
        data={"twin": False},
    )  # fmt: skip


def judge(name: str, rows: list[Row]) -> Any:
    claim = CLAIMS[f"esdg-{name}"]
    return decide(claim, PAPER.checks[claim.id](claim, rows))


def word(name: str, rows: list[Row]) -> str:
    return judge(name, rows).verdict


def test_every_own_claim_is_in_the_ledger_and_says_what_it_lacks():
    assert set(CLAIMS) == set(OWN)
    assert len(OWN) == 24
    for name in CLAIMS:
        verdict = judge(name.removeprefix("esdg-"), [])
        assert verdict.verdict == "not run here"
        assert verdict.reason


# Volumes of the snapshot partition.


def test_printed_volumes():
    names = ("tab2-volume-tmgcn", "tab2-volume-cdgcn", "tab2-volume-egcn")
    for name in names:
        assert word(name, walks()) == "reproduced"
        assert word(name, walks()[::2]) == "not run here"  # a number of ranks is missing
        assert word(name, walks(floats=10**9, formula=10**9)) == "contradicted"
    off = [*walks()[1:], walk("tm_gcn", 4, formula=1)]
    assert word(names[0], off) == "contradicted"


def test_volume_factor():
    assert word("s64-volume-factor", walks()) == "reproduced"
    off = [*walks(), walk("cd_gcn", 32, floats=7)]
    assert word("s64-volume-factor", off) == "contradicted"
    assert word("s64-volume-factor", [walk("cd_gcn", 4)]) == "not run here"  # one P says nothing
    # Neither 192 steps nor a million vertices can be dealt out evenly to 128 ranks.
    uneven = walk("cd_gcn", 128, floats=7)
    assert word("s64-volume-factor", [*walks(), uneven]) == "reproduced"


def test_volume_constant():
    both = [race("tm_gcn"), race("tm_gcn", "own", 2)]
    assert word("s1-volume-constant", [*walks(), *both]) == "reproduced"
    assert word("s1-volume-constant", [*walks(), both[0]]) == "direction only"  # one graph
    assert word("s1-volume-constant", walks()) == "not run here"
    more = [*both, race("cd_gcn", sent_snapshot=10**9, formula_snapshot=10**9)]
    assert word("s1-volume-constant", [*walks(), *more]) == "contradicted"
    other = [*both, race("cd_gcn", formula_snapshot=1)]
    assert word("s1-volume-constant", [*walks(), *other]) == "contradicted"


def test_redistributions():
    assert word("s42-redistributions", walks()) == "reproduced"
    assert word("s42-redistributions", walks(exchanges_backward=3)) == "contradicted"


def test_evolvegcn_sends_gradients_only():
    race_rows = [race("evolvegcn_o")]
    assert word("s55-evolvegcn-comm", [*walks(), *race_rows]) == "reproduced"
    assert word("s55-evolvegcn-comm", walks(gradients=10**9)) == "contradicted"
    twice = race("evolvegcn_o", reduced_snapshot=120)
    assert word("s55-evolvegcn-comm", [*walks(), twice]) == "contradicted"
    sent = race("evolvegcn_o", sent_snapshot=1)
    assert word("s55-evolvegcn-comm", [*walks(), sent]) == "contradicted"


# Volumes of the vertex partition.


def test_vertex_volume():
    assert word("s41-vertex-volume", [race("tm_gcn")]) == "reproduced"
    rows = [race("tm_gcn"), race("cd_gcn", sent_vertex=501)]
    assert word("s41-vertex-volume", rows) == "contradicted"


def test_vertex_volume_grows():
    name = "s41-vertex-volume-grows"
    real = [parts("cd_gcn"), parts("cd_gcn", (0.1, 0.2, 0.3), "own")]
    assert word(name, real) == "reproduced"
    assert word(name, [*real, mixing(0.1, 0.2, 0.3)]) == "reproduced"
    assert word(name, [*real, mixing(0.1, 0.3, 0.2)]) == "contradicted"
    assert word(name, [parts("cd_gcn", (2.0, 1.0, 3.0))]) == "contradicted"
    thinner = [parts("cd_gcn", (0.1, 0.2, 0.3)), parts("cd_gcn", cut="own")]
    assert word(name, thinner) == "contradicted"
    assert judge(name, [mixing(0.1, 0.2, 0.3)]).data == "twin"


@pytest.mark.parametrize("model", ["tmgcn", "cdgcn", "egcn"])
def test_hyper_volume_is_a_direction_at_most(model):
    name = f"tab2-hyper-volume-{model}"
    inner = volume.MODEL_OF[model]
    assert word(name, [parts(inner)]) == "direction only"
    falling = judge(name, [parts(inner, (3.0, 2.0, 1.0))])
    assert (falling.verdict, falling.other_way) == ("not run here", True)
    assert word(name, [parts(inner, twin=True)]) == "not run here"
    assert word(name, [parts(inner, cut="own")]) == "not run here"


def test_evolvegcn_takes_the_rows_of_equal_smoothing():
    assert word("tab2-hyper-volume-egcn", [parts("tm_gcn")]) == "direction only"
    assert word("tab2-hyper-volume-cdgcn", [parts("tm_gcn")]) == "not run here"


def test_crossings():
    name = "tab2-cross-tmgcn"
    assert word(name, [*walks(), parts()]) == "direction only"
    for remote in ((1.6, 1.8, 2.2), (1.0, 1.2, 2.2), (1.0, 1.8, 1.9)):
        found = judge(name, [*walks(), parts(remote=remote)])
        assert (found.verdict, found.other_way) == ("not run here", True), remote
    name = "tab2-cross-cdgcn"
    assert word(name, [*walks(), parts("cd_gcn")]) == "direction only"
    assert judge(name, [*walks(), parts("cd_gcn", (1.0, 2.0, 6.0))]).other_way
    assert word(name, [parts("cd_gcn")]) == "not run here"


def test_evolvegcn_superior():
    assert word("tab2-egcn-superior", [*walks(), parts()]) == "reproduced"
    assert word("tab2-egcn-superior", [*walks(floats=1), parts()]) == "contradicted"
    assert word("tab2-egcn-superior", walks()) == "not run here"


# Times.


def test_time_order():
    name = "tab2-time-order"
    assert word(name, [race(m) for m in MODELS]) == "direction only"
    assert word(name, [race(m) for m in MODELS[:2]]) == "not run here"
    assert word(name, [race(m, ranks=2) for m in MODELS]) == "not run here"
    slower = judge(name, [race(m, gain=0.5 if m == "cd_gcn" else 2.0) for m in MODELS])
    assert (slower.verdict, slower.other_way) == ("not run here", True)
    open_ = judge(name, [race(m, gain=1.0 if m == "cd_gcn" else 2.0) for m in MODELS])
    assert "undecided" in open_.reason
    assert not open_.other_way
    assert word(name, [race(m, transport="auto") for m in MODELS]) == "not run here"
    slow = [race(m, gain=0.5, transport="auto") for m in MODELS]
    assert word(name, [race(m) for m in MODELS] + slow) == "direction only"
    rows = [race(m) for m in MODELS]
    rows[-1].values.update({"gain vertex lean": 1.6, "low vertex lean": 1.5, "high vertex lean": 2})
    beside = "EvolveGCN without a first pass on either side: 1.6x [1.5, 2]"
    assert beside in judge(name, rows).reason


def test_preprocessing():
    name = "s41-preprocessing"
    assert word(name, [prepared("pymetis", 1e4)]) == "direction only"
    assert word(name, [prepared("pymetis", 1e4), prepared("kahypar", 1e6)]) == "reproduced"
    assert judge(name, [prepared("pymetis", 0.5)]).other_way
    assert word(name, [prepared("kahypar", 3)]) == "direction only"
    assert word(name, [prepared("ranges", 1e4)]) == "not run here"


# Convergence.


def test_curves_coincide():
    name = "fig6-convergence-tmgcn"
    assert word(name, [trained("tm_gcn", late=1e-5)]) == "direction only"
    assert judge(name, [trained("tm_gcn", late=0.1)]).other_way
    assert judge(name, [trained("tm_gcn", accuracy=0.1)]).other_way


def test_curves_part_mildly():
    name = "fig6-convergence-cdgcn"
    assert "agrees too" in judge(name, [trained("cd_gcn", late=0.01)]).reason
    mild = judge(name, [trained("cd_gcn", early=0.01)])
    assert (mild.verdict, "agrees too" in mild.reason) == ("direction only", False)
    assert judge(name, [trained("cd_gcn", late=0.5)]).other_way


def test_curves_part_and_are_noisy():
    name = "fig6-convergence-egcn"
    assert word(name, [trained("evolvegcn_o", late=0.1, noisy=True)]) == "direction only"
    assert judge(name, [trained("evolvegcn_o", late=0.1)]).other_way
    assert judge(name, [trained("evolvegcn_o", noisy=True)]).other_way


def test_equivalence_is_judged_in_float64():
    name = "s64-sequential-equivalence"
    good = [trained(m, late=1e-3) for m in MODELS]
    assert word(name, good) == "reproduced"
    assert "apart from epoch 6" in judge(name, good).reason
    assert word(name, good[:2]) == "not run here"
    assert word(name, [*good[:2], trained("evolvegcn_o", double=1e-3)]) != "reproduced"
    assert word(name, [*good[:2], trained("evolvegcn_o", early=1e-3)]) != "reproduced"


def test_theta():
    assert word("s64-theta", [trained("tm_gcn")]) == "reproduced"
    assert word("s64-theta", [trained("tm_gcn", positives=100, negatives=100)]) == "reproduced"
    for counters in ({"positives": 103, "negatives": 103}, {"negatives": 100}, {"positives": 99}):
        assert word("s64-theta", [trained("tm_gcn", **counters)]) == "contradicted", counters


@pytest.mark.parametrize(("number", "size"), [(1, "44 GB"), (2, "64 GB")])
def test_large_graphs_are_not_published(number, size):
    verdict = judge(f"s65-large-{number}", [])
    assert verdict.verdict == "not run here"
    assert size in verdict.reason
    assert size in str(CLAIMS[f"esdg-s65-large-{number}"].value)
