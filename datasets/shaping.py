"""From events or native signals to the arrays of a `SnapshotSequence`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dgbench.datasets.checks import compare, count_signals
from dgbench.datasets.events import EventStream
from dgbench.datasets.origin import Origin
from dgbench.datasets.readers.raw import Signals
from dgbench.datasets.sequence import SnapshotSpec
from dgbench.datasets.store import Pack
from dgbench.datasets.transforms import (
    degree_features,
    degree_targets,
    equal_windows,
    fit_width,
    lagged_features,
    random_features,
    standardise,
)
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import DataError, InvalidInputError

if TYPE_CHECKING:
    from dgbench.datasets.opening import Choice

_DEGREE_TARGETS = "targets: log(1 + in-degree), standardised; the papers name no task for this data"


def from_events(stream: EventStream, spec: SnapshotSpec) -> Pack:
    """Cut events into windows of equal length; features and targets by the spec.

    A window is a snapshot of the events in it, not of everything before it: the paper's totals
    over snapshots equal the numbers of events (ESDG 7).
    """
    from dgbench.kernels_cuda.snapshots import edge_snapshots

    steps = spec.snapshots
    bins, _ = equal_windows(stream.t, steps)
    if spec.weighted and stream.weight is None:
        raise InvalidInputError(
            f"weighted snapshots of '{spec.dataset}' were asked for; its events have no weights"
        )
    csrs = edge_snapshots(
        stream.src,
        stream.dst,
        bins,
        steps,
        stream.num_nodes,
        weight=stream.weight if spec.weighted else None,
        edge_life=spec.edge_life,
        symmetric=spec.symmetric,
        weighted=spec.weighted,
    )
    kind = spec.features
    if kind == "auto":
        kind = "degree" if stream.node_feat is None else "native"
    if kind == "native":
        if stream.node_feat is None:
            raise InvalidInputError(
                f"'{spec.dataset}' has no native features; allowed: auto, degree, random"
            )
        once = fit_width(standardise(stream.node_feat, 0), spec.feature_dim)
        features = once.repeat(steps, 1, 1)
    else:
        features = _made_features(kind, csrs, spec)
    origin = replace(stream.origin, notes=(*stream.origin.notes, _DEGREE_TARGETS))
    return _pack(csrs, steps, features, degree_targets(csrs), origin)


def from_signals(choice: Choice, signals: Signals, spec: SnapshotSpec) -> Pack:
    """The first T native snapshots; a static graph has one matrix for all of them.

    Native features of snapshot t are the data's own, repeated or cut to `feature_dim` columns,
    or else the last `feature_dim` values of the target up to and including t (0 before the data
    begins).
    """
    from dgbench.kernels_cuda.snapshots import edge_snapshots

    form = choice.held.form
    check_signals(signals)
    notes = compare(choice.card, form, count_signals(signals, form.counts))
    steps = spec.snapshots or signals.steps
    if steps > signals.steps:
        raise InvalidInputError(
            f"snapshots is {steps}; '{choice.card.name}' has {signals.steps} here"
        )
    if spec.weighted and signals.weight is None:
        raise InvalidInputError(f"'{choice.card.name}' has no edge weights")
    known = [_tensor(column) for column in (signals.src, signals.dst, signals.step)]
    weight = _tensor(signals.weight) if spec.weighted else None
    keep = known[2] < steps
    matrices = 1 if signals.static else steps
    csrs = edge_snapshots(
        *(column[keep] for column in known),
        matrices,
        signals.num_nodes,
        weight=None if weight is None else weight[keep],
        edge_life=1 if signals.static else spec.edge_life,
        symmetric=spec.symmetric,
        weighted=spec.weighted,
    )
    targets = _tensor(signals.targets)[:steps].contiguous()
    if spec.features in ("auto", "native"):
        if signals.native is None:
            features = lagged_features(targets, spec.feature_dim)
        else:
            features = fit_width(_tensor(signals.native)[:steps], spec.feature_dim)
    else:
        features = _made_features(spec.features, csrs * (steps // matrices), spec)
    kind = "subset" if form.subset else "real"
    origin = Origin(choice.card.name, kind, notes=(*notes, *signals.notes))
    return _pack(csrs, steps, features, targets, origin)


def check_signals(signals: Signals) -> None:
    """Refuse entries outside the graph and signals that are not finite or ill-shaped."""
    for name, ids in (("src", signals.src), ("dst", signals.dst)):
        bad = (ids < 0) | (ids >= signals.num_nodes)
        if bad.any():
            where = int(bad.argmax())
            raise DataError(
                f"{name}[{where}] = {ids[where]}; ids must satisfy 0 <= id < {signals.num_nodes}"
            )
    shape = (signals.steps, signals.num_nodes)
    if signals.targets.shape != shape:
        raise DataError(f"targets have shape {signals.targets.shape}; {shape} is needed")
    if signals.native is not None and signals.native.shape[:2] != shape:
        raise DataError(f"features have shape {signals.native.shape}; {(*shape, 'D')} is needed")
    for name, values in (("targets", signals.targets), ("features", signals.native)):
        if values is not None and not np.isfinite(values).all():
            raise DataError(f"{name} hold a value that is not finite")


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _made_features(kind: str, csrs: Sequence[Csr], spec: SnapshotSpec) -> Tensor:
    if kind == "random":
        return random_features(len(csrs), csrs[0].num_rows, spec.feature_dim, spec.seed)
    return degree_features(csrs, spec.feature_dim)


def _pack(
    csrs: Sequence[Csr], steps: int, features: Tensor, targets: Tensor, origin: Origin
) -> Pack:
    from dgbench.datasets.opening import origin_fields

    starts = [0]
    for csr in csrs:
        starts.append(starts[-1] + csr.nnz)
    arrays = {
        "indptr": torch.stack([csr.indptr for csr in csrs]),
        "indices": torch.cat([csr.indices for csr in csrs]),
        "features": features.contiguous(),
        "targets": targets,
    }
    if csrs[0].values is not None:
        arrays["values"] = torch.cat([csr.values for csr in csrs])
    fields = {
        "steps": steps,
        "starts": starts,
        "num_nodes": csrs[0].num_rows,
        "origin": origin_fields(origin),
    }
    return Pack(fields, arrays)
