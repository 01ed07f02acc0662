"""The workload predictor of a machine: made and kept by `dgbench calibrate dgc`.

The file holds, for each of the three models, the perceptrons and the linear model of both encoders,
with their errors on unseen chunks and what the same chunks gave when measured again. It belongs to
one processor or GPU and one number of torch's threads (`systems.base.calibration`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
from torch import Tensor

from dgbench.runtime.errors import DgbenchError, InvalidInputError, StoreError
from dgbench.systems.base.calibration import (
    calibration_path,
    check_writable,
    machine_of,
    write_atomically,
)
from dgbench.systems.dgc.chunk_samples import GraphChunks, cuts_of
from dgbench.systems.dgc.chunk_times import ENCODERS, MODELS
from dgbench.systems.dgc.predictor import TERMS, Linear, Mlp, as_part, inputs_of
from dgbench.systems.dgc.study import FULL, GUESSES, QUICK, WHOLE, Progress, Study, StudySize, study
from dgbench.systems.dgc.supergraph import ChunkStatistics
from dgbench.systems.dgc.volumes import Shape

SCHEMA: Final = 1
HINT: Final = "make a new one: dgbench calibrate dgc"
HELD: Final = (
    "email-eu-core",
    "wikipedia",
    "sx-mathoverflow",
    "amazon-magazine",
    "epinions-2011-ratings",
)
"""Real graphs whose chunks are measured where they are held; without any, all are random."""
QUICK_GRAPHS: Final = 2
CUTS: Final = (16, 64, 256, 2048)
"""Chunks of a cut graph, about: caps are V over these."""
BUSY: Final = 0.05
"""Change of a chunk's time when measured again from which on a machine counts as busy."""


class Layer(msgspec.Struct, frozen=True):
    """A weight [outputs, inputs] and its bias, float32, row by row."""

    outputs: int
    inputs: int
    weight: bytes
    bias: bytes


class Encoder(msgspec.Struct, frozen=True):
    """Calibration of one encoder of one model.

    Attributes:
        mean, scale, layers: of the perceptron.
        linear: coefficients of the linear model, seconds, for `predictor.TERMS`.
    """

    mean: list[float]
    scale: list[float]
    layers: list[Layer]
    linear: list[float]


class ModelCalibration(msgspec.Struct, frozen=True):
    """Calibration of one model.

    Attributes:
        sizes: (feature_dim, hidden_dim) that were measured, the main one first.
        encoders: by `chunk_times.ENCODERS`.
        errors: "encoder/guess" -> [mean, low, high].
        repeat: encoder -> mean relative change of chunks measured again.
        trained, tested: chunks. rate: chunks measured in a minute.
        large: vertex-steps that count as many, see `predictor.as_part`.
    """

    sizes: list[tuple[int, int]]
    encoders: dict[str, Encoder]
    errors: dict[str, tuple[float, float, float]]
    repeat: dict[str, float]
    trained: int
    tested: int
    rate: float
    large: int


class Calibration(msgspec.Struct):
    """All that was measured of one machine.

    Attributes:
        schema, system: of the file. device: `cpu` or `cuda`. machine: its name, and one thread.
        made: when, ISO 8601. quick: from fewer chunks.
        models: by name.
    """

    schema: int
    system: str
    device: str
    machine: dict[str, Any]
    made: str
    quick: bool
    models: dict[str, ModelCalibration]

    def knows(self, model: str, shape: Shape) -> bool:
        """Return True if chunks of this model at this size were measured."""
        kept = self.models.get(model)
        return kept is not None and (shape.feature_dim, shape.hidden_dim) in kept.sizes

    def mlp(
        self, model: str, shape: Shape, statistics: ChunkStatistics, *, fused: bool = False
    ) -> Tensor:
        """Seconds of chunks by the perceptrons, both encoders: float64[C].

        `fused`: as parts of a worker that runs all its chunks as one, see `predictor.as_part`.
        """
        found = self.models[model]
        total = torch.zeros(len(statistics.vertices), dtype=torch.float64)
        for name in ENCODERS:
            net = _mlp(found.encoders[name])

            def predict(s: ChunkStatistics, name: str = name, net: Mlp = net) -> Tensor:
                return net(inputs_of(s, shape, name, "lengths"))

            if fused:
                total += as_part(predict, _linear(found.encoders[name]), statistics, found.large)
            else:
                total += predict(statistics)
        return total

    def linear(self, model: str) -> Linear:
        """The linear models of both encoders added up."""
        encoders = self.models[model].encoders
        found = [_linear(encoders[name]).coefficients for name in ENCODERS]
        return Linear(torch.stack(found).sum(0))

    def save(self, path: Path) -> None:
        """Write it; readers see the old file or the whole new one. Raises StoreError."""
        write_atomically(Path(path), msgspec.json.encode(self).decode() + "\n")


