"""GNNFlow's Figure 12 and the parts of its sampler: small runs, and what is claimed of them."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from gnnflow_rows import changed, judged, number
from gnnflow_rows import row as made_row
from msgspec.structs import replace
from paper_rows import answered_by

from dgbench.harness.store.row import Row
from dgbench.kernels_cuda.temporal_sample import count_walk
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.lab.table import observation
from dgbench.runtime.errors import InvalidInputError, UnsupportedError
from dgbench.systems.base import RunContext
from dgbench.systems.gnnflow import PAPER
from dgbench.systems.gnnflow import claims as table
from dgbench.systems.gnnflow.checks import sampling
from dgbench.systems.gnnflow.contenders import ContenderEvents
from dgbench.systems.gnnflow.experiments import fig12, sampling_ablation
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, PRESETS

IDS = tuple(answered_by(table.CHECKS, sampling))
FIGURE = tuple(name for name in IDS if "fig12" in name)


@pytest.fixture(scope="module")
def claims():
    from dgbench.harness.claims.ledger import load_ledger

    return {claim.id: claim for claim in load_ledger(PAPER.ledger)}


def row_of(experiment: str, dataset: str, measured, **params) -> Row:
    return made_row(experiment, {"dataset": dataset, **params}, measured, preset="smoke")


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
    told = [one for one in row.observations if one.metric != "speedup"]
    for walk, policy in product(fig12.WALKS, fig12.POLICIES):
        for fast, slow in (*((name, fig12.STATIC) for name in fig12.LAYOUTS[:-1]), *fig12.PAIRS):
            value = speed[fast] / speed[slow]
            told.append(
                observation(
                    "speedup", value, low=value * 0.95, high=value * 1.05,
                    setting=fast, baseline=slow, method=walk, policy=policy,
                )
            )  # fmt: skip
    return replace(row, observed=told)


PAPERS_ORDER = {"Adj._List": 0.01, "Fixed-size": 0.1, "Strawman": 0.2, "Adaptive": 0.6}


def ask(claims, name, rows):
    claim = claims[f"gnnflow-{name}"]
    return table.CHECKS[claim.id](claim, rows)


def test_every_claim_without_rows_says_what_it_needs(wording, claims):
    for name in IDS:
        found = table.CHECKS[name](claims[name], [])
        assert found.measured is None
        wording(found.reason)


def test_the_papers_order_holds_where_the_rows_have_it(graph_row):
    ratios = {name.replace("Adj._", "Adj. "): value for name, value in PAPERS_ORDER.items()}
    rows = [with_ratios(graph_row, **ratios)]
    for name in FIGURE:
        found, verdict = judged(name, rows)
        assert set(found.readings) == set(sampling.RULES)
        assert (verdict.agreement, verdict.strength) == ("value", "weak")
        assert (verdict.source, verdict.data) == ("timed", "twin")


def test_another_order_does_not(graph_row):
    other = {"Adj. List": 0.5, "Fixed-size": 0.9, "Strawman": 0.2, "Adaptive": 0.1}
    rows = [with_ratios(graph_row, **other)]
    for name in FIGURE:
        assert judged(name, rows)[1].agreement == "opposite", name


def test_a_rule_of_sampling_that_is_not_printed_is_a_reading(graph_row):
    ratios = {name.replace("Adj._", "Adj. "): value for name, value in PAPERS_ORDER.items()}
    row = with_ratios(graph_row, **ratios)
    told = [
        replace(one, value=0.7, low=0.6, high=0.8)
        if one.metric == "speedup" and one.dims["policy"] == "recent"
        else one
        for one in row.observations
    ]
    found, verdict = judged("fig12-adjlist-zero", [replace(row, observed=told)])
    assert [one.holds for one in found.readings.values()] == [True, False]
    assert verdict.glyph == "v"


def test_what_lies_in_the_noise_is_undecided(wording, graph_row):
    close = {"Adj. List": 0.01, "Fixed-size": 0.1, "Strawman": 0.59, "Adaptive": 0.6}
    verdict = judged("fig12-adaptive-best-dynamic", [with_ratios(graph_row, **close)])[1]
    assert verdict.agreement == "undecided"
    wording(verdict.reason)


def test_rounds_say_together_how_sure_they_are(graph_row):
    ratios = {name.replace("Adj._", "Adj. "): value for name, value in PAPERS_ORDER.items()}
    rows = [with_ratios(graph_row, **ratios)]
    # Sharp intervals inside each process, and processes that do not agree which one is faster.
    for number_of, turned in ((2, 0.3), (3, 0.9)):
        more = replace(graph_row, id=f"round {number_of}", round=number_of)
        rows.append(with_ratios(more, **ratios | {"Adaptive": 0.2, "Strawman": turned}))
    (mine,) = fig12.found_rows(rows)
    assert len(mine) == 3
    pair = fig12.ahead(mine, "Adaptive", "Strawman")
    values = [
        number(row, "speedup", setting="Adaptive", baseline="Strawman", method="list",
               policy="uniform")
        for row in rows
    ]  # fmt: skip
    assert pair.value == pytest.approx(math.prod(values) ** (1 / 3))
    assert pair.low < min(values)
    assert pair.high > max(values)
    assert judged("fig12-adaptive-best-dynamic", rows)[1].agreement == "undecided"
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
    row = replace(graph_row, **other)
    assert fig12.found_rows([row, graph_row]) == [[graph_row]]


def test_real_graphs_that_the_paper_lacks_decide_nothing(claims, graph_row):
    other = replace(graph_row, params={"dataset": "sx-mathoverflow"})
    assert ask(claims, "fig12-adjlist-zero", [other]).measured is None


def test_a_window_is_found_in_logarithmic_time(claims, lookup_row):
    found = ask(claims, "s41-search-log-time", [lookup_row])
    assert found.holds
    assert judged("s41-search-log-time", [lookup_row])[1].strength == "strong"
    longest = 1 << sampling_ablation.LENGTHS["smoke"]
    assert number(lookup_row, "comparisons", size=longest) <= 2 * 13
    assert number(lookup_row, "list_blocks", size=longest) > longest // 8
    worse = changed(lookup_row, "comparisons", longest, size=longest)
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
    visited = number(graph_row, "list_blocks", setting="Adj. List", statistic=None)
    assert visited <= fig12.VISITS["smoke"]
    assert number(graph_row, "list_blocks", setting="Static", statistic="longest") == 1
    assert number(graph_row, "targets") % 3 == 0
    assert graph_row.data["twin"]


@pytest.mark.parametrize("late", [1000.5, 2.0**33])
def test_times_that_a_layout_cannot_hold_are_not_supported(late, monkeypatch):
    ends = torch.arange(64)
    times = torch.cat([torch.arange(63, dtype=torch.float64), torch.tensor([late])])
    events = ContenderEvents(8, ends % 8, (ends + 1) % 8, times.double())
    monkeypatch.setattr(sampling_ablation, "open_stream", lambda *_: (events, {}))
    with pytest.raises(UnsupportedError):
        sampling_ablation.variants("mine", RunContext("cpu", "smoke", threads=1))


def test_variants_return_one_sample():
    found = sampling_ablation.variants("college-msg", RunContext("cpu", "smoke", threads=1))
    for name in list(sampling_ablation.VARIANTS)[1:]:
        assert number(found, "speedup", baseline=name, policy="recent") is not None
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
    broken = replace(graph_row, status="crash", reason="broke")
    assert fig12.points([broken])[-1]["failed"] == "crash: broke"
