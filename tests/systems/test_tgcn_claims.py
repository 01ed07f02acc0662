"""T-GCN's claims on kept rows with other numbers: a case for each condition of a rule.

What kept rows, parts of them and rows of unkept presets decide stands in `tests/golden/tgcn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kept_rows import ANY, Rows, glyphs_of, kept, lacking, of, put, without
from paper_rows import row_of

from dgbench.harness.store.row import Row
from dgbench.lab.table import Observation, observation
from dgbench.systems.base import Cell
from dgbench.systems.tgcn import PAPER, accuracy_runs
from dgbench.systems.tgcn.experiments import fig9, table2, table3
from dgbench.systems.tgcn.races import DYGNN, JODIE, JODIE_RELAXED, RELAXED, TGCN
from dgbench.systems.tgcn.settings import SMALL_NAMES

Case = tuple[str, str, Rows]
GLYPHS = glyphs_of(PAPER)


def rows(experiment: str = "", **params: Any) -> Rows:
    return of(kept("intel-xeon-2-cores", "tgcn"), experiment, **params)


def but(some: Rows, metric: str, value: Any, **dims: Any) -> Rows:
    """All kept rows, of which some have another number."""
    return put(rows(), some, metric, value, **dims)


def row_with(experiment: str, params: dict[str, Any], *changed: Observation, **fields: Any) -> Row:
    """A row that no run has kept."""
    cell = Cell(paper="tgcn", experiment=experiment, params=params, group="x")
    name = f"{experiment}-{'-'.join(map(str, params.values()))}"
    return row_of(cell, id=name, observed=list(changed), **fields)


def races() -> Iterator[Case]:
    """Figure 6: gains of T-GCN over others in the same order."""
    raced, relaxed = rows("fig6", what="race"), lambda base: base in (RELAXED, JODIE_RELAXED)
    names = ("fig6-vs-dygnn", "fig6-vs-jodie", "fig6-beats-both-everywhere", "abs-e2e-max-speedup")
    slow, fast = (but(raced, "speedup", by, baseline=relaxed) for by in (0.8, 3.5))
    lone = lacking(fast, of(fast, "fig6"), lambda o: o.dims.get("baseline") == JODIE_RELAXED)
    for words, changed in (
        ("OOOO", slow),
        ("SSSs", fast),
        ("----", without(fast, of(raced, dataset="flickr"))),
        ("S--s", lone),
    ):
        for name, word in zip(names, words, strict=True):
            yield name, word, changed
    gpu = {"device": "cuda", "data": {"dataset": "twitter", "twin": True}}
    changed = observation("edge_time", 6.3e-6, setting=TGCN), observation("edges", 1_000)
    rate = row_with("fig6", {"dataset": "twitter", "what": "rate"}, *changed, **gpu)
    yield "fig6-twitter-time", "S", [rate]


def trainings() -> Iterator[Case]:
    """Table 2, the ablation and Table 3."""

    timed, changed = rows("table2"), rows()
    for setting, share in ((TGCN, 84.0), (DYGNN, 87.0)):
        parts = {"compute": share, "wait": 100 - share, "io": 100 - share}
        for phase, seconds in parts.items():
            changed = put(changed, timed, "part_time", seconds, setting=setting, phase=phase)
        changed = put(changed, timed, "epoch_time", 100.0, setting=setting)
    yield "tab2-compute-share", "S", changed
    yield "s43-pingpong-no-conflict", "O", [
        row_with("table2", {"dataset": "lastfm", "n": beside}, *(
            observation("part_time", s, of=table2.TIMELINE, phase=phase)
            for phase, s in (("copy", 4.0), ("train", 4.0), ("both", beside))
        ), device="cuda")
        for beside in (0.1, 4.0)
    ]  # fmt: skip

    def in_memory(ours: float, streamed: float, dygnn: float, jodie: float, **fields: Any) -> Rows:
        scale = fields.pop("scale", 1 / 16)
        each = ((TGCN, ours), (table3.STREAMED, streamed), (DYGNN, dygnn), (JODIE, jodie))
        return [
            row_with("table3", {"dataset": name, "system": system},
                 *(observation("memory", round(1e6 * mb), method=m) for m in ("held", "driver")),
                 data={"dataset": name, "twin": True, "scale": scale}, **fields)
            for name in SMALL_NAMES for system, mb in each
        ]  # fmt: skip

    yield "tab3-ordering", "v(OS)", in_memory(100, 50, 80, 80)
    yield "tab3-ordering", "S(SS)", in_memory(50, 50, 129, 129)
    yield "s66-max-space-saving", "S(SS)", in_memory(50, 50, 129, 129)
    gpu = {"device": "cuda", "scale": 1.0}
    yield "tab3-tgcn-memory", "-", in_memory(822, 1, 1, 1, device="cuda")  # of a part of the size
    yield "tab3-tgcn-memory", "O(OO)", in_memory(822, 1, 1, 1, **gpu)
    right = in_memory(822, 1, 1, 1, **gpu)
    for name, mb in zip(SMALL_NAMES, (822, 826, 6580), strict=True):
        some = of(right, dataset=name, system=TGCN)
        right = put(right, some, "memory", int(mb * 1e6), method=ANY)
    yield "tab3-tgcn-memory", "S(SS)", right
    some = of(right, dataset="flickr", system=TGCN)
    yield "tab3-tgcn-memory", "v(OS)", put(right, some, "memory", int(4e9), method="held")


def accuracies() -> Iterator[Case]:
    """Figure 9 on Twitter: above the largest class, where DyGNN's state does not fit."""
    for chance, state, word in ((0.3, 75, "S"), (0.6, 75, "O"), (0.3, 20, "O"), (0.5103, 75, "u"),
                                (0.5103, 20, "O")):  # fmt: skip
        scored = []
        for seed in range(3):
            changed = [
                observation(fig9.SCORES["classify"], value, task="classify", piece=piece,
                            setting=accuracy_runs.OURS)
                for piece, value in enumerate([0.1, 0.5 + seed / 1e3, 0.52, 0.51])
            ]  # fmt: skip
            changed += [
                observation("accuracy", chance, task="classify", setting=accuracy_runs.MAJORITY),
                observation("memory", state << 30, setting=accuracy_runs.DYGNN, of="state"),
                observation("memory", 32 << 30, of="device"),
                observation("parts", 11, of="pieces"),
                observation("edges", 11, task="classify"),
            ]
            about = {"dataset": accuracy_runs.LARGE, "twin": False}
            params = {"dataset": accuracy_runs.LARGE, "seed": seed}
            scored.append(row_with("fig9", params, *changed, data=about))
        yield "fig9-twitter", word, scored


