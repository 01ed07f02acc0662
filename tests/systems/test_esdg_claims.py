"""ESDG's claims on kept rows with other numbers: a case for each condition of a rule.

What kept rows, parts of them and rows of unkept presets decide stands in `tests/golden/esdg`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kept_rows import ANY, Rows, about, glyphs_of, kept, of, put, without
from msgspec.structs import replace

from dgbench.lab.table import number
from dgbench.systems.esdg import PAPER
from dgbench.systems.esdg.experiments import table1
from dgbench.systems.esdg.experiments.memory import SHARES
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODELS
from dgbench.systems.esdg.experiments.settings import table2 as printed
from dgbench.systems.esdg.experiments.table2_runs import RANKS

Case = tuple[str, str, Rows]
PARTED = {"tmgcn": "tm_gcn", "cdgcn": "cd_gcn"}


def rows(experiment: str = "", **params: Any) -> Rows:
    return of(kept("intel-xeon-2-cores", "esdg"), experiment, **params)


def but(some: Rows, metric: str, value: Any, base: Rows | None = None, **dims: Any) -> Rows:
    """All kept rows, of which some have another number."""
    return put(rows() if base is None else base, some, metric, value, **dims)


def of_all_models(some: Rows) -> Rows:
    """These rows, and copies of those of one model for each that has none."""
    like = of(some, model=some[0].params["model"])
    return some + [
        replace(
            row, id=f"{model}-{row.id}", cell_hash=f"{model}-{row.cell_hash}",
            params={**row.params, "model": model},
        )
        for model in MODELS if not of(some, model=model) for row in like
    ]  # fmt: skip


def one(experiment: str, **params: Any) -> Rows:
    """The first of these rows."""
    return rows(experiment, **params)[:1]


def volumes() -> Iterator[Case]:
    walk, race = {"part": "walk"}, {"part": "time"}
    silent = one("table2", **walk, model="evolvegcn_o")
    other, formula = one("table2", **walk, model="tm_gcn"), {"method": "formula"}
    yield "tab2-volume-tmgcn", "=F", but(other, "floats", 7, **formula)
    loud = but(silent, "floats", 10**9)
    yield "tab2-volume-egcn", "X", put(loud, silent, "floats", 10**9, **formula)
    some = one("table2", **walk, model="cd_gcn", ranks=16)
    uneven = put(but(some, "floats", 7), some, "vertices", 1_000_001)
    yield "s64-volume-factor", "X", uneven
    yield "s64-volume-factor", "X", put(but(some, "floats", 7), some, "snapshots", 193)
    yield "s64-volume-factor", "R", put(uneven, some, "snapshots", 193)
    raced, name = one("table2", **race, model="cd_gcn"), "s1-volume-constant"
    yield name, "X", but(some, "floats", 10**12)
    loud = but(raced, "floats", 10**12, setting="snapshot")
    yield name, "X", put(loud, raced, "floats", 10**12, setting="snapshot", method="formula")
    yield name, "X", but(raced, "floats", 1, setting="snapshot", method="formula")
    for way in ("forward", "backward"):
        yield "s42-redistributions", "X", but(some, "exchanges", 3, phase=way)
    name, raced = "s55-evolvegcn-comm", one("table2", **race, model="evolvegcn_o")
    yield name, "X", but(silent, "floats", 10**9, of="gradients")
    yield name, "X", but(silent, "floats", 1)
    yield name, "X", but(raced, "floats", 1, setting="snapshot")
    yield name, "X", but(raced, "floats", 120, setting="snapshot", of="reduced")
    raced = one("table2", **race, model="cd_gcn")
    yield "s41-vertex-volume", "X", but(raced, "floats", 501, setting="vertex")
    yield "tab2-egcn-superior", "X", but(silent, "floats", 1)
    some = one("table2", part="parts", model="tm_gcn", cut="dense")
    yield "tab2-egcn-superior", "X", but(some, "estimate", 0.0, of="floats", ranks=4)


def scaled(some: Rows, billions: Any) -> Rows:
    """All rows, of which some send so many floats by number of parts."""
    by = lambda _, one: billions.get(one.dims["ranks"], 1.0)  # noqa: E731
    return but(some, "estimate", by, of="floats", ranks=ANY)


def parts() -> Iterator[Case]:
    every, planted = rows("table2", part="parts"), rows("table2", part="mixing")
    name = "s41-vertex-volume-grows"
    # Planted blocks are a remark where there are real graphs: more evidence is not less.
    falling = but(planted[:1], "remote_reads", 1, ranks=64)
    yield name, "R", falling
    yield name, "O", without(falling, every)
    yield name, "S", without(rows(), every)
    thin = rows("table2", part="parts", model="cd_gcn", cut="own")[:1]
    yield name, "X", but(thin, "density", 99.0, of="remote_reads", ranks=16)
    for title, model in (*PARTED.items(), ("egcn", "tm_gcn")):
        name = f"tab2-hyper-volume-{title}"
        dense = rows("table2", part="parts", model=model, cut="dense")
        said = printed("hyper-volume", "evolvegcn_o" if title == "egcn" else model)
        good = scaled(dense, said)
        yield name, "S", good
        yield name, "O", put(good, dense, "estimate", 1.3 * said[64], of="floats", ranks=64)
    for title, word, *sent in (
        ("tmgcn", "S", 5.0, 6.5, 7.0), ("tmgcn", "O", 5.3, 6.5, 7.0),
        ("tmgcn", "O", 5.0, 8.5, 9.0), ("tmgcn", "O", 5.0, 6.5, 6.7),
        ("cdgcn", "S", 1.0, 2.0, 3.0), ("cdgcn", "O", 1.0, 2.0, 19.0),
    ):  # fmt: skip
        some = rows("table2", part="parts", model=PARTED[title], cut="dense")
        changed = scaled(some, dict(zip(RANKS, sent, strict=True)))
        yield f"tab2-cross-{title}", word, changed
        if word == "S" and title == "cdgcn":
            yield "tab2-cross-cdgcn", "O", put(changed, some, "remote_reads", 1, ranks=64)
            yield "tab2-cross-cdgcn", "-", without(changed, rows("table2", part="walk", ranks=16))
            yield "tab2-cross-cdgcn", "-", without(changed, some)


def times() -> Iterator[Case]:
    raced = rows("table2", part="time", ranks=4, transport="gloo")

    def faster(base: float, **by: float) -> Rows:
        gain = lambda row, _: by.get(row.params["model"], base)  # noqa: E731
        return but(raced, "speedup", gain, setting="snapshot")

    name = "tab2-time-order"
    for word, changed in (
        ("s", faster(2.0)),
        ("O", faster(2.0, cd_gcn=0.5)),
    ):
        yield name, word, changed
    name, where = "s41-preprocessing", {"setting": "snapshots", "baseline": "vertices"}
    changed = rows("preparation", method="pymetis")
    for mean, spread, word in ((0.5, 0, "O"), (9.5, 0.1, "u")):
        gain = lambda row, _, m=mean, s=spread: m * (1 + s * (row.round - 3))  # noqa: E731
        yield name, word, but(changed, "speedup", gain, **where)
    fast = but(changed, "speedup", 1e4, **where)
    other = about(changed, changed, params={"dataset": "amlsim"})
    other = [about([row], [row], id=f"{row.id}-other")[0] for row in other]
    # Each graph has to take so much longer, not their mean.
    yield name, "O", [*fast, *put(other, other, "speedup", 2.0, **where)]


def curves() -> Iterator[Case]:
    vertex, half = {"setting": "vertex", "epoch": ANY}, 3

    def same(base: Rows, some: Rows, metric: str, by: Callable[[int], float]) -> Rows:
        """All rows, of which some have a vertex partition's curve that parts by so much."""

        def value(row: Any, one: Any) -> float:
            epoch = one.dims["epoch"]
            plain = number(row, metric, setting="snapshot", epoch=epoch)
            return plain * (1 + by(epoch)) if metric == "loss" else plain + by(epoch)

        return put(base, some, metric, value, **vertex)

    def bent(model: str, metric: str = "loss", by: Callable[[int], float] = lambda e: 0.0) -> Rows:
        """All rows, of which a model's last one parts by so much, and the others by nothing."""
        every = rows("fig6", model=model)
        level = same(rows("fig6"), every, metric, lambda e: 0.0)
        return same(level, every[-1:], metric, by)

    yield "fig6-convergence-tmgcn", "X", bent("tm_gcn", "accuracy", lambda e: 0.1 * (e == 4))
    # A gap that no plot shows is none that grows late, as it is none that is visible.
    name, every = "fig6-convergence-cdgcn", rows("fig6", model="cd_gcn")
    good = same(rows("fig6"), every, "loss", lambda e: 0.01 * (e == half))
    yield name, "R", good
    for early, late in ((0.01, 0.01), (0.0, 0.5)):
        by = lambda e, a=early, b=late: {1: a, half: b}.get(e, 0.0)  # noqa: E731
        yield name, "X", same(good, every[-1:], "loss", by)
    name, every = "fig6-convergence-egcn", rows("fig6", model="evolvegcn_o")
    for apart, points, rises, word in (
        (0.1, 0.0, 0.1, "R"), (0.0, 0.1, 0.1, "R"), (0.1, 0.0, 0.0, "X"), (1e-6, 0.0, 0.1, "X")
    ):  # fmt: skip
        changed = same(rows("fig6"), every, "loss", lambda e, a=apart: a * (e == 4))
        changed = same(changed, every, "accuracy", lambda e, p=points: p * (e == 4))
        plain = lambda _, one, r=rises: 0.7 + r * (one.dims["epoch"] % 2)  # noqa: E731
        yield name, word, put(changed, every, "loss", plain, setting="plain", epoch=ANY)
    name, some = "s64-sequential-equivalence", every[:1]
    yield name, "X", but(some, "loss", 9.0, setting="vertex", epoch=2, dtype="float64")
    yield name, "X", but(some, "loss", 9.0, setting="vertex", epoch=0)
    edges = number(some[0], "edges")
    for positives, negatives in ((None, 7), (edges, edges)):
        changed = but(some, "pairs", negatives, of="negatives")
        if positives:
            changed = put(changed, some, "pairs", positives, of="positives")
        yield "s64-theta", "X", changed


