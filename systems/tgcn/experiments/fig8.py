"""Figure 8: what one draw costs as the set that is drawn from grows (sections 3 and 6.3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.weighted import (
    DrawStats,
    SegmentTree,
    draw_many,
    draw_without_replacement,
)
from dgbench.lab import line_rules, outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import AGAIN, observe_control, observe_ratio
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import ResultCheck, at_most, equal, of_contender
from dgbench.lab.study import FormExperiment
from dgbench.runtime.statistics import median
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.tgcn.methods import (
    BASE,
    LINEAR,
    REPLACED,
    TITLES,
    arity_of,
    frontier_calls,
    frontier_draws,
    name_of,
    ring_of,
    series_of,
    timed,
    walk,
)
from dgbench.systems.tgcn.methods import METHODS as FRONTIER_METHODS
from dgbench.systems.tgcn.races import PROCESSES
from dgbench.systems.tgcn.recounts import check_draws
from dgbench.systems.tgcn.settings import FORMS, synthetic_data

SIZES: Final = {
    "smoke": (1_000, 10_000),
    "quick": (1_000, 10_000, 100_000, 1_000_000),
    "full": (1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    "paper": (1_000, 10_000, 100_000, 1_000_000, 10_000_000),
}
TURNS: Final = {"smoke": 2, "quick": 2, "full": 3, "paper": 5}
DRAWS: Final = 10_000
"""Draws of a method whose draw does not read the whole set."""
COUNTED: Final = 64
"""Draws whose steps are counted, at least."""
MIN_SECONDS: Final = 1e-9
"""Seconds of a draw that can be told from none."""
MANY: Final = 250_000
CHEAP: Final = ("alias", "reservoir")
"""Draws of those whose tables take a thousand times as long to build as one draw."""
REPEATED: Final = 20_000
"""Draws and elements built from in a call, at least."""
READ: Final = 4_000_000
"""Elements that a method which does may read in a call."""
LONGEST: Final = {"smoke": 1_000, "quick": 10_000, "full": 100_000, "paper": 100_000}
"""Sets of which linear methods draw one half: a hundred times the work for ten times the set."""
HALVED: Final = {"smoke": 10_000, "quick": 100_000, "full": 10_000_000, "paper": 10_000_000}
"""Sets of which the other methods do."""
FRONTIERS: Final = {"smoke": 10_000, "quick": 100_000, "full": 1_000_000, "paper": 1_000_000}
"""Largest frontier by preset."""
EXPONENT: Final = 2.1
LARGEST: Final = 1_000
"""Of the weights that stand for degrees: at most so many, by a power law of this exponent."""
READY: Final = "ready"
HALF: Final = "half"
ONE, FEW = "one", "few"
"""Settings of a draw, and the calls whose difference gives one with its table ready."""

Spent = dict[tuple[str, str], list[float]]
"""Seconds of each turn of a call, by method and call."""
Draws = dict[tuple[str, str], list[float]]
"""Seconds of a draw in each turn, by method and setting."""


def weights_of(kind: str, size: int) -> Tensor:
    """int64[size] weights, by a fixed seed."""
    if kind == "equal":
        return torch.ones(size, dtype=torch.int64)
    drawn = torch.rand(size, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    return (1 - drawn).pow(-1 / (EXPONENT - 1)).clamp_(max=LARGEST).long()


def chosen(method: str) -> dict[str, Any]:
    """Arguments that choose a method."""
    return {"method": name_of(method), "arity": arity_of(method)}


def few_of(method: str, size: int) -> int:
    """Draws of a timed call where the table is ready: as many as a fixed amount of work allows."""
    if method in LINEAR and method != "its_list":  # a list is as long as what was taken
        return min(max(8, READ // size), size // 4)
    return min(size // 4, MANY if method in CHEAP else DRAWS)


def repeats_of(method: str, size: int, draws: int) -> int:
    """Repetitions of a small draw in one call, so that the call itself is negligible."""
    work = size * draws if method in LINEAR else size + draws
    return max(1, (READ if method in LINEAR else REPEATED) // max(1, work))


def methods_for(kind: str) -> list[str]:
    """Methods that draw by such weights."""
    return [name for name in TITLES if kind == "equal" or name != "reservoir"]


def calls_for(kind: str, size: int, preset: Preset) -> dict[tuple[str, str], Callable[[], Tensor]]:
    """Calls whose times make up the first two panels, by method and call."""
    weights = weights_of(kind, size)

    def call(method: str, count: int, repeats: int) -> Callable[[], Tensor]:
        return lambda: draw_many(weights, count, repeats, seed=count, **chosen(method))

    calls: dict[tuple[str, str], Callable[[], Tensor]] = {}
    for method in methods_for(kind):
        if method != "keys":
            few = few_of(method, size)
            repeats = repeats_of(method, size, few)
            calls[method, ONE] = call(method, 1, repeats)
            calls[method, FEW] = call(method, few, repeats)
        if size <= (LONGEST if method in LINEAR else HALVED)[preset]:
            half = size // 2
            calls[method, HALF] = call(method, half, repeats_of(method, size, half))
    return calls


def measure(kind: str, preset: Preset, *, control: bool) -> Measurement:
    """Every method at every size, in turns; as an A/A pair SIS twice at the smallest size."""
    found = Measurement(
        data=synthetic_data(f"{kind} weights"),
        deviation={"repeats": 0.0},
        notes=[f"linear methods draw half of a set up to {LONGEST[preset]:,} elements"],
    )
    found.observe("turns", TURNS[preset])
    sizes = SIZES[preset]
    smallest = sizes[0]
    calls = {n: calls_for(kind, n, preset) | frontier_part(kind, n, preset) for n in sizes}
    if control:
        base = {call: calls[smallest][BASE, call] for call in (ONE, FEW, HALF)}
        calls[smallest] |= {(AGAIN, call): run for call, run in base.items()}
    for n in sizes:
        count(found, kind, n, preset)
        for part, nodes in levels(n).items():
            found.observe("draw_work", nodes, of=part, size=n)
    for part, nodes in example().items():
        found.observe("draw_work", nodes, of=part)
    spent: dict[int, Spent] = {n: {} for n in sizes}
    for turn in range(-1, TURNS[preset]):
        for n in sizes:
            timed(calls[n], spent[n], turn)
    found.checks += checked(found, kind, sizes)
    ring_of.cache_clear()
    draws = {n: per_draw(kind, n, seconds) for n, seconds in spent.items()}
    if control:
        own = {(BASE, way): s for (name, way), s in spent[smallest].items() if name == AGAIN}
        again = per_draw(kind, smallest, {**spent[smallest], **own})
        for setting in (READY, HALF):
            sides = [s[BASE, setting] for s in (draws[smallest], again) if (BASE, setting) in s]
            if len(sides) == 2:
                observe_control(found, *sides, method=BASE, setting=setting, size=smallest)
    for n, by_name in draws.items():
        for (method, setting), seconds in by_name.items():
            found.observe("sampling_time", median(seconds), method=method, setting=setting, size=n)
    for small, large in pairwise(sizes):
        for way in [way for way in draws[large] if way in draws[small]]:
            slow, fast = draws[large][way], draws[small][way]
            method, setting = way
            observe_ratio(found, "growth", slow, fast, method=method, setting=setting, size=large)
    return found


def frontier_part(kind: str, size: int, preset: Preset) -> dict[tuple[str, str], Callable]:
    """Calls of the third panel; they belong to the row of equal weights, of which there is one."""
    return frontier_calls(size) if kind == "equal" and size <= FRONTIERS[preset] else {}


def per_draw(kind: str, size: int, seconds: Spent) -> Draws:
    """Seconds of one draw in each turn, by method and setting.

    What building hides, so that the median difference comes out at nothing, is left out.
    """
    found: Draws = {}
    for method in methods_for(kind):
        if (method, FEW) in seconds:
            few = few_of(method, size)
            more = (few - 1) * repeats_of(method, size, few)
            found[method, READY] = [
                max(MIN_SECONDS, (few - one) / more)
                for few, one in zip(seconds[method, FEW], seconds[method, ONE], strict=True)
            ]
        if (method, HALF) in seconds:
            draws = size // 2 * repeats_of(method, size, size // 2)
            found[method, HALF] = [s / draws for s in seconds[method, HALF]]
    found |= frontier_draws(size, seconds)
    return {way: times for way, times in found.items() if median(times) > MIN_SECONDS}


def count(found: Measurement, kind: str, size: int, preset: Preset) -> None:
    """Observe exact counts of draws, and check that no index comes twice."""
    weights = weights_of(kind, size)
    for method in methods_for(kind):
        if method == "keys":
            continue
        amounts = {READY: min(size // 4, max(COUNTED, few_of(method, size)))}
        if size <= (LONGEST if method in LINEAR else HALVED)[preset]:
            amounts[HALF] = size // 2
        for setting, many in amounts.items():
            stats = DrawStats()
            drawn = draw_without_replacement(
                weights, many, seed=many, stats=stats, **chosen(method)
            )
            check = checked_set(drawn, many, size, f"{method} {setting} {size}")
            found.checks += of_contender(method, [check], size=size)
            found.deviation["repeats"] = max(found.deviation["repeats"], found.checks[-1].gap)
            note(found, stats, method=method, setting=setting, size=size)
    if frontier_part(kind, size, preset):
        for method in FRONTIER_METHODS:
            stats = walk(method, size, 32).stats
            note(found, stats, method=method, setting=REPLACED, size=size)


def levels(size: int) -> dict[str, int]:
    """Nodes of a binary tree that one `search` reads and one `modify` writes, below the root."""
    tree = SegmentTree(torch.ones(size, dtype=torch.int64), arity=2)
    tree.search(size // 2)
    read = tree.nodes_visited
    tree.modify(size // 2, 3)
    return {"search": read, "modify": tree.nodes_visited - read}


def example() -> dict[str, int]:
    """The tree of eight elements of Figure 3, with another weight for e4."""
    tree = SegmentTree(torch.ones(8, dtype=torch.int64), arity=2)
    tree.modify(4, 5)
    return {"changed": tree.nodes_visited + 1, "path": tree.height + 1}


def checked_set(drawn: Tensor, many: int, size: int, part: str) -> ResultCheck:
    """Check that so many different indices of a set were drawn."""
    kept = np.unique(drawn.numpy())
    outside = int(((kept < 0) | (kept >= size)).sum())
    violations = abs(len(drawn) - many) + len(drawn) - len(kept) + outside
    return at_most(
        "samples",
        violations / max(1, many),
        0.0,
        against="indices, each once",
        compared=many,
        part=part,
    )


def checked(found: Measurement, kind: str, sizes: tuple[int, ...]) -> list[ResultCheck]:
    """Checks of first draws against weights, and of counters against the height of the tree."""
    ways = [m for m in methods_for(kind) if m not in ("brs_literal", "reservoir")]
    weights = (1,) * 6 if kind == "equal" else (1, 2, 3, 5, 8, 1)
    checks = check_draws({method: chosen(method) for method in ways}, weights)
    own, wanted = {}, {}
    for one in (one for one in found.observations if one.metric == "draw_work"):
        of, method, n = (one.dims.get(name, 0) for name in ("of", "method", "size"))
        if of in ("search", "modify"):
            own[f"{of} {n}"], wanted[f"{of} {n}"] = one.value, (n - 1).bit_length()
        elif of == "draws" and one.dims["setting"] == READY:
            own[f"{of} {method} {n}"] = one.value
            wanted[f"{of} {method} {n}"] = min(n // 4, max(COUNTED, few_of(method, n)))
    checks.append(equal("counters", own, wanted, against="height of a binary tree"))
    tree = SegmentTree(torch.ones(8, dtype=torch.int64), arity=2)
    tree.modify(4, 5)
    changed = {"total": tree.total, "weights": tree.weights}
    exact = {"total": 12, "weights": torch.tensor([1, 1, 1, 1, 5, 1, 1, 1])}
    return [*checks, equal("outputs", changed, exact, against="weights of Figure 3, one changed")]


def note(found: Measurement, stats: DrawStats, **dims: Any) -> None:
    """Observe the counts of some draws."""
    counts = {
        "draws": stats.draws,
        "redraws": stats.redraws,
        "steps": stats.nodes_visited,
        "read": stats.elements_scanned,
        "rebuilt": stats.rebuilt,
    }
    for of, count in counts.items():
        found.observe("draw_work", count, of=of, **dims)


LITTLE = 2.0
"""Factor of a draw's time for ten times the set, up to which it rises only a little."""
STRONG = 3.0
"""Factor from which it grows strongly; linear is 10, its root 3.2."""
NEAR = 2.0
"""Factor up to which counts are proportional to the set."""
ITS_FORMS = {
    "ITS scan": ("its_linear", READY),
    "ITS list": ("its_list", HALF),
    "ITS rebuild": ("its_rebuild", READY),
    "ITS bitmap": ("its_bitmap", READY),
}
"""Forms of ITS. A list of the taken is short until much of the set is drawn."""
BRS_FORMS = {"BRS on a frontier": ("brs", REPLACED), "BRS on a set": ("brs", READY)}
WHY = "which form of ITS is meant, and whether BRS draws from a set or a frontier, is not said"