def counts() -> Iterator[Case]:
    """Counts of draws, links, graphs and memory, on kept rows with other numbers."""
    equal, ring = rows("fig8"), rows("schedule", machine="dgx1-v100")

    def work(of: str, by: float, size: Any = ANY, method: str = "sis", **dims) -> Rows:
        where = {"of": of, "size": size} | ({"method": method, **dims} if dims else {})
        return but(equal, "draw_work", lambda _, one: one.value + by, **where)

    ready = {"setting": "ready"}
    for size in (ANY, 1000):  # one size is enough
        yield "s3-sis-query-complexity", "X", work("search", 1000, size)
        yield "s3-sis-modify-complexity", "X", work("modify", 1000, size)
    yield "s3-sis-no-repeats", "X", work("redraws", 1, 1000, **ready)
    yield "s2-brs-complexity", "X", work("read", 10**9, 1000, "brs", setting="replaced")
    yield "s2-its-complexity", "v(XRRXX)", work("read", 10**9, 1000, "its_linear", **ready)
    yield "s3-sis-total-complexity", "X(XXXXX)", work("steps", 10**9, 1000, **ready)
    for name in ("changed", "path"):
        yield "s3-tree-height-example", "=F", but(equal, "draw_work", 5, of=name)
    yield "s42-schedule-rounds", "X", but(ring, "parts", 10, of="phases")
    yield "s42-schedule-no-two-hop", "O", but(ring, "swapped", 1, setting="algorithm 6", hops=2)
    wide = but(ring, "links", 8, of="doubled", setting="algorithm 6")
    yield "s42-schedule-uses-dual-links", "S(SS)", wide
    yield "s1-nvlink-faster-than-pcie", "O", but(ring, "bandwidth", 1e12, link="pcie")
    small = but(rows("schedule", kind="volume")[:1], "swapped", 1, link="pcie", method="host")
    yield "s41-hbm-embeddings-cut-traffic", "X", small
    for gpu, word in ((40e9, "S"), (10e9, "O")):
        changed = [
            observation("bandwidth", rate, link=link, size=1 << 28)
            for link, rate in (("gpu to gpu", gpu), ("host to gpu", 12e9))
        ]
        copies = row_with(
            "schedule", {"kind": "copies"}, *changed, observation("links", 0, of="peers")
        )
        yield "s1-nvlink-faster-than-pcie", word, [copies]
    degrees = but(rows("partition", kind="degrees"), "imbalance", 1.4, method="equal",
                  of="grid", setting="rank", skew=ANY)  # fmt: skip
    yield "s41-partition-degree-independent", "v(RXu)", degrees
    sort = rows("partition", kind="sort")
    for by, word in ((1.0, "v(XXR)"), (1 / 3, "X(XXX)")):
        changed = but(sort, "throughput", lambda _, one, by=by: 1e8 * by ** (one.dims["skew"] > 0),
                    skew=ANY)  # fmt: skip
        yield "s41-partition-degree-independent", word, changed
    linear = but(rows("depth")[:1], "degree", 999.0, method="layer", layer=2)
    yield "s2-layerwise-linear", "=F", linear
    # Graphs and the machine.
    machine, real = rows("table1", part="machine"), rows("table1", dataset="enron")
    yield "tab1-edges", "O", but(machine, "edges", 7, dataset="lastfm", method="stated")
    for edges, word in ((1_470_000_000, "O(OO)"), (1_460_000_000, "S(SS)")):
        changed = but(machine, "edges", edges, dataset="twitter", method="stated")
        yield "s1-twitter-edge-count", word, changed
    for method in ("stated", "counted"):
        machine = lacking(machine, machine, lambda o, m=method: o.dims.get("method") == m)
    # A size that nobody states, or a form that did not run, is neither for nor against.
    for name in ("tab1-vertices", "tab1-avg-degree", "s1-twitter-edge-count"):
        yield name, "-", machine
    unlisted = lacking(rows(), equal, lambda o: o.dims.get("method") == "its_list")
    yield "fig8-its-brs-grow", "v(u-RXRX)", unlisted
    yield "fig8-order", "v(R-RRRu)", unlisted
    yield "s2-its-complexity", "v(R-RXX)", unlisted
    yield "s3-sis-total-complexity", "v(R-RXX)", unlisted
    left = lacking(rows(), rows("fig7"), lambda o: o.dims.get("baseline") in ("its_list", "brs"))
    yield "fig7-nodewise-2layer", "v(uO-s)", left
    yield "fig7-degree-trend", "v(Su-S)", left
    yield "fig7-subgraph", "v(-s-u)", left
    yield "abs-sampling-max-speedup", "s(-s-s)", left
    name = "s61-power-law"
    plain = but(rows("table1"), "likelihood_z", 5.0, of=ANY, setting="whole")
    yield name, "S", plain
    yield name, "O", put(plain, real, "likelihood_z", -5.0, of=ANY, setting="whole")
    name = "s61-sampling-keeps-degree-dist"
    same = put(plain, of(plain, "table1"), "distribution_gap", 0.01, method="halved", of=ANY)
    for setting in ("whole", "half"):
        same = put(same, of(same, "table1"), "tail_exponent", 2.0, of=ANY, setting=setting)
    yield name, "S(SS)", same
    yield name, "v(OS)", put(same, real, "distribution_gap", 0.3, method="halved", of=ANY)
    yield name, "v(SO)", put(same, real, "tail_exponent", 3.0, of=ANY, setting="half")
    # Planned memory.
    twitter, limit = rows("large", kind="plan", dataset="twitter"), 32 << 30
    for base in (TGCN, DYGNN, JODIE):  # either baseline that fits
        name = "s613-partition-not-separable" if base == TGCN else "fig6-twitter-oom"
        yield name, "O", but(twitter, "memory", 1, of="device", setting=base)
    padded, name = rows("fig6", what="padding"), "s62-padding-blocks-baselines"
    full = but(padded[:1], "memory", 2 * limit, setting=DYGNN, method="planned")
    yield name, "S", full
    plan = rows("large", kind="plan", dataset=padded[0].params["dataset"])
    # It did not fit before.
    yield name, "O", put(full, plan, "memory", 2 * limit, of="device", setting=DYGNN)
    yield name, "-", without(rows(), padded[:1])


TABLE: tuple[Callable[[], Iterator[Case]], ...] = (races, trainings, accuracies, counts)


@pytest.mark.parametrize("cases", TABLE, ids=lambda cases: cases.__name__)
def test_verdicts_of_changed_rows(cases):
    wrong = []
    for number, (name, word, changed) in enumerate(cases()):
        if (glyph := GLYPHS(name, changed, 0.02)) != word:
            wrong.append(f"{number}: {name} is {glyph}, expected {word}")
    assert not wrong, "\n".join(wrong)