def blocks() -> Iterator[Case]:
    sizes, each = rows("memory", part="sizes"), {"dataset": ANY, "method": ANY, "ranks": ANY}
    changed = but(sizes, "memory", lambda _, one: 8 * one.value, of=ANY, **each)
    yield "s31-oom-below-8", "S(SSS)", changed
    large = but(sizes, "memory", lambda _, one: 10**6 * one.value, of="whole", **each)
    yield "s62-baseline-oom-node", "S(SSS)", large
    swept, budget = rows("memory", part="sweep"), rows("memory", part="budget")
    twice = {"of": "brought", "setting": "paper", "blocks": 4}
    yield "s32-transfer-twice", "X", but(swept[:1], "snapshots", 63, **twice)
    for share in SHARES:
        limit = number(budget[0], "memory", of="budget", budget_share=share)
        sizes = {"fewer": limit - 1, "peak": int(1.2 * limit), "planned": limit + 1}
        for name, size in sizes.items():
            changed = but(budget[:1], "memory", size, of=name, budget_share=share)
            yield "s62-bsize-tuned", "O", changed
    for name, some, where in (
        ("s31-fewer-blocks-faster", swept, {"baseline": "paper", "blocks": ANY}),
        ("s55-precompute", rows("ablation", kind="precompute"), {"setting": ANY}),
    ):
        some = of_all_models(some)
        for word, *by in (("S", 2, 2, 2), ("O", 2, 2, 0.5), ("u", 2, 1, 2), ("O", 2, 1, 0.5)):
            gains = dict(zip(MODELS, by, strict=True))
            gain = lambda row, _, g=gains: float(g[row.params["model"]])  # noqa: E731
            changed = but(some, "speedup", gain, [*without(rows(), some), *some], **where)
            yield name, word, changed
            if word == "S":
                yield name, "R", about(changed, some, device="cuda")


