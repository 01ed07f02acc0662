"""Claims on chunk fusion (sections 5.1.1 and 5.1.2, Figure 15).

Loads are counted and results compared wherever this runs. Times of loading on a CPU are copies in
memory; how busy a device is can only a device say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.lab.evidence import finding, missing, some
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import asking, readings
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.dgc.boundary_loads import FUSED, UNFUSED
from dgbench.systems.dgc.experiments.fig15 import (
    LOADED,
    bytes_spared,
    fused_gain,
    loading_rows,
    reduction,
    use_rows,
)
from dgbench.systems.dgc.experiments.fusion_ablation import ablation_rows
from dgbench.systems.dgc.experiments.settings import (
    BY_NAME,
    DATASET_OF,
    MODEL_OF,
    MODEL_TITLES,
    NEEDS_CUDA,
    PAPERS_GRAPHS,
)
from dgbench.systems.dgc.loading import OFF, ON, TEMPORAL

Rows = Sequence[Any]
Said = dict[str, Any]

NEAR = 0.05
"""Change of a chunk's memory up to which it is nearly the same."""
EQUAL = 1e-6
"""Relative deviation up to which float32 results count as equal."""
MEMORY = ("memory", "memory_later")
"""Changes of a chunk's memory, from the first and from the second epoch on."""
NO_ABLATION = "chunk fusion was not tried in this run"


@asking(lambda rows: Table.of(ablation_rows(rows)).where(of=MEMORY), NO_ABLATION)
def memory_stable(claim: Claim, found: Table) -> Said:
    """The largest change of any chunk's memory from the first epoch on."""
    change, later = (max(found.where("deviation", of=of).values) for of in MEMORY)
    chunks, epochs = sum(found.where("chunks").values), min(found.where("epochs").values)
    return {
        "measured": {"largest change of a chunk, %": round(100 * change, 2)},
        "holds": change <= NEAR,
        "reason": f"{some(int(chunks), 'chunk')} in {some(int(epochs), 'epoch')}, what autograd "
        f"keeps of each; from the second epoch on {100 * later:.2g} %",
    }


def mask_correct(claim: Claim, rows: Rows) -> Finding:
    """Packed rows against rows padded by chunk, outputs and gradients of all three models."""
    found = ablation_rows(rows)
    gaps = Table.of(found).where("deviation", setting=TEMPORAL).by("model")
    apart = {model: max(of.values) for model, of in gaps.items()}
    lacking = [name for name in claim.workload["model"] if MODEL_OF[name] not in apart]
    if lacking:
        return missing(f"not compared in this run: {', '.join(lacking)}")
    return finding(
        found,
        measured={MODEL_TITLES[model]: float(f"{gap:.1g}") for model, gap in apart.items()},
        holds=max(apart.values()) <= EQUAL,
        reason=f"relative deviation forward and backward, at most {EQUAL:g} counts as equal",
    )


@asking(
    lambda rows: [row for row in ablation_rows(rows) if number(row, "boundary_rows", None)],
    NO_ABLATION,
)
def redundant_load(claim: Claim, found: Rows) -> Said:
    """Loads of a row that another chunk of its worker hears, before and after fusion."""
    table = Table.of(found)
    edge = sum(table.where("boundary_rows").values)
    loads = table.where("rows_loaded").by("of")
    before, after = (sum(loads["boundary"].where(format=f).values) for f in (UNFUSED, FUSED))
    least, most = min(loads["least"].values), max(loads["most"].values)
    return {
        "measured": {"unfused": round(before / edge, 2), "fused": round(after / edge, 2)},
        "holds": least == most == 2 and after == edge,
        # At least twice: one of the others is enough for that, several load it more often.
        "direction": least == 2 and after == edge,
        "reason": f"mean loads of {some(int(edge), 'row')} that another chunk of the worker hears: "
        f"twice where one other does, up to {most} times where several do; memory without a limit",
    }


