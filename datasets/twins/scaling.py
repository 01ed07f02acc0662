"""A twin at a fraction of its size: events scale with f, vertices with f^a."""

from __future__ import annotations

from dataclasses import replace

from dgbench.datasets.twins.fit import hub_share, solve_q
from dgbench.datasets.twins.params import TwinParams
from dgbench.kernels_cuda.twins import RankCopySpec
from dgbench.runtime.errors import InvalidInputError

SMALLEST_SCALE = 1 / 5000
SMALLEST_SIDE = 50


def at_scale(
    name: str, row: TwinParams, scale: float, *, blocks: int = 1, mixing: float = 1.0
) -> RankCopySpec:
    """Parameters of the stream at a scale.

    Repeats, memory shares and reaches (as shares of the events) are held. The hub share is held
    where vertices scale with the events (a = 1) and grows with f^-1/2 where they scale with the
    root (a = 1/2: mean degree times f^1/2, largest degree over mean held); q is solved for it.

    Raises:
        InvalidInputError: scale outside [1/5000, 1], or a side of fewer than 50 vertices: the
            twin would be a different graph.
    """
    if not isinstance(scale, (int, float)) or not SMALLEST_SCALE * (1 - 1e-9) <= scale <= 1:
        raise InvalidInputError(
            f"scale is {scale!r} for the twin of '{name}'; 1/5000 .. 1 is allowed",
            hint="below 1/5000 the twin no longer has the shape that it was fitted for",
        )
    a = row.exponent
    vertices = [max(round(n * scale**a), 1) for n in row.vertices]
    if min(vertices) < min(SMALLEST_SIDE, *row.vertices):
        least = max((min(SMALLEST_SIDE, n) / n) ** (1 / a) for n in row.vertices)
        raise InvalidInputError(
            f"scale {scale:g} leaves the twin of '{name}' a side of {min(vertices)} vertices; "
            f"at least {SMALLEST_SIDE} are needed",
            hint=f"use a scale of at least {least:.3g}",
        )
    reference = _spec(
        row, row.solved_at, [max(round(n * row.solved_at**a), 1) for n in row.vertices]
    )
    spec = replace(_spec(row, scale, vertices), blocks=blocks, mixing=mixing)
    shares = {}
    for side, key in enumerate(("q_src", "q_dst")):
        printed = row.hub[side]
        if printed is None and scale == row.solved_at:
            continue
        share = hub_share(reference, side) * (scale / row.solved_at) ** (a - 1)
        if printed is not None:
            share = printed * scale ** (a - 1)
        shares[key] = solve_q(spec, side, min(share, 0.999))
    return replace(spec, **shares)


def _spec(row: TwinParams, scale: float, vertices: list[int]) -> RankCopySpec:
    events = max(round(row.events * scale), 1)

    def reach(share: float) -> int:
        return max(1, round(share * events))

    own = [n if n is not None else reach(row.reach[i]) for i, n in enumerate(row.reach_events)]
    return RankCopySpec(
        events=events,
        num_src=vertices[0],
        num_dst=0 if row.one_pool else vertices[1],
        repeat=row.repeat,
        reply=row.reply,
        loop=row.loop,
        mem_src=row.memory[0],
        mem_dst=row.memory[1],
        reach_pair=own[0] if row.reach_pair is None else reach(row.reach_pair),
        reach_src=own[0],
        reach_dst=own[1],
        phi=row.phi,
        p_src=row.p_src,
        beta_src=row.beta[0],
        beta_dst=row.beta[1],
        s_src=row.s[0],
        q_src=row.q[0],
        s_dst=row.s[1],
        q_dst=row.q[1],
        simple=row.simple,
    )