TIME = observed("sampling_time", per=("weights", "method", "size"))
GROWTH = observed("growth", weights="equal")
"""Time of a draw over that from a tenth of the set."""
WORK = observed("draw_work", per="size")


def any_value(_: object) -> bool:
    return True


def per_decade(method: str, setting: str) -> MeasuredQuantity:
    """Factor of a draw's time for ten times the set, geometric mean over the sizes."""
    growth = GROWTH.where(method=method, setting=setting, size=any_value)
    return growth.pooled("workloads")


def work_per_draw(work: MeasuredQuantity, setting: str = READY) -> MeasuredQuantity:
    """Nodes and elements that a draw passes, by size."""
    of = {name: work.where(of=name, setting=setting) for name in ("steps", "read", "draws")}
    return (of["steps"] + of["read"]) / of["draws"]


def work_of(method: str, setting: str) -> MeasuredQuantity:
    """Nodes and elements that a draw of a method passes in a set of equal weights, by size."""
    return work_per_draw(WORK.where(weights="equal", method=method), setting)


def is_proportional(counts: Mapping[int, float]) -> bool:
    """Return True if counts for each element are alike at all sizes."""
    shares = [count / size for size, count in counts.items()]
    return min(shares) > 0 and max(shares) <= NEAR * min(shares)


