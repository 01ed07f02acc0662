"""Settings of PiPAD's switches for its ablation: added one by one, alone, and left out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dgbench.systems.base.registry import get_system

LADDERS = {
    "plain": ("reuse", "parallel_aggregation", "cache_rule", "weight_reuse", "fused_gates",
              "compiled_step", "tuner"),
    "arena": ("pipeline", "reuse", "device_buffer", "overlap", "sliced_csr",
              "parallel_aggregation", "weight_reuse", "fused_gates", "tuner"),
    "device": ("pipeline", "reuse", "device_buffer", "overlap", "sliced_csr",
               "parallel_aggregation", "weight_reuse", "fused_gates", "cuda_graphs",
               "compiled_step", "tuner"),
    "paper": ("pipeline", "reuse", "device_buffer", "overlap", "sliced_csr",
              "parallel_aggregation", "slice_coalescing", "vector_loads", "weight_reuse",
              "cuda_graphs", "tuner"),
}  # fmt: skip
"""Techniques by where they run, in the order they are added. `plain`: a CPU that copies nothing;
`arena`: a CPU that copies into memory of its own; `device`: CUDA; `paper`: CUDA with the paper's
own kernel and without what is ours."""

REASONS = {
    "pipeline": "nothing is copied on a CPU",
    "device_buffer": "a CPU has no device memory",
    "overlap": "nothing is copied on a CPU",
    "sliced_csr": "nothing is copied on a CPU",
    "slice_coalescing": "in the published form alone; a product of ours takes its place",
    "vector_loads": "a kernel for warps",
    "cuda_graphs": "CUDA only",
}
"""Why a technique of the paper has no step on a plain CPU."""

PAPER_ORDER = ("pipeline", "reuse", "device_buffer", "overlap", "sliced_csr",
               "parallel_aggregation", "cache_rule", "slice_coalescing", "vector_loads",
               "weight_reuse", "fused_gates", "compiled_step", "cuda_graphs", "tuner")  # fmt: skip

DEPENDENT = {"cache_rule", "tuner", "device_buffer", "vector_loads", "compiled_step"}
"""Techniques that change how another one works, and so nothing alone."""

BUILT_IN = ("weight_reuse", "fused_gates")
"""Techniques that a compiled step has built in on a CPU: without one of them there is none."""

ASKED_FOR = {"plain": BUILT_IN, "device": ("pipeline",)}
"""Techniques without which a step is not one call, by where it runs."""

KINDS = ("ladder", "alone", "removed")
OFF, ON, AGAIN = "all off", "all on", "all on, again"


BARE = "pipad, all off"
"""The model on our engine without any technique: one snapshot at a time, all of it every time."""
REUSED = "pipad, reuse alone"
"""The same with what PyGT-R and PyGT-G have too: kept aggregations and asynchronous copies."""
PUBLISHED = "pipad, as published"
"""PiPAD as the paper describes it: all of the paper's techniques, nothing of ours."""
STAGES = (BARE, REUSED, PUBLISHED)
"""Contenders of the main race between the released baseline and PiPAD + dgbench."""
STAGE_TITLES = {
    BARE: "PiPAD's engine, all techniques off",
    REUSED: "PiPAD's engine, reuse alone",
    PUBLISHED: "PiPAD",
    "pipad": "PiPAD + dgbench",
}
OURS = ("fused_gates", "compiled_step", "cache_rule")
"""Techniques that are on by default and not the paper's."""
PAPERS_KERNEL = "slice_coalescing"
"""Technique of the paper that is off by default: a product of ours takes its place."""


def stage(name: str) -> dict[str, bool]:
    """Switches of a contender of the main race that is a stage of PiPAD."""
    if name == PUBLISHED:
        return dict.fromkeys(OURS, False) | {PAPERS_KERNEL: True}
    off = dict.fromkeys(PAPER_ORDER, False)
    return off | dict.fromkeys(("pipeline", "reuse"), True) if name == REUSED else off


def settings(link: str, kind: str) -> dict[str, dict[str, bool]]:
    """Switches of every setting of a cell, by name, in the order in which they take turns.

    ladder: `all off`, then with each technique added, by its name. alone: `all off` and each
    technique by itself. removed: `all on`, the same again, and `all on` without each.
    """
    order = LADDERS[link]
    off = dict.fromkeys(PAPER_ORDER, False)
    if link == "arena":
        off["arena"] = True
    if kind == "ladder":
        steps = [off | dict.fromkeys(order[: i + 1], True) for i in range(len(order))]
        return {OFF: off, **dict(zip(order, steps, strict=True))}
    if kind == "alone":
        return {OFF: off, **{t: off | {t: True} for t in order if t not in DEPENDENT}}
    on = everything(link)
    return {ON: on, AGAIN: dict(on), **{t: on | {t: False} for t in left_out(link)}}


def everything(link: str) -> dict[str, bool]:
    """All techniques on as the system has them, with what the link asks for."""
    on = get_system("pipad").switches(None)
    if link == "arena":
        on["arena"] = True
    if link == "paper":
        on |= stage(PUBLISHED)
    return on


def left_out(link: str) -> list[str]:
    """Techniques that `removed` leaves out one at a time: those that are on and do something.

    On a plain CPU those of the link change counters only; they must cost nothing.
    """
    on = everything(link)
    nothing = {"cuda_graphs", "vector_loads"} if link in ("plain", "arena") else set()
    if link == "device":
        # Vector loads work on the paper's kernel only; what is captured whole is not in parts.
        nothing = {"vector_loads", "cuda_graphs"}
    if link != "plain":
        nothing.add("cache_rule")
    if link in ("arena", "paper"):
        nothing.add("compiled_step")
    return [t for t in PAPER_ORDER if on[t] and t not in nothing]


def ratios_of(kind: str, names: Sequence[str], link: str = "plain") -> dict[str, tuple[str, str]]:
    """Technique -> (numerator, denominator) of the times whose ratio is its gain.

    What a step of one call asks for is left out of a step that is not one.
    """
    if kind == "ladder":
        return {after: (before, after) for before, after in pairwise(names)}
    if kind == "alone":
        return {name: (OFF, name) for name in names if name != OFF}
    found = {name: (name, ON) for name in names if name != ON}
    if "compiled_step" in found:  # without one of these there is none: the rest is theirs
        asked = ASKED_FOR.get(link, ())
        found |= {name: (name, "compiled_step") for name in asked if name in found}
    return found
