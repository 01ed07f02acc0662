"""Claims on the three baselines among themselves (section 2.2, Figures 4 and 5c)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from dgbench.runtime.statistics import geometric_mean
from dgbench.systems.base import Claim
from dgbench.systems.dgc.checks.race_words import (
    agreed,
    asking_races,
    in_order,
    sent_words,
    side_fields,
    standing,
    where,
)
from dgbench.systems.dgc.experiments import fig4, fig5c
from dgbench.systems.dgc.experiments.race_rows import RaceRecord, dataset_title, races, real
from dgbench.systems.dgc.experiments.race_runs import CONTIGUOUS, PSS, PSS_TS, PTS, TITLES

Rows = Sequence[Any]
Said = dict[str, Any]

NONE4 = "no race of the three partitions on this graph or on one of its site (fig4)"
NONE5 = "no quarters were trained: the experiment 'fig5c' did not run"
FAR: Final = 1.5
"""Communication is far longer from this factor on, and work alike below it."""


def _fig4(*datasets: str) -> Callable[[Rows], list[RaceRecord]]:
    """Races of Figure 4 on these graphs or graphs of their sites: of as many as were raced, and of
    no twin beside real ones."""

    def select(rows: Rows) -> list[RaceRecord]:
        found = races(rows, fig4.NAME)
        mine = [one for name in datasets for one in standing(name, found)]
        return real(mine) or mine

    return select


def _all_real(rows: Rows) -> list[RaceRecord]:
    found = races(rows, fig4.NAME)
    return real(found) or found


def _title(one: RaceRecord) -> str:
    return dataset_title(one.dataset, one.twin)


@asking_races(_fig4("amazon", "epinions", "stack", "movie"), NONE4)
def pts_best(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """PTS the fastest on Amazon, Epinion and Stack, the slowest on Movie."""
    sides = [
        one.gain(b, PTS).side * (-1 if one.dataset == "movie" else 1)
        for one in found
        for b in (one.named(PSS), PSS_TS)
    ]
    return {
        "measured": {_title(one): in_order(one) for one in found},
        **side_fields(sides),
        "reason": f"epoch times in order; {where(found)}",
    }


@asking_races(_fig4("epinions"), NONE4)
def epinion_pss(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """On Epinion all compute alike, and PSS communicates far longer than both others."""
    one = found[0]
    pss = one.named(PSS)
    work = {b: one.computing(b) for b in one.baselines}
    waits = {b: one.spent("communicate", b) for b in one.baselines}
    alike = max(work.values()) <= FAR * min(work.values())
    return {
        "measured": {
            TITLES[b]: f"computes {1e3 * work[b]:.1f} ms, communicates {1e3 * waits[b]:.1f} ms"
            for b in one.baselines
        },
        "holds": alike and all(waits[pss] >= FAR * waits[b] for b in (PTS, PSS_TS)),
        "reason": f"alike and far apart: below and above {FAR}x; {sent_words(one)}; {where(found)}",
    }


@asking_races(_fig4("movie"), NONE4)
def movie_pts(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """On Movie PTS communicates longer than both others."""
    one = found[0]
    waits = {b: one.each("phase_time", b, "communicate") for b in one.baselines}
    sides = [
        agreed(a > b for a, b in zip(waits[PTS], waits[b], strict=True))
        for b in one.baselines
        if b != PTS
    ]
    return {
        "measured": {TITLES[b]: f"{1e3 * geometric_mean(waits[b]).value:.1f} ms" for b in waits},
        **side_fields(sides),
        "reason": f"{sent_words(one)}; {where(found)}",
    }


@asking_races(_fig4("amazon", "stack"), NONE4)
def reassignment(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """On Amazon and Stack communication is a larger share of PSS-TS's epoch than of PTS's."""
    shares = {
        _title(one): {
            b: [
                spent / epoch
                for spent, epoch in zip(
                    one.each("phase_time", b, "communicate"), one.seconds(b), strict=True
                )
            ]
            for b in (PSS_TS, PTS)
        }
        for one in found
    }
    middle = {
        name: {b: geometric_mean(values).value for b, values in of.items()}
        for name, of in shares.items()
    }
    return {
        "measured": {
            name: f"{s[PSS_TS]:.0%} of an epoch of PSS-TS, {s[PTS]:.0%} of PTS"
            for name, s in middle.items()
        },
        **side_fields(
            agreed(a > b for a, b in zip(of[PSS_TS], of[PTS], strict=True))
            for of in shares.values()
        ),
        "reason": "; ".join(sent_words(one) for one in found) + f"; {where(found)}",
    }


def _several_real(rows: Rows) -> list[RaceRecord]:
    found = real(races(rows, fig4.NAME))
    return found if len(found) > 1 else []


@asking_races(_several_real, "two real graphs are needed: 'fig4' raced fewer")
def no_single_winner(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """On real graphs, a clear winner of one that is not the clear winner of another."""
    clear = {one.dataset: fig4.winner(one) for one in found if fig4.decided(one)}
    differ = len(set(clear.values())) > 1
    return {
        "measured": {
            dataset_title(one.dataset): TITLES[clear[one.dataset]]
            if one.dataset in clear
            else f"open between {' and '.join(TITLES[name] for name in fig4.contending(one))}"
            for one in found
        },
        "holds": differ,
        "undecided": not differ and len(clear) < len(found),
        "reason": f"fastest of the three; {where(found)}",
    }


@asking_races(_fig4("stack"), NONE4)
def pts_stack(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """Divergence of PTS on Stack."""
    value = geometric_mean(found[0].each("divergence", PTS))
    return {
        "measured": value.value,
        "low": value.low,
        "high": value.high,
        "target": float(claim.value),
        "reason": f"own work of ranks, waiting left out; {where(found)}",
    }


@asking_races(_all_real, NONE4)
def balance_order(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """PTS less even than on Stack elsewhere, and more even than PSS and PSS-TS."""
    spread = {one.dataset: {b: one.each("divergence", b) for b in one.baselines} for one in found}
    (stack,) = standing("stack", found)[:1] or (None,)
    sides = [
        agreed(a > b for a, b in zip(of[b], of[PTS], strict=True))
        for of in spread.values()
        for b in of
        if b != PTS
    ]
    if stack is not None:
        even = geometric_mean(spread[stack.dataset][PTS])
        for name, of in spread.items():
            if name != stack.dataset:
                other = geometric_mean(of[PTS])
                sides.append(_apart(other, even))
    return {
        "measured": {
            _title(one): ", ".join(
                f"{TITLES[b]} {geometric_mean(v).value:.2f}" for b, v in spread[one.dataset].items()
            )
            for one in found
        },
        **side_fields(sides),
        "reason": f"Tmax/Tmin of own work; {where(found)}",
    }


def _apart(more: Any, less: Any) -> int:
    """1 if an interval lies above another, -1 if below, 0 where they meet or there is none."""
    if None in (more.low, less.low):
        return 0
    return 1 if more.low > less.high else -1 if more.high < less.low else 0


NO_MOVIE = "needs the real Movie: what changes between its quarters is its own"


@asking_races(lambda rows: fig5c.by_graph(rows).get("movie", []), NO_MOVIE)
def part_order(claim: Claim, found: Sequence[fig5c.Quarter]) -> Said:
    """On Movie, PSS and PSS-TS faster than PTS on quarters 1 and 2, slower on 3 and 4."""
    sides = [
        q.race.gain(PTS, b).side * (1 if q.number <= 2 else -1)
        for q in found
        for b in q.race.baselines
        if b != PTS
    ]
    return {
        "measured": {f"quarter {q.number}": in_order(q.race) for q in found},
        **side_fields(sides),
        "reason": "epoch times in order",
    }


def _real_quarters(rows: Rows) -> list[fig5c.Quarter]:
    return [q for parts in fig5c.by_graph(rows).values() for q in parts if not q.race.twin]


@asking_races(_real_quarters, NONE5 + " on a real graph")
def trends(claim: Claim, found: Sequence[fig5c.Quarter]) -> Said:
    """Over the quarters of a graph, bytes of PSS and PSS-TS rise with vertex-steps and epochs of
    PTS with edges: rank correlations above 0, on every real graph. That of epochs is one of each
    process, and open where these disagree."""
    sides: list[int] = []
    shown: dict[str, str] = {}
    for name in dict.fromkeys(q.race.dataset for q in found):
        mine = [q.race for q in found if q.race.dataset == name]
        pss = CONTIGUOUS if all(CONTIGUOUS in r.names for r in mine) else PSS
        sizes, edges = ([r.number(of) for r in mine] for of in ("vertex_steps", "edges"))
        sent = {
            b: _rank_correlation(sizes, [r.number("exchanged", b) for r in mine])
            for b in (pss, PSS_TS)
        }
        each = [
            _rank_correlation(edges, list(times))
            for times in zip(*(r.seconds(PTS) for r in mine), strict=True)
        ]
        sides += [1 if tau > 0 else -1 for tau in sent.values()]
        sides.append(1 if min(each) > 0 else -1 if max(each) <= 0 else 0)
        whole = _rank_correlation(edges, [r.epoch(PTS) for r in mine])
        said = [f"{TITLES[b]} {tau:+.1f}" for b, tau in sent.items()]
        said.append(f"{TITLES[PTS]} {whole:+.1f} ({min(each):+.1f} to {max(each):+.1f})")
        shown[dataset_title(name)] = ", ".join(said)
    return {
        "measured": shown,
        **side_fields(sides),
        "reason": "rank correlation over four quarters: bytes of PSS and PSS-TS with vertex-steps, "
        "seconds of PTS with edges, of each process",
    }


def _rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Kendall's tau: pairs in one order less pairs in opposite order, over all pairs."""
    pairs = [(i, j) for i in range(len(a)) for j in range(i)]
    signs = [(a[i] - a[j]) * (b[i] - b[j]) for i, j in pairs]
    return sum((s > 0) - (s < 0) for s in signs) / max(1, len(pairs))