def is_logarithmic(counts: Mapping[int, float], per_level: float = 1) -> bool:
    """Return True if counts are at most `per_level` per level of a binary tree and one more."""
    return all(count <= per_level * (math.ceil(math.log2(n)) + 1) for n, count in counts.items())


def linear(method: str, setting: str) -> outcomes.Rule:
    """Draws of a method pass as many items as are proportional to the set."""
    return line_rules.each_line(work_of(method, setting), "size", is_proportional)


def in_levels(of: str) -> outcomes.Rule:
    """Steps of a search or of a change are at most the levels of a binary tree."""
    return line_rules.each_line(WORK.where(weights="equal", of=of), "size", is_logarithmic)


def total(its: str, brs: str) -> outcomes.Rule:
    """A draw of SIS is logarithmic, those of forms of ITS and BRS are linear."""
    sis = WORK.where(weights="equal", method="sis", setting=READY)
    steps = sis.where(of="steps") / sis.where(of="draws")
    return combine.both(
        line_rules.each_line(steps, "size", lambda counts: is_logarithmic(counts, 2)),
        linear(*ITS_FORMS[its]), linear(*BRS_FORMS[brs]),
    )  # fmt: skip


READS, DRAWN = (
    WORK.where(weights="equal", method="brs", setting=REPLACED, of=of) for of in ("read", "draws")
)
_FRONTIER, _SET = BRS_FORMS