class _CalibrationVersion(msgspec.Struct):
    schema: int
    system: str


def load(path: Path) -> Calibration:
    """Read a predictor.

    Raises:
        StoreError: there is none, it is damaged or cut off, another system's or version's.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"no predictor can be read from '{path}': {error.strerror or error}", hint=HINT
        ) from error
    try:
        head = msgspec.json.decode(raw, type=_CalibrationVersion)
        if (head.schema, head.system) != (SCHEMA, "dgc"):
            raise StoreError(
                f"'{path}' is version {head.schema} of '{head.system}', this program reads version "
                f"{SCHEMA} of 'dgc'",
                hint=HINT,
            )
        found = msgspec.json.decode(raw, type=Calibration)
        for kept in found.models.values():
            for name in ENCODERS:
                _check(kept.encoders[name])
    except (msgspec.MsgspecError, KeyError, ValueError, InvalidInputError) as error:
        raise StoreError(f"the predictor '{path}' is damaged: {error}", hint=HINT) from error
    return found


def find(device: str) -> tuple[Calibration | None, str]:
    """(this machine's predictor, "") or (None, why there is none).

    Chunks always run on one thread, so the number of torch's threads, which is part of a file's
    name, does not matter here. A file that is damaged or of another machine is passed over with a
    warning.
    """
    own = calibration_path("dgc", device)
    others = sorted(own.parent.glob("*.json")) if own.parent.is_dir() else []
    why = "this machine has no predictor (dgbench calibrate dgc makes one)"
    for path in dict.fromkeys([own, *others]):
        if not path.exists():
            continue
        try:
            found = load(path)
        except StoreError as error:
            warnings.warn(f"{error} ({error.hint})", RuntimeWarning, stacklevel=2)
            why = "this machine's predictor is damaged (dgbench calibrate dgc makes a new one)"
            continue
        kind = device.partition(":")[0]
        if found.device == kind and found.machine == _machine(device):
            return found, ""
        if path == own:
            said = f"'{path}' is of {found.machine} ({found.device}), not of this machine"
            warnings.warn(f"{said}; {HINT}", RuntimeWarning, stacklevel=2)
            why = "the predictor at hand is another machine's (dgbench calibrate dgc)"
    return None, why


def _machine(device: str) -> dict[str, Any]:
    """The processor or GPU; on a CPU chunks run on one thread."""
    machine = machine_of(device)
    return {**machine, "threads": 1} if "threads" in machine else machine


def kept_of(found: Study) -> ModelCalibration:
    """Calibration of a model from a study."""
    return ModelCalibration(
        sizes=[(shape.feature_dim, shape.hidden_dim) for shape in found.shapes],
        encoders={
            name: _encoder(found.predictors[name].mlp, found.predictors[name].linear)
            for name in ENCODERS
        },
        errors={
            f"{encoder}/{guess}": (error.mean, error.low, error.high)
            for (encoder, guess), error in found.errors.items()
        },
        repeat=dict(found.repeat),
        trained=found.trained,
        tested=found.tested,
        rate=found.rate,
        large=found.large,
    )


def calibrate(
    path: Path,
    *,
    device: str = "cpu",
    quick: bool = False,
    progress: Progress | None = None,
    size: StudySize | None = None,
    models: Sequence[str] = MODELS,
    graphs: Callable[[bool], list[GraphChunks]] | None = None,
) -> dict[str, Any]:
    """Measure chunks, train the predictors, keep them in `path`, sum them up.

    Args:
        path: the file. device: `cpu` or `cuda`. quick: fewer and smaller chunks.
        progress: told (steps done, all steps, what is measured now).
        size: other numbers than QUICK's or FULL's. models: fewer than all.
        graphs: quick -> graphs cut into chunks; None: those that are held.

    Returns:
        For each model and encoder the chunks, the errors on unseen ones with the interval, and the
        change of chunks that were measured again.

    Raises:
        StoreError: the file cannot be written, said before anything is measured.
    """
    path = Path(path)
    check_writable(path)
    chosen = size or (QUICK if quick else FULL)
    cuts = (graphs or held_cuts)(quick)
    studies: list[Study] = []
    for place, model in enumerate(models):

        def told(done: int, total: int, words: str, place: int = place) -> None:
            if progress is not None:
                progress(place * total + done, len(models) * total, words)

        studies.append(study(model, cuts, chosen, device=device, told=told))
    kind = device.partition(":")[0]
    Calibration(
        schema=SCHEMA,
        system="dgc",
        device=kind,
        machine=_machine(device),
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        quick=quick,
        models={found.model: kept_of(found) for found in studies},
    ).save(path)
    repeat = max(found.repeat[WHOLE] for found in studies)
    state = f"{100 * repeat:.1f} % on average"
    if repeat > BUSY:
        state += "; the machine was busy, measure again when it is quiet"
    sources = sorted({cut.source for cut in cuts})
    return {
        "machine": str(machine_of(device).get("name", "unknown")),
        "chunks of": ", ".join(["random sizes", *sources]),
        "chunks measured in a minute": round(min(found.rate for found in studies)),
        "change when measured again": state,
        "error on unseen chunks, %": [row for found in studies for row in _summary(found)],
    }


def held_cuts(quick: bool) -> list[GraphChunks]:
    """Real graphs that are held here, cut several times."""
    from dgbench import datasets
    from dgbench.kernels_cuda.supergraph import build_supergraph

    cuts: list[GraphChunks] = []
    for name in HELD[: QUICK_GRAPHS if quick else None]:
        try:
            spec = datasets.SnapshotSpec(dataset=name, source="real", feature_dim=2)
            data = datasets.open_snapshots(spec)
        except DgbenchError:  # not held here: the others, and random chunks, must do
            continue
        graph = build_supergraph([data.topology[t] for t in range(len(data) - 1)])
        caps = sorted({max(1, graph.num_vertices // count) for count in CUTS})
        cuts += cuts_of(graph, caps, source=name)
    return cuts


def _summary(found: Study) -> list[dict[str, Any]]:
    rows = []
    for encoder in (*ENCODERS, WHOLE):
        error = found.errors[encoder, "mlp"]
        rows.append(
            {
                "model": found.model,
                "encoder": encoder,
                "chunks": found.trained,
                "unseen": found.tested,
                "mlp": 100 * error.mean,
                "low": 100 * error.low,
                "high": 100 * error.high,
                "again": 100 * found.repeat[encoder],
                **{name: 100 * found.errors[encoder, name].mean for name in GUESSES[1:]},
            }
        )
    return rows


def _encoder(net: Mlp, linear: Linear) -> Encoder:
    layers = [
        Layer(weight.shape[0], weight.shape[1], _bytes(weight), _bytes(bias))
        for weight, bias in net.layers
    ]
    return Encoder(net.mean.tolist(), net.scale.tolist(), layers, linear.coefficients.tolist())


def _mlp(kept: Encoder) -> Mlp:
    layers = [
        (_floats(layer.weight).view(layer.outputs, layer.inputs), _floats(layer.bias))
        for layer in kept.layers
    ]
    return Mlp(torch.tensor(kept.mean), torch.tensor(kept.scale), layers)


def _linear(kept: Encoder) -> Linear:
    return Linear(torch.tensor(kept.linear, dtype=torch.float64))


def _check(kept: Encoder) -> None:
    """Raise InvalidInputError where sizes do not fit together or a number is not finite."""
    width = len(kept.mean)
    fits = len(kept.scale) == width and len(kept.linear) == len(TERMS) and bool(kept.layers)
    for layer in kept.layers:
        fits = fits and layer.inputs == width and len(layer.bias) == 4 * layer.outputs
        fits = fits and len(layer.weight) == 4 * layer.outputs * layer.inputs
        width = layer.outputs
    if not fits or width != 1:
        raise InvalidInputError("its layers do not fit together")
    numbers = [_floats(part) for layer in kept.layers for part in (layer.weight, layer.bias)]
    numbers.append(torch.tensor([*kept.mean, *kept.scale, *kept.linear]))
    if not all(bool(part.isfinite().all()) for part in numbers) or not all(kept.scale):
        raise InvalidInputError("it holds a number that is not finite, or a scale of 0")


def _bytes(tensor: Tensor) -> bytes:
    return tensor.float().contiguous().numpy().astype("<f4").tobytes()


def _floats(raw: bytes) -> Tensor:
    import numpy as np

    return torch.from_numpy(np.frombuffer(raw, dtype="<f4").astype(np.float32))
