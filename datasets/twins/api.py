"""Synthetic twins of the datasets that cannot be held: one call from a name to a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dgbench.datasets.events import EventStream
from dgbench.datasets.origin import Origin
from dgbench.datasets.twins.cliques import clique_stream
from dgbench.datasets.twins.params import TwinParams, all_params, params
from dgbench.datasets.twins.scaling import at_scale
from dgbench.datasets.twins.times import shuffled, stamps
from dgbench.kernels_cuda.twins import RankCopy, RankCopySpec, rank_copy
from dgbench.runtime.errors import InvalidInputError

MAX_EVENTS = 1 << 29
"""Events of an `EventStream` at most (13 GB); larger twins are walked with `stream`."""


def supports(name: str) -> bool:
    """Return True if there is a twin of that canonical dataset name."""
    return name in all_params()


def names() -> list[str]:
    """Datasets that have a twin."""
    return sorted(all_params())


def generate(
    name: str,
    scale: float = 1.0,
    seed: int = 1,
    *,
    mixing: float | None = None,
    threads: int = 1,
) -> EventStream:
    """The twin of a dataset.

    The same bytes for the same name, scale, seed and mixing, whatever the threads and machine.

    Args:
        name: canonical name of the card.
        scale: f, share of the events: 1/5000 .. 1.
        seed: 0 .. 2**64 - 1.
        mixing: None, or the share of drawn destinations that leave the source's block: plants
            communities. A result that touches locality must hold at 0.05, 0.3 and 1.
        threads: used to generate.

    Returns:
        A stream with `origin.kind == "twin"`; times in the card's unit from 0. `origin.notes`
        lists the scale, the exponent a and every assumed parameter.

    Raises:
        UnknownKeyError: no twin of that name.
        InvalidInputError: a scale that is refused or too large for memory, or a bad seed.
    """
    row = params(name)
    spec = _spec(name, row, scale, mixing)
    if spec.events > MAX_EVENTS:
        raise InvalidInputError(
            f"the twin of '{name}' at scale {scale:g} has {spec.events:,} events; at most "
            f"{MAX_EVENTS:,} are held at once",
            hint=f"use scale={MAX_EVENTS / row.events:.3g} or less, or walk it with stream()",
        )
    groups = None
    if row.clique is None:
        src, dst = rank_copy(spec, seed, threads=threads)
    else:
        src, dst, groups = clique_stream(spec, row.clique, seed)
    if row.curve.permute:
        order = shuffled(spec.events, seed)
        src, dst = src[order], dst[order]
    t = stamps(
        row.curve, spec.events, row.snapshots, row.window, row.resolution, seed, groups=groups
    )
    return EventStream.build(
        src,
        dst,
        t,
        num_nodes=spec.num_nodes,
        num_src=None if row.one_pool else spec.num_src,
        origin=Origin(name, "twin", float(scale), seed, tuple(_notes(row, scale, mixing))),
    )


def stream(
    name: str, scale: float = 1.0, seed: int = 1, *, chunk: int = 1 << 20, threads: int = 1
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The edges of a twin in order, `chunk` at a time, for graphs larger than memory.

    Yields:
        src, dst: int64[<= chunk]. Only the history that the generator looks back on is held.

    Raises:
        UnknownKeyError, InvalidInputError: as `generate`; also for twins with cliques or
            permuted times, which exist as a whole only.
    """
    row = params(name)
    spec = _spec(name, row, scale, None)
    if row.clique is not None or row.curve.permute:
        raise InvalidInputError(f"the twin of '{name}' cannot be walked in chunks")
    if chunk < 1:
        raise InvalidInputError(f"chunk is {chunk}; at least 1 is allowed")
    return _chunks(RankCopy(spec, seed, threads=threads), chunk)


def describe(name: str, scale: float = 1.0) -> dict[str, Any]:
    """Describe a twin without generating it: sizes, parameters and assumptions.

    Raises:
        UnknownKeyError, InvalidInputError: as `generate`.
    """
    row = params(name)
    spec = _spec(name, row, scale, None)
    return {
        "dataset": name,
        "scale": scale,
        "exponent": row.exponent,
        "like": row.like,
        "events": spec.events,
        "vertices": spec.num_nodes,
        "sides": [spec.num_src] + ([] if row.one_pool else [spec.num_dst]),
        "snapshots": row.snapshots,
        "window": row.window,
        "unit": row.unit,
        "simple": row.simple,
        "bytes": spec.events * 32,
        "parameters": {field: getattr(spec, field) for field in spec.__dataclass_fields__},
        "curve": {field: getattr(row.curve, field) for field in row.curve.__struct_fields__},
        "assumed": list(row.assumed),
        "notes": _notes(row, scale, None),
    }


def _spec(name: str, row: TwinParams, scale: float, mixing: float | None) -> RankCopySpec:
    if mixing is None:
        return at_scale(name, row, scale)
    return at_scale(name, row, scale, blocks=BLOCKS, mixing=mixing)


BLOCKS = 12
"""Planted communities; never a multiple of the rank counts that partitions are made for."""


def _chunks(source: RankCopy, chunk: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    while source.position < source.spec.events:
        yield source.take(min(chunk, source.spec.events - source.position))


def _notes(row: TwinParams, scale: float, mixing: float | None) -> list[str]:
    notes = [f"synthetic twin, f = {scale:g}, a = {row.exponent:g}, class {row.like}"]
    if row.exponent != 1 and scale != 1:
        notes.append("vertices scale with f^1/2: fill held, mean degree times f^1/2")
    if row.assumed:
        notes.append("assumed without a source: " + ", ".join(row.assumed))
    if mixing is not None:
        notes.append(f"{BLOCKS} planted blocks, mixing {mixing:g}")
    return notes + list(row.notes)
