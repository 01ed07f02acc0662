"""Claims on rounds of continuous training (section 6.1, Figures 8 and 9).

Twins at a fraction of their size have rounds at the same fraction, so seconds are brought to full
size by it before they stand beside the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import finding, from_ratio, missing, on_gpu
from dgbench.lab.judging import current_floor
from dgbench.lab.printed import ledger
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import Claim, Finding
from dgbench.systems.gnnflow.experiments import fig8, fig9, update
from dgbench.systems.gnnflow.experiments.round_race import (
    FORMER_WORDS,
    PUBLISHED,
    TGL,
    former,
    setting_of,
)
from dgbench.systems.gnnflow.experiments.settings import (
    DATASET_OF,
    LEDGER,
    MODEL_TITLES,
    NEEDS_CUDA,
)

Rows = Sequence[Any]
NO_RACE = "no round was raced on {} in this run: the experiment 'fig8' did not run there"
NO_UPDATE = "no update was timed on {} in this run: the experiment 'update' did not run there"
UNNAMED_MODEL = "which model reaches the printed factor is not said"
MAIN_SHARE = 0.5
"""Share of a round above which something is what mainly takes its time."""
GROWTH = "growth in proportion to edges"
"""Model by which seconds of a part of a graph are brought to full size."""
ROUNDING = 0.05
"""Two printed digits leave so much room."""


def of_graph(rows: Rows, title: str) -> list[Any]:
    """Rows of a graph of the paper, by the ledger's name."""
    return [row for row in rows if row.params.get("dataset") == DATASET_OF[title]]


def _by_model(rows: Rows, phase: str | None = None) -> dict[str, Ratio]:
    """The speed-up over TGL by model's title, of a phase or of all."""
    models = dict.fromkeys(row.params["model"] for row in rows)
    return {
        MODEL_TITLES[m]: fig8.speedup([r for r in rows if r.params["model"] == m], phase=phase)
        for m in models
    }


def _form(rows: Rows) -> str:
    """End of a reason: what races without the published form were run with."""
    return f"; this is {FORMER_WORDS}" if former(rows) else ""


def _told(gains: dict[str, Ratio]) -> str:
    return ", ".join(f"{model} {gain.value:.2f}x" for model, gain in gains.items())


def _factors(rows: Rows, phase: str | None, claim: Claim, kind: str) -> Finding:
    """The range of gains over the models of one graph."""
    gains = _by_model(rows, phase)
    sides = {model: gain.side for model, gain in gains.items()}
    open_ones = [model for model, side in sides.items() if side == 0]
    values = [gain.value for gain in gains.values()]
    lacking = [model for model in claim.workload["model"] if model not in gains]
    reason = f"{kind}: {_told(gains)}"
    if open_ones:
        reason += f"; inside the noise: {', '.join(open_ones)}"
    if lacking:
        reason += f"; not raced: {', '.join(lacking)}"
    reason += _form(rows)
    behind = any(side < 0 for side in sides.values())
    return finding(
        rows,
        measured={"low": round(min(values), 2), "high": round(max(values), 2)},
        direction=not behind and not open_ones,
        undecided=bool(open_ones or lacking) and not behind,
        processes=min(gain.processes for gain in gains.values()),
        reason=reason,
    )


def round_gain(claim: Claim, rows: Rows) -> Finding:
    """GNNFlow over TGL, a whole round, over the models of the claim's graph."""
    (title,) = claim.workload["datasets"]
    found = of_graph(fig8.races(rows), title)
    if not found:
        return missing(NO_RACE.format(title))
    rest = _by_model(found, "without network")
    result = _factors(found, None, claim, "whole rounds")
    result.reason += f"; without the network, which both share: {_told(rest)}"
    return result


def _largest(gains: dict[str, Ratio], claim: Claim, reason: str) -> Finding:
    """A printed maximum whose model is not named: each model that ran is a reading."""
    return Finding(
        reason=reason,
        readings={
            model: from_ratio(gain, target=float(claim.value)) for model, gain in gains.items()
        },
    )