class Fig8(FormExperiment):
    forms = replace(FORMS, labels={**FORMS.labels, "method": series_of})
    name = "fig8"
    device = "cpu"
    control = {"weights": "equal"}
    axes = {"weights": {"smoke": ("equal",), "quick": ("equal",), None: ("equal", "degrees")}}
    """Equal, as for node-wise and layer-wise sampling, or of a power law as degrees are."""
    repeats, interleaved = PROCESSES, True
    group = "{weights}"
    timeout_s = {"smoke": 60, "quick": 120, "full": 1800, "paper": 3600}
    headline, unit = (
        GROWTH.where(setting=READY, size=any_value).per("method").pooled("workloads"),
        "x",
    )
    figure_forms = (
        Sweep(
            "fig8", "Time of one draw by the size of the set",
            {
                "one draw, its table or tree ready": TIME.where(setting=READY),
                "half of the set, building included": TIME.where(setting=HALF),
                "one step of a frontier": TIME.where(setting=REPLACED, weights=("equal",)),
            },
            panel="{of}, {weights} weights", series="{method}", x="size",
            without="skipped: too many elements to read", xlabel="elements to draw from",
            ylabel="seconds of a draw", base=10, guide_slope=1.0, names=False,
        ),
        Sweep(
            "fig8_counts", "Steps and elements of one draw by the size of the set",
            work_per_draw(WORK.per("weights", "method")).map(lambda count: count or math.nan),
            panel="{weights} weights", series="{method}", x="size",
            gaps={"series": "SIS", "x": SIZES["smoke"][0]}, xlabel="elements to draw from",
            ylabel="steps and elements read", base=10, guide_slope=1.0, names=False,
        ),
    )  # fmt: skip
    claims = {
        "tgcn-fig8-sis-flat": rules.all_below(
            GROWTH.where(method="sis", setting=(READY, HALF)).per("size"), LITTLE, unit="x"
        ),
        "tgcn-fig8-its-brs-grow": combine.interpretations(
            WHY,
            {
                words: rules.all_above(
                    per_decade(*form), STRONG, report=rules.largest
                )
                for words, form in {**ITS_FORMS, **BRS_FORMS}.items()
            },
        ),
        "tgcn-fig8-order": combine.interpretations(
            WHY,
            {
                words: line_rules.clearly_above(per_decade(*form), per_decade("sis", READY))
                for words, form in {**ITS_FORMS, **BRS_FORMS}.items()
            },
        ),
        "tgcn-s2-brs-complexity": line_rules.each_line(READS / DRAWN, "size", is_proportional),
        "tgcn-s2-its-complexity": combine.interpretations(
            WHY,
            {
                words: linear(*form)
                for words, form in {**ITS_FORMS, "alias tables": ("alias", READY)}.items()
            },
        ),
        "tgcn-s3-sis-query-complexity": in_levels("search"),
        "tgcn-s3-sis-modify-complexity": in_levels("modify"),
        "tgcn-s3-sis-total-complexity": combine.interpretations(
            WHY,
            {
                f"{its}, {brs}": total(its, brs)
                for its, brs in [*((its, _FRONTIER) for its in ITS_FORMS), ("ITS scan", _SET)]
            },
        ),
        "tgcn-s3-sis-no-repeats": rules.all_equal(
            observed(
                "draw_work", of="redraws", method="sis", setting=any_value, size=any_value
            ).pooled("sum"), 0,
        ),
        "tgcn-s3-tree-height-example": rules.all_equal(
            observed("draw_work", weights="equal", of=("changed", "path")), 4
        ),
    }  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        with one_thread():
            kind = str(cell.params["weights"])
            return measure(kind, context.preset, control=self.controls(cell))