def differences() -> Iterator[Case]:
    twin = one("table1", dataset="youtube")
    whole = about(twin, twin, data={"twin": False, "dataset": "youtube", "scale": 1.0})
    for key, (metric, dims) in table1.COLUMNS.items():
        whole = put(whole, whole, metric, BY_NAME["youtube"].printed[key], **dims)
    yield "tab1-youtube", "R", whole
    yield "tab1-youtube", "S", about(whole, whole, data={"scale": 0.5})
    yield "tab1-youtube", "X", put(whole, whole, "edges", 14_000_000, smoothing="none")
    some = [row for row in rows("smoothing") if not row.data.get("twin")]
    name = "s32-gd-bytes"
    for form in ("sent", "forced"):
        yield name, "X", but(some, "topology_sent", 7, format=form, of="made")
    yield "s54-window-equivalence", "=F", but(some, "snapshots", 3, of="equal")
    counted, timed = rows("fig4", part="bytes"), rows("fig4", part="timed")
    real = [row for row in counted if not row.data.get("twin")][:1]
    name = "s62-gd-benefit-fraction"
    yield name, "=F", but(real, "snapshots", 9, of="kept", blocks=1, ranks=8)
    engine = [row for row in timed if not row.data.get("twin")][:1]
    for more, word in ((12, "=T"), (13, "=F")):
        yield name, word, but(engine, "snapshots", more, setting="GD", format="difference")

    def smaller(model: str, by: float, ranks: Any = 1) -> Rows:
        """Matrices by difference on one real graph that are so many times smaller."""
        return but(
            real, "topology_sent",
            lambda row, _: int(number(row, "topology_sent", model=model, format="plain") / by),
            model=model, format="sent", blocks=1, ranks=ranks,
        )  # fmt: skip

    yield "s62-gd-gains-shrink", "O", smaller("tm_gcn", 99.0, 64)
    yield "s62-gd-gains-shrink", "O", smaller("tm_gcn", 2.0, ANY)
    yield "s62-cdgcn-gd", "-", about(rows(), counted, data={"twin": True})
    yield "s62-cdgcn-gd", "v(OS)", smaller("cd_gcn", 3.0)
    yield "s62-gd-order-smoothing", "O", smaller("tm_gcn", 0.1)
    pair = {"setting": "GD", "baseline": "Base"}
    timed = of_all_models(timed)
    on_gpu = about(timed, timed, device="cuda", data={"twin": False})

    def faster(base: Rows, phase: dict[str, str], spread: float = 0.0, **by: float) -> Rows:
        return put(
            base, of(base, "fig4", part="timed"), "speedup",
            lambda row, _: by[row.params["model"]] * (1 + spread * (row.round - 3)), **phase, **pair
        )  # fmt: skip

    for gains, spread, word in (
        ((1.0, 3.0, 3.0), 0.0, "S"), ((1.0, 0.5, 3.0), 0.0, "O"), ((1.0, 1.1, 3.0), 0.1, "u")
    ):  # fmt: skip
        by = dict(zip(("cd_gcn", "tm_gcn", "evolvegcn_o"), gains, strict=True))
        yield "s62-gd-order-smoothing", word, faster(on_gpu, {"phase": "transfer"}, spread, **by)
    for phase, name in (({"phase": "transfer"}, "abs-gd-transfer"), ({}, "abs-gd-overall")):
        high = 4.1 if phase else 1.67
        for tm, evolve, spread, word in (
            (high, 1.0, 0, "S"), (0.5, 0.4, 0, "O"), (1.02, 0.4, 0.1, "u"), (1.05, 1.0, 0, "s")
        ):  # fmt: skip
            by = {"tm_gcn": tm, "evolvegcn_o": evolve, "cd_gcn": 9.0}
            yield name, word, faster(on_gpu, phase, spread, **by)
    yield "abs-gd-transfer", "-", of(on_gpu, model="cd_gcn")
    for gain, word in ((1.5, "S"), (3.0, "O")):
        raw = faster(on_gpu, {"phase": "transfer"}, cd_gcn=gain, tm_gcn=9.0, evolvegcn_o=9.0)
        yield "s62-cdgcn-gd", word, raw
    by = {"tm_gcn": 1.67, "evolvegcn_o": 1.0, "cd_gcn": 9.0}
    yield "abs-gd-overall", "S", faster(about(timed, timed, data={"twin": False}), {}, **by)
    short = of(on_gpu, model="cd_gcn")
    for value, word in ((9.0, "S"), (1e-6, "O")):
        long = put(on_gpu, on_gpu, "phase_time", 0.01, setting="Base", phase="transfer")
        changed = put(long, short, "phase_time", min(value, 0.01), setting="Base", phase="transfer")
        yield "s32-transfer-important", word, changed
    turns = put(on_gpu, on_gpu, "turns", 10)
    yield "s61-settings", "=T", turns
    yield "s61-settings", "=F", put(turns, short[:1], "turns", 2)
    yield "s61-settings", "=F", put(turns, short[:1], "columns", 7, of="hidden")


