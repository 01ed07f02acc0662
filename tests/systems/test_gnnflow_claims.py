"""Claims of GNNFlow on races and placements that kept rows do not reach: made rows and verdicts.

What kept, disturbed and synthetic rows decide is in `tests/golden/gnnflow`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest
from gnnflow_rows import by, judged, row

from dgbench.harness.store.row import Row
from dgbench.lab.table import observation
from dgbench.systems.gnnflow import experiments as ex

TWIN = {"twin": True, "scale": 1.0}
Rows = list[Row]
Case = tuple[Any, ...]
"""A claim, its rows, words of its verdict, and a floor if it has one."""

# --- continuous training --------------------------------------------------------------------------


def race(
    dataset: str, model: str, gain: float, share: float = 0.3, form: str = ex.round_race.PUBLISHED,
    ours: float | None = None,
) -> Row:  # fmt: skip
    """A race of rounds; `ours` is the gain of GNNFlow + dgbench in it."""
    gains = {form: gain} | ({} if ours is None else {ex.round_race.GNNFLOW: ours})
    observed = [observation("turns", 6)]
    observed += by("round_time", "setting", dict.fromkeys(gains, 4e-3) | {"tgl": gain * 4e-3})
    observed.append(observation("time_share", share, setting="tgl", phase="update"))
    for name, factor in gains.items():
        which = {"setting": name, "baseline": "tgl"}
        ends = {"low": factor * 0.9, "high": factor * 1.1}
        observed.append(observation("speedup", factor, **ends, **which))
        observed.append(observation("speedup", 3.0, phase="without network", **which))
    params = {"dataset": dataset, "model": model}
    return row("fig8", params, observed, deviation={"loss": 0.0}, data=TWIN | {"scale": 1 / 1024})


def races(gains: Mapping[str, float], **more: float) -> Rows:
    """Races on GDELT by model, and on Netflix."""
    result = [race("gdelt", model, gain) for model, gain in gains.items()]
    return result + [race("netflix", model, gain) for model, gain in more.items()]


def update(dataset: str, update_s: float, rebuild_s: float, size: float) -> Row:
    observed = [
        *by("operation_time", "setting", {"update": update_s, "rebuild": rebuild_s}),
        observation("estimate", size, of="events"),
        observation("speedup", rebuild_s / update_s, setting="update", baseline="rebuild"),
        observation("threads", 2),
    ]
    return row("update", {"dataset": dataset}, observed, data=TWIN | {"scale": 1 / 64})


ALL_THREE = {"tgn": 2.0, "tgat": 1.5, "dysat": 1.6}
TWO = {"tgn": 2.0, "tgat": 1.5}
UPDATES = (("gdelt", 0.001, 0.5, 1500.0), ("netflix", 0.002, 0.25, 2031.25))
ROUNDS: list[Case] = [
    ("fig8-gdelt", lambda: races(ALL_THREE), "direction timed twin"),
    ("fig8-netflix", lambda: races(TWO, tgn=0.5), "opposite"),
    ("abs-max-retrain-speedup", lambda: races(TWO), "direction"),
    ("abs-max-retrain-speedup", lambda: races(TWO | {"tgat": 0.5}), "v"),
    ("s61-tgl-rebuild-share", lambda: [race("gdelt", "tgn", 2.0, 0.4),
                                       race("gdelt", "tgat", 2.0, 0.9),  # not raced on Netflix
                                       race("netflix", "tgn", 2.0, 0.7)], "value"),
    ("s61-rebuild-dominates", lambda: [race("gdelt", "tgn", 2.0, 0.6),
                                       race("netflix", "tgn", 2.0, 0.7)], "value"),
    ("s61-update-time", lambda: [update("gdelt", 0.002, 0.5, 1500.0),
                                 update("netflix", 0.001, 0.25, 2031.25)], "opposite"),
    ("s61-update-time", lambda: [update(*one) for one in UPDATES], "undecided", 1.5),
]  # fmt: skip

# --- placements -----------------------------------------------------------------------------------


def placed(name: str, limit: int = 4 << 30, ballast: int = 1 << 30, **seconds: float | str) -> Rows:
    """Five rounds of each placement; words instead of seconds are a status."""
    published = {"reddit": 1_344_894, "gdelt": 191_290_000, "netflix": 200_960_000}[name]
    result = []
    for (system, took), turn in product(seconds.items(), range(5)):
        observed = [observation("records", published, of="published")]
        observed += by("memory", "of", {"limit": limit, "ballast": ballast})
        status = took if isinstance(took, str) else "ok"
        if status == "ok":
            time = took * (1 + 0.01 * turn)
            observed.append(observation("step_time", time, samples=[time]))
        params, id_ = {"dataset": name, "system": system}, f"{name}-{system}-{turn}"
        where = {"group": name, "round": turn, "device": "cuda"}
        result.append(row("fig13", params, observed, id=id_, status=status, **where))
    return result


def lists() -> Rows:
    layouts = ex.fig13.table6.LAYOUTS
    observed = [observation("vertices", 100)]
    observed += by("slots", "setting", dict.fromkeys(layouts, 1000))
    observed += by("list_blocks", "setting", dict.fromkeys(layouts, 600))
    observed += by("list_blocks", "setting", dict.fromkeys(layouts, 9), statistic="longest")
    data = TWIN | {"scale": 0.1}
    return [row("table6", {"dataset": name, "scale": 0.1}, observed, data=data)
            for name in ("gdelt", "netflix")]  # fmt: skip


SMALL = {"cpu": 1.0, "cuda": 0.1, "unified": 0.11, "hybrid": 0.2, "uva": 0.4}
SLOW = {"cpu": 0.3, "hybrid": 0.1, "uva": 0.4}


PLACES: list[Case] = [
    ("fig13-small-graph-best", lambda: placed("reddit", **SMALL), "value cuda"),
    ("fig13-small-graph-best", lambda: placed("reddit", **SMALL | {"cuda": 0.3}), "opposite"),
    ("fig13-small-graph-best", lambda: placed("reddit", **SMALL | {"unified": "oom"}), "-"),
    *(("fig13-hybrid-over-uva", lambda a=a, b=b: placed("reddit", hybrid=0.2, uva=0.4)
       + placed("gdelt", hybrid=a, uva=b), wanted)
      for a, b, wanted in ((0.2, 0.4, "value"), (0.4, 0.2, "opposite"))),
    ("fig13-uva-below-cpu", lambda: placed("gdelt", cpu=0.3, uva=0.4), "value"),
    ("fig13-uva-below-cpu", lambda: placed("gdelt", cpu=0.4, uva=0.3)
     + placed("netflix", cpu=0.3, uva=0.4), "opposite"),
    ("fig13-um-thrash", lambda: placed("gdelt", unified=4.0, **SLOW), "value"),
    ("fig13-um-thrash", lambda: placed("gdelt", unified=0.5, **SLOW), "opposite"),
    ("fig13-um-thrash", lambda: placed("gdelt", 4 << 20, unified=4.0, **SLOW), "-"),
    ("fig13-um-thrash", lambda: placed("gdelt", ballast=0, unified=4.0, **SLOW), "-"),
    ("fig13-cuda-only-oom", lambda: placed("gdelt", cpu=0.3, cuda=0.1)
     + placed("netflix", cpu=0.3, cuda="oom") + lists(), "opposite"),
]  # fmt: skip

CASES = [*ROUNDS, *PLACES]


@pytest.mark.parametrize("case", CASES, ids=[f"{c[0]}-{number}" for number, c in enumerate(CASES)])
def test_rows_decide_a_claim(case) -> None:
    name, rows, wanted, *floor = case
    _, verdict = judged(name, rows(), *floor)
    words = (verdict.agreement, verdict.strength, verdict.source, verdict.data, verdict.glyph)
    assert set(wanted.split()) <= {*words, verdict.device}


def test_claims_are_judged_on_the_published_form() -> None:
    """Additions of dgbench win no claim, and races without the published form decide none."""
    alone, both, additions = (
        [race("gdelt", model, 1.5, **how) for model in ALL_THREE]
        for how in ({}, {"ours": 9.0}, {"form": ex.round_race.GNNFLOW})
    )
    for claim in ("fig8-gdelt", "abs-max-retrain-speedup", "s61-half-minute"):
        (one, _), (other, _) = judged(claim, alone), judged(claim, both)
        assert (one.measured, one.reason) == (other.measured, other.reason)
        assert judged(claim, additions)[1].glyph == "-"


def test_words_of_times_are_seconds() -> None:
    words = {"15 mins.": 900.0, "1 day": 86_400.0, "few secs.": 0.0, "7.2 years": 7.2 * 31_557_600}
    assert {each: ex.table5.seconds_of(each) for each in words} == pytest.approx(words)
