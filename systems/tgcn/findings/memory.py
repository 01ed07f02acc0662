"""Findings on device memory: section 6.2, Table 3, section 6.6, and what fits into a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import Judge, last, readings, rows_with, says
from dgbench.systems.tgcn.common import last_rows
from dgbench.systems.tgcn.experiments import fig6, large, table3
from dgbench.systems.tgcn.findings.common import DID_NOT_RUN, Fields, Rows
from dgbench.systems.tgcn.findings.training import all_raced
from dgbench.systems.tgcn.printed import PRINTED_TITLE
from dgbench.systems.tgcn.races import (
    ADDED_STREAMED,
    DYGNN,
    FORMER_WORDS,
    JODIE,
    TGCN,
    TITLES,
)
from dgbench.systems.tgcn.settings import GPU_BYTES, PAPERS_GRAPHS, SMALL_NAMES, graph_title

NO_PADDING: Final = "needs padded steps of both baselines on the three small graphs"
PADDED = rows_with(fig6.NAME, NO_PADDING, PAPERS_GRAPHS.of, what="padding")


def on_all_systems(rows: list[Any]) -> list[Any]:
    """Rows on graphs of the paper that all three systems ran on."""
    return [row for of in table3.by_graph(PAPERS_GRAPHS.of(rows)).values() for row in of.values()]


MEMORY = rows_with(table3.NAME, "needs rows of table3 of all three systems", on_all_systems)
PLANNED_BYTES: Final = "formula of bytes at printed sizes"
FACTOR: Final = 0.25
"""Relative distance up to which memory is the printed one."""
NEEDS_WHOLE: Final = (
    "needs graphs of the printed size on a CUDA device: nox -s reproduce -- tgcn --device cuda "
    "--preset paper"
)
PLANNED = rows_with(
    large.NAME, DID_NOT_RUN.format(large.NAME), last, kind=large.PLAN, dataset="twitter"
)


def gpu_memory(system: str) -> Check:
    """MB of device memory by graph, as either source says, on graphs of the printed size."""

    def whole(rows: list[Any]) -> list[Any]:
        found = [row for row in PAPERS_GRAPHS.of(rows) if row.data.get("scale", 1) >= 1]
        return found if all_raced(found) else []

    def by(method: str) -> Check:
        def judge(claim: Claim, rows: Rows) -> Fields:
            held = {
                PRINTED_TITLE[row.params["dataset"]]: number(row, "memory", method=method)
                / table3.MB
                for row in rows
            }
            near = [
                abs(held[name] / printed - 1) <= FACTOR for name, printed in claim.value.items()
            ]
            return {"measured": held, "holds": all(near), "reason": f"{sum(near)} graphs agree"}

        found = rows_with(table3.NAME, NEEDS_WHOLE, whole, system=system, device="cuda")
        return says(found, judge)

    return readings(**{"the allocator's peak": by("held"), "what the driver lacks": by("driver")})


STATES: Final = {"state on the device": TGCN, "state streamed": table3.STREAMED}
"""Readings of where T-GCN's state lies; the baselines' lies on the device."""


def savings(rows: Rows, form: str) -> tuple[dict[str, float], list[Any]]:
    """Memory of each baseline over that of a form of T-GCN on each graph, and the rows of it."""
    ratios, used = {}, []
    for name, of in table3.by_graph(rows).items():
        if form in of:
            for base in (DYGNN, JODIE):
                ratios[f"{TITLES[base]} on {graph_title(name)}"] = table3.memory(
                    of[base]
                ) / table3.memory(of[form])
            used += [of[one] for one in (DYGNN, JODIE, form)]
    return ratios, used


def _former(used: Rows) -> str:
    """Words where rows of streamed state are from before T-GCN's published form."""
    former = any(row.params["system"] == ADDED_STREAMED for row in used)
    return f"; {FORMER_WORDS}" if former else ""


