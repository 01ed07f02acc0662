"""Claims on the three baselines among themselves (section 2.2, Figures 4 and 5c)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.dgc.checks.common import any_graph, finding, missing, strength
from dgbench.systems.dgc.checks.race_words import in_order, rows_of, sent_words, where
from dgbench.systems.dgc.experiments import fig4, fig5c
from dgbench.systems.dgc.experiments.race_runs import (
    BASELINE_NAMES,
    PSS,
    PSS_TS,
    PTS,
    TITLES,
    TWINS,
    Race,
    dataset_title,
    races,
    real,
)

Rows = Sequence[Any]

NONE4 = "no race of the three partitions: the experiment 'fig4' did not run"
NONE5 = "no quarters were trained: the experiment 'fig5c' did not run"
FAR: Final = 1.5
"""Communication is far longer from this factor on, and work alike below it."""


# Figure 4.


def _fig4(rows: Rows, *datasets: str) -> dict[str, Race]:
    found = {one.dataset: one for one in races(rows, fig4.NAME) if one.dataset in datasets}
    return found if set(found) == set(datasets) else {}


def pts_best(claim: Claim, rows: Rows) -> Finding:
    """PTS the fastest on Amazon, Epinion and Stack, the slowest on Movie."""
    found = _fig4(rows, *TWINS)
    if not found:
        return missing(NONE4)
    sides = []
    for name, one in found.items():
        others = [b for b in BASELINE_NAMES if b != PTS]
        ahead = [one.gain(b, PTS).side for b in others]
        sides += [-side for side in ahead] if name == "movie" else ahead
    return finding(
        rows_of(list(found.values())),
        evidence=strength(rows_of(list(found.values()))),
        measured={
            dataset_title(name): " < ".join(
                TITLES[b] for b in sorted(BASELINE_NAMES, key=one.epoch)
            )
            for name, one in found.items()
        },
        holds=min(sides) > 0,
        undecided=min(sides) == 0,
        reason=f"epoch times in order; {where(list(found.values()))}",
    )


def epinion_pss(claim: Claim, rows: Rows) -> Finding:
    """On Epinion all compute alike, and PSS communicates far longer than both others."""
    found = _fig4(rows, "epinions")
    if not found:
        return missing(NONE4)
    one = found["epinions"]
    work = {b: one.computing(b) for b in BASELINE_NAMES}
    waits = {b: one.spent("communicate", b) for b in BASELINE_NAMES}
    alike = max(work.values()) <= FAR * min(work.values())
    longer = all(waits[PSS] >= FAR * waits[b] for b in (PTS, PSS_TS))
    return finding(
        [one.row],
        evidence=strength([one.row]),
        measured={
            TITLES[b]: f"computes {1e3 * work[b]:.1f} ms, communicates {1e3 * waits[b]:.1f} ms"
            for b in BASELINE_NAMES
        },
        holds=alike and longer,
        reason=f"alike and far apart: below and above {FAR}x; {sent_words(one)}; {where([one])}",
    )


def movie_pts(claim: Claim, rows: Rows) -> Finding:
    """On Movie PTS communicates longer than both others."""
    found = _fig4(rows, "movie")
    if not found:
        return missing(NONE4)
    one = found["movie"]
    waits = {b: one.spent("communicate", b) for b in BASELINE_NAMES}
    return finding(
        [one.row],
        evidence=strength([one.row]),
        measured={TITLES[b]: f"{1e3 * waits[b]:.1f} ms" for b in BASELINE_NAMES},
        holds=waits[PTS] > max(waits[PSS], waits[PSS_TS]),
        reason=f"{sent_words(one)}; {where([one])}",
    )


def reassignment(claim: Claim, rows: Rows) -> Finding:
    """On Amazon and Stack communication is a larger share of PSS-TS's epoch than of PTS's."""
    found = _fig4(rows, "amazon", "stack")
    if not found:
        return missing(NONE4)
    shares = {
        name: {b: one.spent("communicate", b) / one.epoch(b) for b in (PSS_TS, PTS)}
        for name, one in found.items()
    }
    used = list(found.values())
    return finding(
        rows_of(used),
        evidence=strength(rows_of(used)),
        measured={
            dataset_title(name): f"{s[PSS_TS]:.0%} of an epoch of PSS-TS, {s[PTS]:.0%} of PTS"
            for name, s in shares.items()
        },
        holds=all(s[PSS_TS] > s[PTS] for s in shares.values()),
        reason="; ".join(sent_words(one) for one in used) + f"; {where(used)}",
    )


@any_graph
def no_single_winner(claim: Claim, rows: Rows) -> Finding:
    """On real graphs, a clear winner of one that is not the clear winner of another."""
    found = real(races(rows, fig4.NAME))
    if len(found) < 2:
        return missing("two real graphs are needed: 'fig4' raced fewer")
    clear = {one.dataset: fig4.winner(one) for one in found if fig4.decided(one)}
    differ = len(set(clear.values())) > 1
    open_ = len(clear) < len(found)
    return finding(
        rows_of(found),
        evidence=strength(rows_of(found)),
        measured={
            dataset_title(one.dataset): TITLES[clear[one.dataset]]
            if one.dataset in clear
            else "no clear one"
            for one in found
        },
        holds=differ,
        undecided=not differ and open_,
        reason=f"fastest of the three; {where(found)}",
    )


def pts_stack(claim: Claim, rows: Rows) -> Finding:
    """Divergence of PTS on Stack."""
    found = _fig4(rows, "stack")
    if not found:
        return missing(NONE4)
    one = found["stack"]
    value = one.number("divergence", PTS)
    return finding(
        [one.row],
        evidence=strength([one.row]),
        measured=value,
        target=float(claim.value),
        # Evenness has no sides: near 1 is the statement.
        direction=value < FAR,
        reason=f"own work of ranks, waiting left out; {where([one])}",
    )


def balance_order(claim: Claim, rows: Rows) -> Finding:
    """PTS less even than on Stack elsewhere, and more even than PSS and PSS-TS."""
    found = _fig4(rows, *TWINS)
    if not found:
        return missing(NONE4)
    spread = {
        n: {b: one.number("divergence", b) for b in BASELINE_NAMES} for n, one in found.items()
    }
    elsewhere = all(spread[n][PTS] > spread["stack"][PTS] for n in spread if n != "stack")
    others = all(s[b] > s[PTS] for s in spread.values() for b in (PSS, PSS_TS))
    used = list(found.values())
    return finding(
        rows_of(used),
        evidence=strength(rows_of(used)),
        measured={
            dataset_title(n): ", ".join(f"{TITLES[b]} {v:.2f}" for b, v in s.items())
            for n, s in spread.items()
        },
        holds=elsewhere and others,
        reason=f"Tmax/Tmin of own work; {where(used)}",
    )


# Figure 5(c).


def part_order(claim: Claim, rows: Rows) -> Finding:
    """On Movie, PSS and PSS-TS faster than PTS on quarters 1 and 2, slower on 3 and 4."""
    parts = fig5c.by_graph(rows).get("movie")
    if not parts:
        return missing(
            "no quarters of Movie were trained; nox -s reproduce -- dgc --preset full does"
        )
    sides = []
    for quarter in parts:
        lead = [quarter.race.gain(PTS, b).side for b in (PSS, PSS_TS)]
        sides += lead if quarter.number <= 2 else [-side for side in lead]
    used = [quarter.race for quarter in parts]
    return finding(
        rows_of(used),
        evidence=strength(rows_of(used)),
        measured={f"quarter {q.number}": in_order(q.race) for q in parts},
        holds=min(sides) > 0,
        undecided=min(sides) == 0,
        reason="epoch times in order",
    )


@any_graph
def trends(claim: Claim, rows: Rows) -> Finding:
    """Over the quarters of a graph, bytes of PSS and PSS-TS rise with vertex-steps and epochs of
    PTS with edges: rank correlations above 0, on every real graph."""
    found = {name: parts for name, parts in fig5c.by_graph(rows).items() if not parts[0].race.twin}
    if not found:
        return missing(NONE5 + " on a real graph")
    said, fine = {}, []
    for name, parts in found.items():
        sizes = [q.race.number("vertex_steps") for q in parts]
        edges = [q.race.number("edges") for q in parts]
        ranks = {
            TITLES[b]: _rank_correlation(sizes, [q.race.number("exchanged", b) for q in parts])
            for b in (PSS, PSS_TS)
        }
        ranks["PTS"] = _rank_correlation(edges, [q.race.epoch(PTS) for q in parts])
        fine += [value > 0 for value in ranks.values()]
        said[dataset_title(name)] = ", ".join(f"{k} {v:+.1f}" for k, v in ranks.items())
    used = [q.race for parts in found.values() for q in parts]
    return finding(
        rows_of(used),
        evidence="analogue",
        measured=said,
        holds=all(fine),
        reason="rank correlation over four quarters: bytes of PSS and PSS-TS with vertex-steps, "
        "seconds of PTS with edges",
    )


def _rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Kendall's tau: pairs in one order less pairs in opposite order, over all pairs."""
    pairs = [(i, j) for i in range(len(a)) for j in range(i)]
    signs = [(a[i] - a[j]) * (b[i] - b[j]) for i, j in pairs]
    return sum((s > 0) - (s < 0) for s in signs) / max(1, len(pairs))


CHECKS: Final[dict[str, Check]] = {
    "dgc-fig4a-pts-best-three": pts_best,
    "dgc-fig4a-epinion-pss-comm": epinion_pss,
    "dgc-fig4a-movie-pts-comm": movie_pts,
    "dgc-fig4a-psst-reassign": reassignment,
    "dgc-fig4-no-single-winner": no_single_winner,
    "dgc-fig4b-pts-stack-balance": pts_stack,
    "dgc-fig4b-balance-order": balance_order,
    "dgc-fig5c-part-order": part_order,
    "dgc-fig5c-trends": trends,
}
