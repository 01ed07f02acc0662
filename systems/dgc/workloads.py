"""The workload of a chunk, as its assignment to workers weighs it (DGC, sections 3.4 and 3.5)."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

import msgspec
import torch
from torch import Tensor

from dgbench import __version__
from dgbench.runtime.errors import StoreError, unknown_key
from dgbench.systems.base.calibration import calibration_path, write_atomically
from dgbench.systems.dgc.calibrated import find
from dgbench.systems.dgc.chunk_samples import RandomChunks
from dgbench.systems.dgc.chunk_times import ChunkTimer, model_named, model_of, statistics_of
from dgbench.systems.dgc.predictor import Linear, as_part, fit_linear
from dgbench.systems.dgc.supergraph import ChunkStatistics
from dgbench.systems.dgc.volumes import Shape

WorkloadName = Literal["vertices", "edges", "linear", "mlp"]
NAMES: Final = ("vertices", "edges", "linear", "mlp")
QUICK_CHUNKS: Final = 48
QUICK_LARGEST: Final = 4096
QUICK_S: Final = 0.7
STAND_IN: Final = "dgc-stand-in"
"""Folder, beside those of calibrations, of the linear models that were measured in passing."""


@dataclass(frozen=True, slots=True)
class WorkloadModel:
    """A workload model at hand.

    Attributes:
        name: what was asked for.
        source: what it is: `counted`, `calibrated`, or `measured once`.
        unit: of what it returns.
        note: a sentence for the reader of a row where it is not what was asked for, else "".
    """

    name: WorkloadName
    source: str
    unit: str
    note: str
    _guess: Callable[[ChunkStatistics], Tensor]

    def __call__(self, statistics: ChunkStatistics) -> Tensor:
        """The workload of C chunks, float64[C], at least 0."""
        return self._guess(statistics)


def workload_of(
    name: WorkloadName, shape: Shape, device: str = "cpu", *, fused: bool = True
) -> WorkloadModel:
    """The workload model of a name, as good as this machine has it.

    `vertices` and `edges` are counts. `mlp` and `linear` are this machine's calibrated ones; where
    it has none for this model and size, both are a linear model of vertices, edges and padded rows
    whose coefficients are measured in less than a second, and `note` says so. They are measured
    once a machine and kept in the cache: who measured again would place chunks elsewhere, and
    neither rounds of a race nor runs could be held against each other.

    Args:
        name: one of NAMES.
        shape: of the model, from `volumes.shape_of`.
        device: `cpu` or `cuda`, where chunks will run.
        fused: chunks of a worker run as one, so what each would cost alone whatever its size is
            left out (`predictor.as_part`); False for chunk by chunk, as the paper predicts them.

    Raises:
        UnknownKeyError: another name.
    """
    if name not in NAMES:
        raise unknown_key("workload", name, NAMES)
    if name == "vertices":
        return WorkloadModel(name, "counted", "vertex-steps", "", lambda s: s.vertices.double())
    if name == "edges":
        return WorkloadModel(name, "counted", "edges", "", lambda s: s.edges.double())
    model = model_of(shape)
    kept, why = find(device)
    if kept is not None and kept.knows(model, shape):
        if name == "mlp":
            return WorkloadModel(
                name, "calibrated", "seconds", "", lambda s: kept.mlp(model, shape, s, fused=fused)
            )
        if (shape.feature_dim, shape.hidden_dim) == kept.models[model].sizes[0]:
            return WorkloadModel(
                name, "calibrated", "seconds", "", _plain(kept.linear(model), fused)
            )
        why = "the calibrated linear model is for another size"
    elif kept is not None:
        why = f"no chunk of {model} at hidden size {shape.hidden_dim} was measured for it"
    asked = "the perceptrons" if name == "mlp" else "the calibrated linear model"
    note = f"a linear model, measured once and quickly, stands in for {asked}: {why}"
    guess = _plain(measured_linear(shape, device), fused)
    return WorkloadModel(name, "measured once", "seconds", note, guess)


def _plain(linear: Linear, fused: bool) -> Callable[[ChunkStatistics], Tensor]:
    """A linear model, less the cost of a call where chunks are run as one."""

    def guess(statistics: ChunkStatistics) -> Tensor:
        return as_part(linear, linear, statistics, 1) if fused else linear(statistics)

    return guess


def measured_linear(
    shape: Shape, device: str = "cpu", *, timer: ChunkTimer | None = None
) -> Linear:
    """A linear model of both encoders from a few random chunks; kept for this machine.

    Args:
        shape: of the model. device: `cpu` or `cuda`.
        timer: what measures, for tests; its result is not kept.
    """
    return _measure(shape, timer) if timer is not None else _measured(shape, device)


@lru_cache(maxsize=16)
def _measured(shape: Shape, device: str) -> Linear:
    path = calibration_path(STAND_IN, device)
    name = f"{model_of(shape)} {shape.feature_dim} {shape.hidden_dim}"
    kept = _kept(path)
    if name in kept:
        return Linear(torch.tensor(kept[name], dtype=torch.float64))
    model = model_named(model_of(shape), shape.feature_dim, shape.hidden_dim)
    found = _measure(shape, ChunkTimer(model, device=device, least=2, most=3, aim_s=1e-3))
    # Others may have measured meanwhile; where nothing can be kept, this process has its own.
    everyone = {name: found.coefficients.tolist()} | _kept(path)
    with contextlib.suppress(StoreError):
        text = json.dumps({"versions": _versions(), "coefficients": everyone}, indent=2)
        write_atomically(path, text + "\n")
    return Linear(torch.tensor(everyone[name], dtype=torch.float64))


def _kept(path: Path) -> dict[str, list[float]]:
    """Coefficients by model and sizes; none where the file is missing, damaged or outdated."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_StoredWorkloadModel)
    except (OSError, msgspec.MsgspecError):
        return {}
    if found.versions != _versions():
        return {}
    return {
        name: list(values)
        for name, values in found.coefficients.items()
        if all(math.isfinite(v) and v >= 0 for v in values)
    }


def _versions() -> dict[str, str]:
    """Versions that the times of chunks depend on; the machine is in the file's name."""
    return {"dgbench": __version__, "torch": str(torch.__version__)}


class _StoredWorkloadModel(msgspec.Struct):
    versions: dict[str, str]
    coefficients: dict[str, tuple[float, float, float, float]]


def _measure(shape: Shape, timer: ChunkTimer) -> Linear:
    chunks = RandomChunks(seed=1, largest=QUICK_LARGEST).take(QUICK_CHUNKS)
    seconds = timer.measure(chunks, passes=1, budget_s=QUICK_S)
    statistics = statistics_of(chunks[: len(seconds)])
    found = [fit_linear(statistics, seconds[:, i]).coefficients for i in range(2)]
    return Linear(torch.stack(found).sum(0))