def most_gain(claim: Claim, rows: Rows) -> Finding:
    """The gain of a round on GDELT, of each model."""
    found = of_graph(fig8.races(rows), "GDELT")
    if not found:
        return missing(NO_RACE.format("GDELT"))
    return _largest(_by_model(found), claim, f"{UNNAMED_MODEL}{_form(found)}")


# What updates and rebuilds cost.


def full_size(row: Any, metric: str, **dims: Any) -> float:
    """A number of an update, a rebuild or a round for as many edges as the paper's graph has.

    Both are linear in edges: an update in those of the round, a rebuild in those of the graph.
    """
    return number(row, metric, **dims) / float(row.data.get("scale") or 1.0)


def _times(claim: Claim, rows: Rows, setting: str, dearer: str) -> Finding:
    found = {title: of_graph(update.update_rows(rows), title) for title in claim.value}
    lacking = [title for title, mine in found.items() if not mine]
    if lacking:
        return missing(NO_UPDATE.format(" and ".join(lacking)))
    which = {"setting": setting, "of": None, "turn": None}
    seconds = {
        t: sum(full_size(row, "operation_time", **which) for row in mine) / len(mine)
        for t, mine in found.items()
    }
    used = [row for mine in found.values() for row in mine]
    whole = all(row.data.get("scale", 1.0) == 1.0 for row in used)
    gains = {title: update.gain(mine).value for title, mine in found.items()}
    cheaper = next(title for title in seconds if title != dearer)
    apart = seconds[dearer] / seconds[cheaper]
    band = 1 + current_floor()
    return finding(
        used,
        model="" if whole else GROWTH,
        measured={title: float(f"{x:.3g}") for title, x in seconds.items()},
        direction=apart > 1,
        undecided=1 / band <= apart <= band,
        reason=(
            f"seconds {'at' if whole else 'scaled to'} full size on this machine, "
            f"{number(used[0], 'threads')} threads of which the update uses one; the direction "
            "is which graph costs more; rebuild over update "
            + ", ".join(f"{title} {gain:.0f}x" for title, gain in gains.items())
        ),
    )


def rebuild_time(claim: Claim, rows: Rows) -> Finding:
    """Seconds of a rebuild at full size; the direction is which graph takes longer."""
    return _times(claim, rows, "rebuild", "GDELT")


def update_time(claim: Claim, rows: Rows) -> Finding:
    """Seconds of an update at full size; the direction is which graph takes longer."""
    return _times(claim, rows, "update", "Netflix")


def insert_size(claim: Claim, rows: Rows) -> Finding:
    """Edges of a round, from the time stamps."""
    found = {title: of_graph(update.update_rows(rows), title) for title in claim.value}
    lacking = [title for title, mine in found.items() if not mine]
    if lacking:
        return missing(NO_UPDATE.format(" and ".join(lacking)))
    sizes = {t: full_size(mine[0], "estimate", of="events") for t, mine in found.items()}
    printed = {title: 1000 * float(words.rstrip("K")) for title, words in claim.value.items()}
    return finding(
        [row for mine in found.values() for row in mine],
        measured={title: f"{size / 1000:.0f}K" for title, size in sizes.items()},
        holds=all(abs(size / printed[title] - 1) <= ROUNDING for title, size in sizes.items()),
        reason="events of the last 70 % over their days, at full size",
    )


def _shares(
    rows: Rows, titles: Sequence[str]
) -> tuple[dict[str, dict[str, float]], list[Any], list[str]]:
    """Mean share of TGL's rebuild in a round in percent, by graph and model; the rows, and graphs
    that lack."""
    found = {title: of_graph(fig8.races(rows), title) for title in titles}
    shares: dict[str, dict[str, float]] = {}
    for title, mine in found.items():
        by = Table.of(mine).where("time_share", setting=TGL).by("model")
        if by:
            shares[title] = {m: 100 * sum(t.values) / len(t) for m, t in by.items()}
    used = [row for mine in found.values() for row in mine]
    return shares, used, [title for title, mine in found.items() if not mine]


