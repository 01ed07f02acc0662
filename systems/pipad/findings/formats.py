"""Findings on sizes, formats and change between snapshots (sections 3.1-5.4, Table 1)."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from dgbench.lab.evidence import missing
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.pipad.experiments.settings import BY_NAME
from dgbench.systems.pipad.experiments.space import is_between, partition_shares, words
from dgbench.systems.pipad.experiments.table1 import agrees, size
from dgbench.systems.pipad.findings.common import Rows, resting

JUDGED = ("N", "E", "T")
"""Columns of Table 1 that a graph decides: D is a setting of ours, and the edge-life was chosen so
that E_smoothed comes out."""


def printed_sizes(dataset: str) -> Check:
    """Every printed number that one graph decides, at its printed digits.

    A zero behind the digits of a whole number may be a digit or stand for a rounded one; where that
    matters, both are judged.
    """

    def check(claim: Claim, rows: Rows) -> Finding:
        found = rows_of(rows, experiment="table1", dataset=dataset)
        if not found:
            return missing("the graph was not opened in this run")
        row = found[-1]
        rounded = {key: same for key, same in agrees(row).items() if key in JUDGED}
        exact = {
            key: size(row, key) == int(printed) if str(printed).isdigit() else rounded[key]
            for key in rounded
            for printed in [claim.value["as_printed"]["S" if key == "T" else key]]
        }
        if exact == rounded:
            return _sizes(claim, row, rounded)
        return Finding(
            readings={
                "zeros may be rounded": _sizes(claim, row, rounded),
                "every digit counts": _sizes(claim, row, exact),
            },
            reason="the paper does not tell a rounded zero",
        )

    return check


def _sizes(claim: Claim, row: Any, same: Mapping[str, bool]) -> Finding:
    """The printed numbers of a graph against those of a row."""
    differ = [key for key, value in same.items() if not value]
    reason = f"differs in {', '.join(differ)}" if differ else "equal at the printed digits"
    links = Table.of([row]).where("edges", of="snapshot").get()
    if differ and links is not None:
        printed = claim.value["expanded"]["E"]
        reason += f"; {links} distinct links, of which {printed} is {printed / links:g} times"
    measured = {key: size(row, key) for key in same}
    fitted = f"; E_smoothed, {size(row, 'E_smoothed')} here, is what the edge-life was fitted to"
    return resting([row], holds=not differ, measured=measured, reason=reason + fitted)


def feature_dims(claim: Claim, rows: Rows) -> Finding:
    """Feature lengths of every opened graph."""
    found = rows_of(rows, experiment="table1")
    if not found:
        return missing("no graph was opened in this run")
    measured: dict[str, set[tuple[int, int]]] = {}
    for row in found:
        kind = "small" if BY_NAME[row.params["dataset"]].small else "large"
        lengths = Table.of([row]).where("length").numbers("of")
        measured.setdefault(kind, set()).add((lengths["input"], lengths["hidden"]))
    wanted = {
        kind: {(claim.value[kind]["input"], claim.value[kind]["hidden"])} for kind in measured
    }
    shown = {k: " and ".join(f"{d} -> {h}" for d, h in sorted(v)) for k, v in measured.items()}
    return resting(found, holds=measured == wanted, measured=shown)


NO_SPACE = "the experiment 'space' did not run"


def formula(name: str) -> Check:
    """A printed formula against the lengths of the arrays that are really stored."""

    def check(claim: Claim, rows: Rows) -> Finding:
        table = Table.of(rows, experiment="space")
        if not table:
            return missing(NO_SPACE)
        wrong = sum(table.where("mismatches", format=name).values)
        snapshots = sum(table.where("snapshots").values)
        return resting(
            table.rows,
            holds=wrong == 0,
            measured=claim.value if wrong == 0 else f"{wrong} of {snapshots} snapshots differ",
            reason=f"arrays of {snapshots} snapshots on {len(table.rows)} graphs",
        )

    return check


def slice_cap(claim: Claim, rows: Rows) -> Finding:
    """The longest slice met; the cap is an upper bound."""
    found = Table.of(rows, experiment="space").where("length", of="slice")
    if not found:
        return missing(NO_SPACE)
    longest = max(found.values)
    reason = "longest slice met; the cap is an upper bound"
    return resting(found.rows, holds=longest <= claim.value, measured=longest, reason=reason)


def between(claim: Claim, rows: Rows) -> Finding:
    """ "Normally": on more than half of the graphs."""
    found = rows_of(rows, experiment="space")
    if not found:
        return missing(NO_SPACE)
    inside = [row.params["dataset"] for row in found if is_between(row)]
    outside = sorted({row.params["dataset"] for row in found} - set(inside))
    return resting(
        found,
        holds=2 * len(inside) > len(found),
        measured=f"{len(inside)} of {len(found)} graphs",
        reason=f"not on {', '.join(outside)}" if outside else "",
    )


def youtube_space(claim: Claim, rows: Rows) -> Finding:
    """Words of sliced CSR over those of CSR on Youtube."""
    found = rows_of(rows, experiment="space", dataset="youtube")[-1:]
    if not found:
        return missing(NO_SPACE)
    count = words(found[0])
    share = count["sliced", None] / max(1, count["csr", None])
    measured = f"sliced CSR takes {100 * share:.3g} % of CSR's words"
    return resting(found, holds=share < 1, measured=measured)


def overlap_transfer(claim: Claim, rows: Rows) -> Finding:
    """Fewer words on every graph, for each partition size that the paper names."""
    found = rows_of(rows, experiment="space")
    if not found:
        return missing(NO_SPACE)
    shares = {
        f"{row.params['dataset']} at {size}": share
        for row in found
        for size, share in partition_shares(row).items()
    }
    bad = [place for place, share in shares.items() if share >= 1]
    low, high = min(shares.values()), max(shares.values())
    return resting(
        found,
        holds=not bad,
        measured=f"{100 * low:.3g} to {100 * high:.3g} % of whole snapshots",
        reason=f"more words on {', '.join(bad)}" if bad else f"{len(shares)} graphs and sizes",
    )


def slow_change(claim: Claim, rows: Rows) -> Finding:
    """Mean change of smoothed neighbours over the graphs, percent."""
    change = Table.of(rows, experiment="space").where("topology_change").by("of")
    if not change:
        return missing(NO_SPACE)
    smoothed, raw = (100 * fmean(change[of].values) for of in ("smoothed", "raw"))
    return resting(
        change["smoothed"].rows,
        measured=smoothed,
        target=float(claim.value),
        reason=f"raw snapshots change by {raw:.0f} %",
    )