def saving(fields: Callable[[Claim, dict[str, float]], Fields]) -> Check:
    """A check of savings of device memory with one reading for each place of the state."""

    def by(form: str) -> Judge:
        def judge(claim: Claim, rows: Rows) -> Fields | None:
            ratios, used = savings(rows, form)
            if not all_raced(used):
                return None
            counted = any(row.device != "cuda" for row in used)
            return {
                "rows": used,
                "model": "sum of counted bytes" if counted else "",
                "reason": ", ".join(f"{key} {ratio:.2f}x" for key, ratio in ratios.items())
                + _former(used),
                **fields(claim, ratios),
            }

        return judge

    return readings(**{words: says(MEMORY, by(form)) for words, form in STATES.items()})


least_memory: Final[Check] = saving(
    lambda claim, ratios: {"measured": min(ratios.values()), "holds": min(ratios.values()) > 1}
)
largest_saving: Final[Check] = saving(
    lambda claim, ratios: {
        "measured": max(ratios.values()),
        "direction": max(ratios.values()) > 1,
        "target": claim.value,
    }
)


def planned_bytes(row: Any) -> dict[str, Any]:
    """Planned bytes on one device by contender."""
    return Table.of([row]).where("memory", of="device", ranks=None).numbers("setting")


def twitter_oom(claim: Claim, rows: Rows) -> Fields:
    """Memory of both baselines on their GPU against its 32 GiB."""
    held = planned_bytes(rows[0])
    state = number(rows[0], "memory", of="state", setting="paper")
    return {
        "measured": {TITLES[one]: f"{held[one] / 1e9:.0f} GB" for one in (DYGNN, JODIE)},
        "holds": min(held[DYGNN], held[JODIE]) > GPU_BYTES,
        "model": PLANNED_BYTES,
        "reason": f"five vectors of every vertex alone take {state / 1e9:.0f} GB of "
        f"{GPU_BYTES / 1e9:.0f}",
    }


def not_separable(claim: Claim, rows: Rows) -> Fields:
    """Check that one GPU cannot hold Twitter's vertices and edges without parts."""
    held = planned_bytes(rows[0])["tgcn"]
    return {
        "measured": f"{held / 1e9:.0f} GB of {GPU_BYTES / 1e9:.0f} GB",
        "holds": held > GPU_BYTES,
        "model": PLANNED_BYTES,
        "reason": f"with edges in the host already; in {number(rows[0], 'parts')} parts that "
        "stream it fits, which is what the one-GPU results on Twitter need, and the cut can be "
        "left out on smaller graphs (experiment 'ablation')",
    }


def padding(claim: Claim, rows: Rows) -> Finding:
    """Check whether padding lets a baseline run out of memory on a small graph of printed size."""
    plans = {row.params["dataset"]: row for row in last_rows(rows, large.NAME, kind=large.PLAN)}

    def judge(claim: Claim, found: Rows) -> Fields | None:
        if not {row.params["dataset"] for row in found} >= set(SMALL_NAMES) <= plans.keys():
            return None
        words, failed = [], []
        for row in found:
            name = row.params["dataset"]
            for base, plain in fig6.NOT_PADDED.items():
                padded, bare = (number(row, "memory", setting=one) for one in (base, plain))
                more, share = padded - bare, number(row, "relative_size", setting=base)
                held = planned_bytes(plans[name])[base]
                failed.append(held <= GPU_BYTES < held + more)
                words.append(
                    f"{TITLES[base]} on {graph_title(name)}: {share:.1f} times the edges, "
                    f"{more / 1e6:.2g} MB more of {held / 1e9:.2g} GB"
                )
        return {
            "rows": [*found, *(plans[row.params["dataset"]] for row in found)],
            "measured": f"padding fills the GPU in {sum(failed)} of {len(failed)} cases",
            "holds": any(failed),
            "model": PLANNED_BYTES,
            "reason": "; ".join(words),
        }

    return says(PADDED, judge)(claim, rows)