def scaling() -> Iterator[Case]:
    name, shares = "fig5-compute-scales", rows("fig5", part="shares")
    wide = but(shares, "speedup", (13.0, 2.0, 20.0), ranks=16)
    yield name, "O", put(wide, shares[:1], "speedup", (6.0, 5.9, 6.1), ranks=16)
    sizes = rows("fig7", part="sizes")
    yield "s63-weak-sizes", "=F", but(sizes, "edges", 2**30, of="last")
    yield "s63-weak-sizes", "=F", but(sizes, "edges", 2**23, of="first")
    million = but(sizes, "vertices", 2**20, of="last")
    yield "s63-weak-n", "=T", million
    yield "s63-weak-n", "=F", put(million, sizes, "vertices", 2**13, of="first")
    counted = rows("fig5", part="counted")
    for inside in ("between", "inside"):
        changed = but(counted, "floats", lambda _, o: o.value + 7, of=inside, ranks=16)
        yield "s63-inter-node-share", "=F", changed
    yield "s65-idle-when-t-small", "=F", but(counted, "processes", 9, of="idle", ranks=64)
    long = but(counted, "snapshots", 200)  # more than there are ranks
    yield "s65-idle-when-t-small", "=F", put(long, counted, "processes", 0, of="idle", ranks=128)
    # A thread that copies as fast as ten GPUs makes theirs slow.
    slow = but(shares, "bandwidth", 1e14, of="copy")
    for name in ("fig5-comm-bottleneck", "s63-recovers-with-nodes"):
        yield name, "v(OS)", slow
    slow = but(rows("fig7", part="shares"), "bandwidth", 1e14, of="copy")
    yield "s63-weak-drop", "v(OS)", slow


TABLE: tuple[Callable[[], Iterator[Case]], ...] = (
    volumes, parts, times, curves, blocks, differences, scaling
)  # fmt: skip
GLYPHS = glyphs_of(PAPER)


@pytest.mark.parametrize("cases", TABLE, ids=lambda cases: cases.__name__)
def test_verdicts_of_changed_rows(cases):
    wrong = []
    for place, (name, word, changed) in enumerate(cases()):
        if (glyph := GLYPHS(name, changed)) != word:
            wrong.append(f"{place}: {name} is {glyph}, expected {word}")
    assert not wrong, "\n".join(wrong)
