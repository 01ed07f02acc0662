"""From a workload to its snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.workload import Workload

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence


def load(workload: Workload) -> SnapshotSequence:
    """The snapshots a workload names: topology, features float32[T, N, F], targets float32[T, N].

    Raises:
        InvalidInputError: if the sequence is too short for one frame and its target, holds
            other features than `feature_dim`, or weights that cannot be normalised.
        UnknownKeyError, MissingDataError, DataError: from the datasets floor.
    """
    from dgbench import datasets

    spec = datasets.SnapshotSpec(
        dataset=workload.dataset,
        source=workload.source,
        scale=workload.scale,
        seed=workload.seed,
        edge_life=workload.edge_life,
        feature_dim=workload.feature_dim,
    )
    return checked(latest(datasets.open_snapshots(spec), workload.snapshots), workload)


def latest(data: SnapshotSequence, count: int | None) -> SnapshotSequence:
    """The last `count` snapshots, where a growing graph is fullest; all of them for None."""
    if count is None or count >= len(data):
        return data
    return data.slice(len(data) - count, len(data))


def checked(data: SnapshotSequence, workload: Workload) -> SnapshotSequence:
    """`data` itself, if the workload can be trained on it; raises InvalidInputError if not."""
    if workload.frame < 1 or workload.stride < 1:
        raise InvalidInputError(
            f"frame and stride must be at least 1, got {workload.frame} and {workload.stride}"
        )
    if len(data) < workload.frame + 1:
        raise InvalidInputError(
            f"frame {workload.frame} needs {workload.frame + 1} snapshots (the last one is the "
            f"target), '{workload.dataset}' has {len(data)}",
            hint="choose a smaller frame or more snapshots",
        )
    check_features(data, workload.dataset, workload.feature_dim)
    check_degrees(data)
    return data


def check_features(data: SnapshotSequence, dataset: str, feature_dim: int) -> None:
    """Refuse a sequence that holds other features than a workload names."""
    width = data.features.shape[2]
    if width != feature_dim:
        raise InvalidInputError(
            f"feature_dim is {feature_dim}, but '{dataset}' has {width} features"
        )


def check_degrees(data: SnapshotSequence) -> None:
    """Refuse weights that leave a vertex without a positive degree: it has no normalisation."""
    from dgbench.datasets.transforms import factors

    seen: set[int] = set()
    for t in range(len(data)):
        csr = data.topology[t]
        if csr.values is None or id(csr) in seen:
            continue
        seen.add(id(csr))
        bad = (factors(csr, "mean")[0] == 0).nonzero().flatten()
        if bad.numel():
            raise InvalidInputError(
                f"snapshot {t}: the weights of vertex {int(bad[0])} sum to -1 or less; with its "
                f"self loop the degree must be positive ({bad.numel()} such vertices)",
                hint="use the graph without weights, or weights that are not negative",
            )


def describe(data: Any) -> dict[str, Any]:
    """The `data` field of a measurement: what was used, and whether it is a twin.

    Args:
        data: snapshots or events with their origin, or a container that describes itself.
    """
    if hasattr(data, "describe"):
        return data.describe()
    origin = data.origin
    return {
        "dataset": origin.dataset,
        "twin": origin.kind == "twin",
        "scale": origin.scale,
        "note": "; ".join(origin.notes),
    }
