"""T-GCN's claims on made rows: a row for each condition of a rule that no kept row decides.

What kept rows, parts of them and rows of unkept presets decide stands in `tests/golden/tgcn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kept_rows import Rows, glyphs_of, kept, of, put
from tgcn_rows import five, made, observation

from dgbench.systems.tgcn import PAPER, accuracy_runs
from dgbench.systems.tgcn.experiments import fig9, table2, table3
from dgbench.systems.tgcn.races import DYGNN, JODIE, JODIE_RELAXED, RELAXED, TGCN
from dgbench.systems.tgcn.settings import SMALL_NAMES

Case = tuple[str, str, Rows]
TOLD = glyphs_of(PAPER)


def races() -> Iterator[Case]:
    """Figure 6: gains of T-GCN over others, and of its form on whole parts."""

    def raced(name: str, over: dict[str, float]) -> Rows:
        found = [observation("speedup", gain, baseline=other) for other, gain in over.items()]
        found += [
            observation("throughput", rate, setting=system)
            for system, rate in ((TGCN, 8e5), (DYGNN, 2e3), (JODIE, 4e3))
        ]
        data = {"dataset": name, "twin": True}
        return five("fig6", {"dataset": name, "what": "race"}, found, data=data)

    def race(same: float) -> Rows:
        over = {DYGNN: 300.0, JODIE: 300.0, RELAXED: same, JODIE_RELAXED: same}
        return [row for name in SMALL_NAMES for row in raced(name, over)]

    names = ("fig6-vs-dygnn", "fig6-vs-jodie", "fig6-beats-both-everywhere", "abs-e2e-max-speedup")
    for words, rows in (
        ("OOOO", race(0.8)),  # a lead over a strict baseline is none of the paper's
        ("SSSs", race(3.5)),
        ("----", race(0.5)[:10]),  # a graph is missing
    ):
        for name, word in zip(names, words, strict=True):
            yield name, word, rows
    lone = [row for name in SMALL_NAMES for row in raced(name, {RELAXED: 3.5})]
    yield "fig6-beats-both-everywhere", "-", lone
    # Rates of another class of device are neither for nor against.
    yield "s62-throughput-dygnn", "-(---)", race(4.0)
    yield "s62-throughput-tgcn", "-", race(4.0)
    found = [observation("edge_time", 2e-6, setting=TGCN), observation("edges", 1_000)]
    gpu = {"device": "cuda", "data": {"dataset": "twitter", "twin": True}}
    slow = made("fig6", {"dataset": "twitter", "what": "rate"}, found, **gpu)
    yield "fig6-twitter-time", "O", [slow]
    yield "fig6-twitter-time", "S", put([slow], [slow], "edge_time", 6.3e-6, setting=TGCN)


def trainings() -> Iterator[Case]:
    """Table 2, the ablation and Table 3."""

    for ours, theirs, word in ((75.0, 95.0, "O"), (84.0, 87.0, "S"), (84.0, 99.0, "O")):
        found = []
        for setting, share in ((TGCN, ours), (DYGNN, theirs)):
            found.append(observation("epoch_time", 100.0, setting=setting))
            parts = {"io": 100 - share, "compute": share, "wait": 100 - share}
            found += [
                observation("part_time", seconds, setting=setting, phase=phase)
                for phase, seconds in parts.items()
            ]
        data = {"dataset": "lastfm", "twin": True}
        yield "tab2-compute-share", word, five("table2", {"dataset": "lastfm"}, found, data=data)
    for both, word in ((3.0, "S"), (0.1, "O")):
        rows = [
            made("table2", {"dataset": "lastfm", "n": beside}, [
                observation("part_time", s, of=table2.TIMELINE, phase=phase)
                for phase, s in (("copy", 4.0), ("train", 4.0), ("both", beside))
            ], device="cuda")
            for beside in (both, 4.0)
        ]  # fmt: skip
        yield "s43-pingpong-no-conflict", word, rows

    def held(ours: float, streamed: float, dygnn: float, jodie: float, **fields: Any) -> Rows:
        scale = fields.pop("scale", 1 / 16)
        each = ((TGCN, ours), (table3.STREAMED, streamed), (DYGNN, dygnn), (JODIE, jodie))
        return [
            made("table3", {"dataset": name, "system": system},
                 [observation("memory", round(1e6 * mb), method=m) for m in ("held", "driver")],
                 data={"dataset": name, "twin": True, "scale": scale}, **fields)
            for name in SMALL_NAMES for system, mb in each
        ]  # fmt: skip

    for case, word in (((100, 50, 80, 80), "v(OS)"), ((50, 50, 129, 129), "S(SS)"),
                       ((50, 50, 129, 40), "O(OO)")):  # fmt: skip
        yield "tab3-ordering", word, held(*case)
    yield "s66-max-space-saving", "v(Os)", held(100, 50, 80, 80)
    yield "s66-max-space-saving", "S(SS)", held(50, 50, 129, 129)
    gpu = {"device": "cuda", "scale": 1.0}
    yield "tab3-tgcn-memory", "-", held(822, 1, 1, 1, device="cuda")  # of a part of the size
    yield "tab3-tgcn-memory", "O(OO)", held(822, 1, 1, 1, **gpu)
    right = held(822, 1, 1, 1, **gpu)
    for name, mb in zip(SMALL_NAMES, (822, 826, 6580), strict=True):
        some = of(right, dataset=name, system=TGCN)
        right = put(right, some, "memory", int(mb * 1e6), method=lambda m: True)
    yield "tab3-tgcn-memory", "S(SS)", right
    some = of(right, dataset="flickr", system=TGCN)
    yield "tab3-tgcn-memory", "v(OS)", put(right, some, "memory", int(4e9), method="held")


def accuracies() -> Iterator[Case]:
    """Figure 9 on Twitter: above the largest class, where DyGNN's state does not fit."""
    for chance, state, word in ((0.3, 75, "S"), (0.6, 75, "O"), (0.3, 20, "O"), (0.5103, 75, "u"),
                                (0.5103, 20, "O")):  # fmt: skip
        rows = []
        for seed in range(3):
            found = [
                observation(fig9.SCORES["classify"], value, task="classify", piece=piece,
                            setting=accuracy_runs.OURS)
                for piece, value in enumerate([0.1, 0.5 + seed / 1e3, 0.52, 0.51])
            ]  # fmt: skip
            found += [
                observation("accuracy", chance, task="classify", setting=accuracy_runs.MAJORITY),
                observation("memory", state << 30, setting=accuracy_runs.DYGNN, of="state"),
                observation("memory", 32 << 30, of="device"),
                observation("parts", 11, of="pieces"),
                observation("edges", 11, task="classify"),
            ]
            about = {"dataset": accuracy_runs.LARGE, "twin": False}
            params = {"dataset": accuracy_runs.LARGE, "seed": seed}
            rows.append(made("fig9", params, found, data=about))
        yield "fig9-twitter", word, rows


