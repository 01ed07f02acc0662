"""GNNFlow's Figure 12 and the parts of its sampler: small runs, and what is claimed of them."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from dgbench.kernels_cuda.temporal_sample import count_walk
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import RunContext
from dgbench.systems.gnnflow import PAPER
from dgbench.systems.gnnflow.checks import sampling
from dgbench.systems.gnnflow.experiments import fig12, sampling_ablation
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, PRESETS

IDS = tuple(sampling.CHECKS)


@pytest.fixture(scope="module")
def claims():
    from dgbench.harness.claims.ledger import load_ledger

    return {claim.id: claim for claim in load_ledger(PAPER.ledger)}


def row_of(experiment: str, dataset: str, measured, **params) -> SimpleNamespace:
    return SimpleNamespace(
        id=f"{experiment}-{dataset}", paper="gnnflow", experiment=experiment, group=dataset,
        params={"dataset": dataset, **params}, status="ok", reason="", instrumented=False, round=1,
        device="cpu", preset="smoke", values=measured.values, counters=measured.counters,
        data=measured.data, deviation=measured.deviation, phases={}, time=None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def graph_row():
    found = fig12.measure(BY_NAME["gdelt"], 1 / 4096, RunContext("cpu", "smoke", threads=1))
    return row_of("fig12", "gdelt", found, scale=1 / 4096)


@pytest.fixture(scope="module")
def lookup_row():
    found = sampling_ablation.lookups(RunContext("cpu", "smoke", threads=1))
    return row_of("sampling_ablation", sampling_ablation.LOOKUP, found)


def with_ratios(row, **ratios):
    """The row with these throughputs over static, by layout, for all ways to sample."""
    speed = {"Static": 1.0, **{name.replace("_", " "): value for name, value in ratios.items()}}
    values = dict(row.values)
    for walk in fig12.WALKS:
        for policy in fig12.POLICIES:
            pairs = {f"{one} over {two}": speed[one] / speed[two] for one, two in fig12.PAIRS}
            for name, value in {**{n: speed[n] for n in fig12.LAYOUTS[:-1]}, **pairs}.items():
                key = f"{name} {walk} {policy}"
                values |= {f"gain {key}": value, f"low {key}": value * 0.95}
                values[f"high {key}"] = value * 1.05
    return SimpleNamespace(**{**vars(row), "values": values})


PAPERS_ORDER = {"Adj._List": 0.01, "Fixed-size": 0.1, "Strawman": 0.2, "Adaptive": 0.6}


def ask(claims, name, rows):
    claim = claims[f"gnnflow-{name}"]
    return sampling.CHECKS[claim.id](claim, rows)


def test_every_claim_without_rows_says_what_it_needs(claims):
    for name in IDS:
        found = sampling.CHECKS[name](claims[name], [])
        assert found.measured is None
        assert "needs the experiment" in found.reason


def test_the_papers_order_holds_where_the_rows_have_it(claims, graph_row):
    ratios = {name.replace("Adj._", "Adj. "): value for name, value in PAPERS_ORDER.items()}
    rows = [with_ratios(graph_row, **ratios)]
    for name in IDS[1:]:
        found = sampling.CHECKS[name](claims[name], rows)
        assert found.holds, name
        assert not found.undecided
        assert found.evidence == "analogue"
        assert found.twin


def test_another_order_does_not(claims, graph_row):
    other = {"Adj. List": 0.5, "Fixed-size": 0.9, "Strawman": 0.2, "Adaptive": 0.1}
    rows = [with_ratios(graph_row, **other)]
    for name in IDS[1:]:
        found = sampling.CHECKS[name](claims[name], rows)
        assert found.holds is False, name
    assert (
        "the other way: GDELT: Strawman over Fixed-size"
        in ask(claims, "fig12-fixed-below-strawman", rows).reason
    )


def test_what_lies_in_the_noise_is_undecided(claims, graph_row):
    close = {"Adj. List": 0.01, "Fixed-size": 0.1, "Strawman": 0.59, "Adaptive": 0.6}
    found = ask(claims, "fig12-adaptive-best-dynamic", [with_ratios(graph_row, **close)])
    assert found.undecided
    assert "GDELT: Adaptive over Strawman" in found.reason


def test_rounds_say_together_how_sure_they_are(claims, graph_row):
    ratios = {name.replace("Adj._", "Adj. "): value for name, value in PAPERS_ORDER.items()}
    rows = [with_ratios(graph_row, **ratios)]
    # Sharp intervals inside each process, and processes that do not agree which one is faster.
    for turned in (0.3, 0.9):
        rows.append(with_ratios(graph_row, **ratios | {"Adaptive": 0.2, "Strawman": turned}))
    (mine,) = fig12.found_rows(rows)
    assert len(mine) == 3
    pair = fig12.ahead(mine, "Adaptive", "Strawman")
    values = [row.values["gain Adaptive over Strawman list uniform"] for row in rows]
    assert pair.value == pytest.approx(math.prod(values) ** (1 / 3))
    assert pair.low < min(values)
    assert pair.high > max(values)
    found = ask(claims, "fig12-adaptive-best-dynamic", rows)
    assert found.undecided
    assert fig12.points(rows)[0]["row_ids"] == [row.id for row in rows]


@pytest.mark.parametrize(
    "other",
    [
        {"params": {"dataset": "gdelt", "scale": 0.1}},
        {"preset": "quick"},
        {"device": "cuda"},
        {"paper": "dgc"},
    ],
)
def test_another_cell_is_no_round(graph_row, other):
    row = SimpleNamespace(**{**vars(graph_row), **other})
    assert fig12.found_rows([row, graph_row]) == [[graph_row]]


def test_real_graphs_that_the_paper_lacks_decide_nothing(claims, graph_row):
    other = SimpleNamespace(**{**vars(graph_row), "params": {"dataset": "sx-mathoverflow"}})
    assert ask(claims, "fig12-adjlist-zero", [other]).measured is None


def test_a_window_is_found_in_logarithmic_time(claims, lookup_row):
    found = ask(claims, "s41-search-log-time", [lookup_row])
    assert found.holds
    assert found.evidence == "counted"
    longest = 1 << sampling_ablation.LENGTHS["smoke"]
    assert lookup_row.counters[f"compared {longest}"] <= 2 * 13
    assert lookup_row.counters[f"walked {longest}"] > longest // 8
    linear = dict(lookup_row.counters, **{f"compared {longest}": longest})
    worse = SimpleNamespace(**{**vars(lookup_row), "counters": linear})
    assert ask(claims, "s41-search-log-time", [worse]).holds is False


def test_a_walk_counts_blocks_and_comparisons():
    store = TemporalStore(2, policy=BlockPolicy("fixed", 4))
    ids, times = torch.zeros(16, dtype=torch.int64), torch.arange(16).double()
    store.insert(ids, ids, times)
    begins, ends = (
        torch.tensor([12.0, 0.0, -5.0]).double(),
        torch.tensor([16.0, 16.0, 0.0]).double(),
    )
    blocks, compared = count_walk(store, ids[:3], begins, ends)
    # Blocks that begin at 12, 8, 4, 0. The first walk sees that the next block ends before 12, the
    # second has all, the third passes all as they are newer.
    assert blocks.tolist() == [2, 4, 4]
    assert compared[2] == 0
    assert 0 < compared[0] < compared[1]
    with pytest.raises(InvalidInputError, match="layout 'wide'"):
        count_walk(TemporalStore(1, layout="wide"), ids[:1], begins[:1], ends[:1])
    with pytest.raises(InvalidInputError, match="nodes must satisfy"):
        count_walk(store, ids[:1] + 2, begins[:1], ends[:1])


def test_roots_fit_the_visits(graph_row):
    assert graph_row.counters["blocks Adj. List"] <= fig12.VISITS["smoke"]
    assert graph_row.counters["longest Static"] == 1
    assert graph_row.counters["roots"] % 3 == 0
    assert graph_row.data["twin"]


def test_variants_return_one_sample():
    found = sampling_ablation.variants("college-msg", RunContext("cpu", "smoke", threads=1))
    assert all(
        f"gain {name} recent" in found.values for name in list(sampling_ablation.VARIANTS)[1:]
    )
    row = row_of("sampling_ablation", "college-msg", found)
    assert len(sampling_ablation.variant_points([row])) == 10
    assert "one root at a time" in sampling_ablation.SamplingAblation().answer([row])


@pytest.mark.parametrize("preset", PRESETS)
def test_cells_points_and_answers(preset, graph_row, lookup_row):
    for experiment in (fig12.Fig12(), sampling_ablation.SamplingAblation()):
        cells = experiment.cells(preset, "cpu")
        assert len({cell.group for cell in cells}) == len(cells)
        assert set(experiment.claims) <= set(IDS)
        assert experiment.answer([]) == ""
    points = fig12.points([graph_row])
    assert {p["x"] for p in points} == set(fig12.LAYOUTS[:-1])
    assert "Adaptive" in fig12.Fig12().answer([graph_row])
    assert sampling_ablation.lookup_points([lookup_row])
    broken = SimpleNamespace(**{**vars(graph_row), "status": "crash", "reason": "broke"})
    assert fig12.points([broken])[-1]["failed"] == "crash: broke"
