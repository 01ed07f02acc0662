"""Claims on end-to-end training time (5.2, Figure 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.compare import Ratio, paired
from dgbench.systems.base import Claim, Finding
from dgbench.systems.pipad.checks.common import from_ratio, missing_finding, strength
from dgbench.systems.pipad.experiments.fig10 import METHODS, deviation, ratio_of
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODELS

NONE = "no end-to-end race of this run covers it"
MODEL_OF = {
    "pipad-fig10-avg-evolvegcn": "evolvegcn",
    "pipad-fig10-avg-mpnn-lstm": "mpnn_lstm",
    "pipad-fig10-avg-t-gcn": "tgcn_model",
}


def _timed(rows: Sequence[Any]) -> list[Any]:
    return [
        r
        for r in rows
        if r.experiment == "fig10" and not r.params.get("check") and "control" not in r.params
    ]


def _workloads(rows: Sequence[Any]) -> list[dict[str, str]]:
    keys = dict.fromkeys((r.params["dataset"], r.params["model"]) for r in _timed(rows))
    return [{"dataset": dataset, "model": model} for dataset, model in keys]


def _ratios(rows: Sequence[Any], slow: str, fast: str, **only: Any) -> dict[tuple[str, str], Ratio]:
    """Ratio by (dataset, model) over the workloads that `only` selects."""
    found = {}
    for where in _workloads(rows):
        if "model" in only and where["model"] != only["model"]:
            continue
        if "small" in only and BY_NAME[where["dataset"]].small != only["small"]:
            continue
        ratio = ratio_of(rows, slow, fast, where)
        if ratio is not None:
            found[where["dataset"], where["model"]] = ratio
    return found


def _pooled(rows: Sequence[Any], slow: str, fast: str, **only: Any) -> Ratio | None:
    """Geometric mean over workloads, with the interval of the noise inside them."""
    keys = set(_ratios(rows, slow, fast, **only))
    mine = [r for r in _timed(rows) if (r.params["dataset"], r.params["model"]) in keys]
    return paired(mine, {"system": slow}, {"system": fast}, value="end_to_end_s") if keys else None


def _label(key: tuple[str, str]) -> str:
    return f"{BY_NAME[key[0]].title}, {key[1]}"


def _finding(rows: Sequence[Any], used: Sequence[Ratio], **fields: Any) -> Finding:
    ids = list(dict.fromkeys(i for ratio in used for i in ratio.rows))
    mine = [row for row in rows if row.id in set(ids)]
    return Finding(
        evidence=strength(mine),
        twin=any(ratio.twin for ratio in used),
        rows=ids,
        deviation=deviation(rows, system="pipad"),
        **fields,
    )


def average(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Average speed-up over PyGT of one model."""
    model = MODEL_OF[claim.id]
    ratio = _pooled(rows, "pygt", "pipad", model=model)
    count = len(_ratios(rows, "pygt", "pipad", model=model))
    return from_ratio(
        ratio,
        rows,
        target=claim.value["mean"],
        deviation=deviation(rows, system="pipad", model=model),
        missing=NONE,
        reason=f"geometric mean of {count} graphs",
    )