def loading(claim: Claim, rows: Rows) -> Finding:
    """Less time of loading on each of the paper's graphs, percent."""
    found = PAPERS_GRAPHS.of(loading_rows(rows))
    if not found:
        return missing("no loading was timed in this run")
    by_title = {BY_NAME[row.params["dataset"]].title: fused_gain(row, rows) for row in found}
    sides = {title: gain.side for title, gain in by_title.items()}
    bytes_less = [bytes_spared(row) for row in found]
    used = {name for gain in by_title.values() for name in gain.rows}
    open_ones = [title for title, side in sides.items() if side == 0]
    return finding(
        [row for row in rows if row.id in used],
        measured={title: round(reduction(gain.value), 1) for title, gain in by_title.items()},
        direction=all(side > 0 for side in sides.values()),
        undecided=bool(open_ones) and all(side >= 0 for side in sides.values()),
        reason=(
            f"bytes {100 * min(bytes_less):.0f} to {100 * max(bytes_less):.0f} % less"
            + (f"; inside the noise: {', '.join(open_ones)}" if open_ones else "")
        ),
    )


def stack_highest(claim: Claim, rows: Rows) -> Finding:
    """Whose loading costs most without fusion, and who gains least by it."""
    found = {
        BY_NAME[row.params["dataset"]].title: row for row in PAPERS_GRAPHS.of(loading_rows(rows))
    }
    if set(found) != set(DATASET_OF):
        return missing("loading was not timed on all four graphs in this run")
    cost = {title: _full_size(row) for title, row in found.items()}
    gain = {title: fused_gain(row, rows) for title, row in found.items()}
    highest = max(cost, key=cost.__getitem__)
    lowest = min(gain, key=lambda title: gain[title].value)
    rivals = [gain[title].against(gain["Movie"]) for title in gain if title != "Movie"]
    open_end = lowest == "Movie" and not all(side > 0 for side in rivals)
    open_end |= lowest != "Movie" and not any(side < 0 for side in rivals)
    used = {name for ratio in gain.values() for name in ratio.rows}
    return finding(
        [row for row in rows if row.id in used],
        proxy="bytes of a small twin, scaled to the printed vertices, for the cost",
        measured={"loading cost highest": highest, "gain lowest": lowest},
        holds=highest == "Stack" and lowest == "Movie",
        undecided=open_end and highest == "Stack",
        reason=(
            "cost in bytes for as many vertices as the paper prints, since time in small twins is "
            "that of the calls; gain in time"
        ),
    )


def _full_size(row: Any) -> float:
    """Bytes of loading without fusion, for as many vertex-steps as the paper's graph has."""
    printed = BY_NAME[row.params["dataset"]].printed["vertices"]
    return number(row, LOADED, setting=OFF) * printed / number(row, "vertex_steps")


def _use(of: str) -> Check:
    """Check the device's utilisation with fusion against that without, by one reading."""

    @asking(use_rows, NEEDS_CUDA)
    def check(claim: Claim, found: Rows) -> Said:
        tables = (Table.of([row]).where("utilisation") for row in found)
        used = [table.numbers("setting", "of") for table in tables]
        more, held = (
            [100 * (by[ON, kind] - by[OFF, kind]) for by in used] for kind in (None, "memory")
        )
        ends = (
            (min(more), max(more))
            if of == "by"
            else (
                100 * min(by[OFF, None] for by in used),
                100 * max(by[ON, None] for by in used),
            )
        )
        low, high = (float(claim.value[end]) for end in ("low", "high"))
        return {
            "measured": {"low": round(ends[0], 1), "high": round(ends[1], 1)},
            "holds": ends[0] >= low and ends[1] <= high
            if of == "by"
            else abs(ends[0] - low) <= 5 and abs(ends[1] - high) <= 5,
            "direction": min(more) > 0,
            "reason": "share of time in which the device works; memory in use "
            f"{min(held):+.2g} to {max(held):+.2g} points",
        }

    return check


utilisation: Final = readings(
    "the text can mean either",
    **{"by 20 to 95 points": _use("by"), "from 20 to 95 %": _use("from")},
)