def counts() -> Iterator[Case]:
    """What is counted of draws, links, graphs and memory, on kept rows with other numbers."""
    rows = of(kept("intel-xeon-2-cores", "tgcn"))
    equal, ring = of(rows, "fig8"), of(rows, "schedule", machine="dgx1-v100")

    def but(some: Rows, metric: str, value: Any, **dims: Any) -> Rows:
        return put(rows, some, metric, value, **dims)

    def work(of: str, by: float, size: Any = lambda n: True, method: str = "sis", **dims) -> Rows:
        where = {"of": of, "size": size} | ({"method": method, **dims} if dims else {})
        return but(equal, "draw_work", lambda _, one: one.value + by, **where)

    every, ready = lambda name: True, {"setting": "ready"}
    for size in (every, 1000):  # one size is enough
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
    yield (
        "s42-schedule-uses-dual-links",
        "S(SS)",
        but(ring, "links", 8, of="doubled", setting="algorithm 6"),
    )
    yield "s1-nvlink-faster-than-pcie", "O", but(ring, "bandwidth", 1e12, link="pcie")
    volume = of(rows, "schedule", kind="volume")[:1]
    yield (
        "s41-hbm-embeddings-cut-traffic",
        "X",
        but(volume, "swapped", 1, link="pcie", method="host"),
    )
    for gpu, word in ((40e9, "S"), (10e9, "O")):
        found = [
            observation("bandwidth", rate, link=link, size=1 << 28)
            for link, rate in (("gpu to gpu", gpu), ("host to gpu", 12e9))
        ]
        copies = made("schedule", {"kind": "copies"}, [*found, observation("links", 0, of="peers")])
        yield "s1-nvlink-faster-than-pcie", word, [copies]
    degrees = but(of(rows, "partition", kind="degrees"), "imbalance", 1.4, method="equal",
                  of="grid", setting="rank", skew=every)  # fmt: skip
    yield "s41-partition-degree-independent", "v(RXu)", degrees
    sort = of(rows, "partition", kind="sort")
    for by, word in ((1.0, "v(XXR)"), (1 / 3, "X(XXX)")):
        found = but(sort, "throughput", lambda _, one, by=by: 1e8 * by ** (one.dims["skew"] > 0),
                    skew=every)  # fmt: skip
        yield "s41-partition-degree-independent", word, found
    depth = of(rows, "depth")[:1]
    yield "s2-nodewise-exponential", "X", but(depth, "degree", 1.0, method="node", layer=3)
    yield "s2-layerwise-linear", "=F", but(depth, "degree", 999.0, method="layer", layer=2)
    # Graphs and the machine.
    machine, real = of(rows, "table1", part="machine"), of(rows, "table1", dataset="enron")
    yield "tab1-edges", "O", but(machine, "edges", 7, dataset="lastfm", method="stated")
    for edges, word in ((1_470_000_000, "O(OO)"), (1_460_000_000, "S(SS)")):
        found = but(machine, "edges", edges, dataset="twitter", method="stated")
        yield "s1-twitter-edge-count", word, found
    name = "s61-power-law"
    plain = but(of(rows, "table1"), "likelihood_z", 5.0, of=every, setting="whole")
    yield name, "S", plain
    yield name, "u", put(plain, real, "likelihood_z", 0.5, of=every, setting="whole")
    yield name, "O", put(plain, real, "likelihood_z", -5.0, of=every, setting="whole")
    name = "s61-sampling-keeps-degree-dist"
    same = put(plain, of(plain, "table1"), "distribution_gap", 0.01, method="halved", of=every)
    for setting in ("whole", "half"):
        same = put(same, of(same, "table1"), "tail_exponent", 2.0, of=every, setting=setting)
    yield name, "S(SS)", same
    yield name, "v(OS)", put(same, real, "distribution_gap", 0.3, method="halved", of=every)
    yield name, "v(SO)", put(same, real, "tail_exponent", 3.0, of=every, setting="half")
    # Planned memory.
    twitter, limit = of(rows, "large", kind="plan", dataset="twitter"), 32 << 30
    yield (
        "s613-partition-not-separable",
        "O",
        but(twitter, "memory", 1, of="device", setting="tgcn"),
    )
    for base in (DYGNN, JODIE):  # either baseline that fits
        yield "fig6-twitter-oom", "O", but(twitter, "memory", 1, of="device", setting=base)
    padded, name = of(rows, "fig6", what="padding"), "s62-padding-blocks-baselines"
    yield name, "S", but(padded[:1], "memory", 2 * limit, setting=DYGNN, method="planned")
    plan = of(rows, "large", kind="plan", dataset=padded[0].params["dataset"])
    full = but(padded[:1], "memory", 2 * limit, setting=DYGNN, method="planned")
    # It did not fit before.
    yield name, "O", put(full, plan, "memory", 2 * limit, of="device", setting=DYGNN)
    yield name, "-", [row for row in rows if row not in padded[:1]]


TABLE: tuple[Callable[[], Iterator[Case]], ...] = (
    races, trainings, accuracies, counts
)  # fmt: skip


@pytest.mark.parametrize("cases", TABLE, ids=lambda cases: cases.__name__)
def test_verdicts_of_made_rows(cases):
    wrong = []
    for number, (name, word, rows) in enumerate(cases()):
        if (found := TOLD(name, rows, 0.02)) != word:
            wrong.append(f"{number}: {name} is {found}, expected {word}")
    assert not wrong, "\n".join(wrong)