def speedup_range(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Lowest and highest speed-up over PyGT."""
    found = _ratios(rows, "pygt", "pipad")
    return _range(rows, found, found)


def abstract_range(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Low end against PyGT-G, high end against PyGT, as the paper mixes them."""
    return _range(rows, _ratios(rows, "pygt-g", "pipad"), _ratios(rows, "pygt", "pipad"))


def _range(
    rows: Sequence[Any],
    lows: dict[tuple[str, str], Ratio],
    highs: dict[tuple[str, str], Ratio],
) -> Finding:
    if not lows or not highs:
        return missing_finding(NONE)
    low = min(lows, key=lambda key: lows[key].value)
    high = max(highs, key=lambda key: highs[key].value)
    sides = [ratio.side for ratio in lows.values()]
    return _finding(
        rows,
        [*lows.values(), *highs.values()],
        measured={"low": lows[low].value, "high": highs[high].value},
        direction=min(sides) > 0,
        undecided=min(sides) == 0,
        reason=f"lowest on {_label(low)}, highest on {_label(high)}",
    )


def best(claim: Claim, rows: Sequence[Any]) -> Finding:
    """PiPAD faster than each other method on every workload."""
    found = {m: _ratios(rows, m, "pipad") for m in METHODS if m != "pipad"}
    used = [ratio for by_key in found.values() for ratio in by_key.values()]
    if not used:
        return missing_finding(NONE)
    sides: dict[tuple[str, str], int] = {}
    for by_key in found.values():
        for key, ratio in by_key.items():
            sides[key] = min(sides.get(key, 1), ratio.side)
    lost = sorted(_label(key) for key, side in sides.items() if side < 0)
    level = sorted(_label(key) for key, side in sides.items() if side == 0)
    won = sum(side > 0 for side in sides.values())
    remarks = [f"not on {'; '.join(lost)}"] if lost else []
    remarks += [f"inside the noise on {'; '.join(level)}"] if level else []
    return _finding(
        rows,
        used,
        measured=f"{won} of {len(_workloads(rows))} workloads",
        holds=not lost,
        undecided=bool(level) and not lost,
        reason=", ".join(remarks),
    )


def pygtg_second(claim: Claim, rows: Sequence[Any]) -> Finding:
    """PyGT-G ahead of PyGT, PyGT-A and PyGT-R on more than half of the workloads."""
    against = {m: _ratios(rows, m, "pygt-g") for m in ("pygt", "pygt-a", "pygt-r")}
    against = {m: found for m, found in against.items() if found}  # PyGT-A needs a link
    if not against:
        return missing_finding(NONE)
    keys = set.intersection(*(set(by) for by in against.values()))
    if not keys:
        return missing_finding(NONE)
    # PyGT-G and PyGT-R are close, so only differences outside their intervals may decide.
    ahead = [k for k in keys if all(by[k].side > 0 for by in against.values())]
    behind = [k for k in keys if any(by[k].side < 0 for by in against.values())]
    return _finding(
        rows,
        [r for by in against.values() for r in by.values()],
        measured=f"ahead on {len(ahead)}, behind on {len(behind)} of {len(keys)} workloads",
        holds=2 * len(ahead) > len(keys),
        undecided=2 * len(ahead) <= len(keys) and 2 * len(behind) < len(keys),
    )


def small_gain_more(claim: Claim, rows: Sequence[Any]) -> Finding:
    """PiPAD's half everywhere, PyGT-A's half only where there is a link to hide."""
    small = _pooled(rows, "pygt", "pipad", small=True)
    large = _pooled(rows, "pygt", "pipad", small=False)
    if small is None or large is None:
        return missing_finding("a small and a large graph are needed; " + NONE)
    order = small.against(large)
    reason = "PyGT-A hides copies over a link, which a CPU does not have"
    used = [small, large]
    if strength([r for r in rows if r.id in set(small.rows)]) == "measured":
        a_small = _pooled(rows, "pygt", "pygt-a", small=True)
        a_large = _pooled(rows, "pygt", "pygt-a", small=False)
        if a_small is not None and a_large is not None:
            order = min(order, a_large.against(a_small))
            reason = f"PyGT-A: {a_small.value:.2g}x small, {a_large.value:.2g}x large"
            used += [a_small, a_large]
    return _finding(
        rows,
        used,
        measured={"small": f"{small.value:.2g}x", "large": f"{large.value:.2g}x"},
        holds=order > 0,
        undecided=order == 0,
        reason=reason,
    )


def evolvegcn_over_g(claim: Claim, rows: Sequence[Any]) -> Finding:
    return from_ratio(
        _pooled(rows, "pygt-g", "pipad", model="evolvegcn"),
        rows,
        target=claim.value["mean"],
        deviation=deviation(rows, system="pipad", model="evolvegcn"),
        missing=NONE,
    )


def model_order(claim: Claim, rows: Sequence[Any]) -> Finding:
    """EvolveGCN's average gain over PyGT-G above the other models'."""
    found = {model: _pooled(rows, "pygt-g", "pipad", model=model) for model in MODELS}
    if any(ratio is None for ratio in found.values()):
        return missing_finding(NONE)
    sides = [found["evolvegcn"].against(found[m]) for m in MODELS if m != "evolvegcn"]
    return _finding(
        rows,
        list(found.values()),
        measured={model: f"{ratio.value:.2g}x" for model, ratio in found.items()},
        holds=min(sides) > 0,
        undecided=min(sides) == 0,
    )


def mpnn_lowest(claim: Claim, rows: Sequence[Any]) -> Finding:
    return _extreme(claim, rows, "pygt-g", min, small=False, target=claim.value["low"])


def mpnn_highest(claim: Claim, rows: Sequence[Any]) -> Finding:
    return _extreme(claim, rows, "pygt", max, small=True, target=claim.value["high"])


def _extreme(
    claim: Claim, rows: Sequence[Any], slow: str, pick: Any, *, small: bool, target: float
) -> Finding:
    found = _ratios(rows, slow, "pipad", model="mpnn_lstm", small=small)
    if not found:
        return missing_finding(NONE)
    key = pick(found, key=lambda k: found[k].value)
    return from_ratio(
        found[key],
        rows,
        target=target,
        deviation=deviation(rows, system="pipad", dataset=key[0], model=key[1]),
        reason=f"on {BY_NAME[key[0]].title}",
    )


def aggregation_removed(claim: Claim, rows: Sequence[Any]) -> Finding:
    """No aggregation in steady steps of the T-GCN model, and the order that follows."""
    mine = [
        r
        for r in _timed(rows)
        if r.status == "ok" and r.params["model"] == "tgcn_model" and r.params["system"] == "pipad"
    ]
    over_r = _pooled(rows, "pygt-r", "pipad", model="tgcn_model")
    r_to_g = _pooled(rows, "pygt-r", "pygt-g", model="tgcn_model")
    if not mine or over_r is None or r_to_g is None:
        return missing_finding(NONE)
    left = max(r.counters.get("aggregations", 0) for r in mine)
    alike = 0.8 < r_to_g.value < 1.25
    # The middle alone decides what is alike; which of the two is faster needs its interval.
    return _finding(
        rows,
        [over_r, r_to_g],
        measured=f"{left} aggregations; PyGT-R over PyGT-G {r_to_g.value:.2g}x, "
        f"over PiPAD {over_r.value:.2g}x",
        holds=left == 0 and alike and over_r.side > 0,
        undecided=left == 0 and alike and over_r.side == 0,
        reason="alike is read as within 25 %",
    )