def rebuild_share(claim: Claim, rows: Rows) -> Finding:
    """Share of a round that TGL rebuilds in; the direction is which graph has the larger one.

    Compared are models that were raced on both graphs.
    """
    shares, used, lacking = _shares(rows, list(claim.value))
    if lacking:
        return missing(NO_RACE.format(" and ".join(lacking)))
    both = [m for m in shares["GDELT"] if m in shares["Netflix"]]
    if not both:
        return missing("no model was raced on both GDELT and Netflix in this run")
    most = {title: max(by[m] for m in both) for title, by in shares.items()}
    return finding(
        [row for row in used if row.params["model"] in both],
        measured={title: round(share, 1) for title, share in most.items()},
        holds=all(abs(most[title] / claim.value[title] - 1) <= 0.25 for title in most),
        direction=all(shares["Netflix"][m] > shares["GDELT"][m] for m in both),
        reason=f"largest of {', '.join(MODEL_TITLES[m] for m in both)}, means over days; the "
        "direction is which graph has more",
    )


def rebuild_dominates(claim: Claim, rows: Rows) -> Finding:
    """Check that TGL rebuilds for more than half of a round, on every workload."""
    shares, used, lacking = _shares(rows, claim.workload["datasets"])
    if lacking:
        return missing(NO_RACE.format(" and ".join(lacking)))
    return finding(
        used,
        measured={
            f"{MODEL_TITLES[model]} on {title}": f"{share:.1f} %"
            for title, by in shares.items()
            for model, share in by.items()
        },
        holds=min(min(by.values()) for by in shares.values()) > 100 * MAIN_SHARE,
        reason=(
            f"read as more than {MAIN_SHARE:.0%} of a round; the paper itself prints at most "
            f"{ledger(LEDGER)['s61-tgl-rebuild-share']['GDELT']} % for GDELT"
        ),
    )


def half_minute(claim: Claim, rows: Rows) -> Finding:
    """Seconds of a round at full size, the slowest of GNNFlow and the quickest of TGL."""
    found = [
        row for title in claim.workload["datasets"] for row in of_graph(fig8.races(rows), title)
    ]
    if not found:
        return missing(NO_RACE.format("GDELT and Netflix"))
    ours, theirs = (
        [full_size(row, "round_time", setting=setting_of(name, [row])) for row in found]
        for name in (PUBLISHED, TGL)
    )
    real_time = on_gpu(found)
    whole = all(row.data.get("scale", 1.0) == 1.0 for row in found)
    return finding(
        found,
        model="" if whole or not real_time else GROWTH,
        measured={"GNNFlow": f"{max(ours):.3g} s", "TGL": f"{min(theirs):.3g} s"},
        holds=(max(ours) <= 30 and min(theirs) >= 120) if real_time else None,
        reason=(
            "GNNFlow's slowest and TGL's quickest round, brought to full size"
            + ("" if real_time else f"; seconds of eight GPUs cannot be had on a CPU: {NEEDS_CUDA}")
            + _form(found)
        ),
    )


# Sampling and fetching.


def sampling(claim: Claim, rows: Rows) -> Finding:
    """Sampling over TGL's, on the same cores."""
    found = of_graph(rows_of(rows, experiment=fig9.NAME), "GDELT")
    if not found:
        return missing("the experiment 'fig9' did not run on GDELT")
    return _factors(found, "sampling", claim, "on the same device")


def fetching(claim: Claim, rows: Rows) -> Finding:
    """The gain of fetching through the caches, of each model."""
    found = of_graph(rows_of(rows, experiment=fig9.NAME), "GDELT")
    if not found:
        return missing("the experiment 'fig9' did not run on GDELT")
    return _largest(_by_model(found, "fetching"), claim, f"{UNNAMED_MODEL}{_form(found)}")
