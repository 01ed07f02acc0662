"""Measuring chunks, training both perceptrons on some of them, and trying them on the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.threads import one_thread
from dgbench.systems.dgc.chunk_samples import GraphChunks, mixed
from dgbench.systems.dgc.chunk_times import (
    ENCODERS,
    ChunkTimer,
    LocalChunk,
    model_named,
    statistics_of,
)
from dgbench.systems.dgc.predictor import (
    BATCH,
    EPOCHS,
    HIDDEN_UNITS,
    Error,
    Inputs,
    Linear,
    Mlp,
    as_part,
    error_of,
    fit_linear,
    inputs_of,
    scaled_to,
    train_mlp,
)
from dgbench.systems.dgc.supergraph import ChunkStatistics
from dgbench.systems.dgc.volumes import Shape, shape_of

GUESSES: Final = ("mlp", "mlp, the paper's inputs", "linear", "edges", "vertices")
"""Predictors of a chunk's time, the most accurate known one first."""
WHOLE: Final = "both"
"""Both encoders of a chunk added up: its workload."""
FEATURES, HIDDEN = 2, 32


@dataclass(frozen=True, slots=True)
class StudySize:
    """Number of measured chunks, and length of training.

    Attributes:
        train, test: chunks to train on and unseen ones, at most.
        largest: vertex-steps of a chunk at most.
        budget_s: seconds in which chunks to train on are measured.
        hidden_dims: of the models; the first is that of the unseen chunks.
        epochs, units: of the perceptrons.
        aim_s: see `ChunkTimer`.
    """

    train: int
    test: int
    largest: int
    budget_s: float
    hidden_dims: tuple[int, ...] = (HIDDEN,)
    epochs: int = EPOCHS
    units: int = HIDDEN_UNITS
    aim_s: float = 4e-3


QUICK: Final = StudySize(train=500, test=150, largest=4096, budget_s=5.0, aim_s=2e-3)
FULL: Final = StudySize(
    train=3000, test=1000, largest=16384, budget_s=60.0, hidden_dims=(HIDDEN, 16, 64)
)


@dataclass(frozen=True, slots=True, eq=False)
class Predictors:
    """Predictors that were trained for one encoder of one model.

    Attributes:
        mlp, plain: with the lengths of sequences among the inputs, and with the paper's inputs.
        linear: of vertices, edges and padded rows.
    """

    mlp: Mlp
    plain: Mlp
    linear: Linear

    def guess(self, name: str, statistics: ChunkStatistics, shape: Shape, encoder: str) -> Tensor:
        """Seconds, float64[C], of `mlp`, `mlp, the paper's inputs` or `linear`."""
        if name == "linear":
            return self.linear(statistics)
        inputs: Inputs = "lengths" if name == "mlp" else "paper"
        net = self.mlp if name == "mlp" else self.plain
        return net(inputs_of(statistics, shape, encoder, inputs))


@dataclass(slots=True)
class Study:
    """One model on one machine.

    Attributes:
        model, device: what was measured.
        shapes: those measured, the main one first.
        predictors: by encoder.
        errors: (encoder, or WHOLE; one of GUESSES) -> error on unseen chunks.
        repeat: encoder -> mean relative change when unseen chunks were measured again.
        trained, tested: chunks.
        rate: chunks measured once in a minute (of processor time, on a CPU).
        train_s: seconds in which the perceptrons were trained.
        large: half the vertex-steps of the largest chunks measured, see `predictor.as_part`.
        unseen: sizes of the unseen chunks.
        measured: float64[n, 2], their seconds.
    """

    model: str
    device: str
    shapes: list[Shape]
    predictors: dict[str, Predictors]
    errors: dict[tuple[str, str], Error] = field(default_factory=dict)
    repeat: dict[str, float] = field(default_factory=dict)
    trained: int = 0
    tested: int = 0
    rate: float = 0.0
    train_s: float = 0.0
    large: int = 1
    unseen: ChunkStatistics | None = None
    measured: Tensor | None = None

    def workload(
        self,
        name: str,
        statistics: ChunkStatistics,
        shape: Shape | None = None,
        *,
        fused: bool = False,
    ) -> Tensor:
        """Seconds of chunks by one of the predictors, both encoders together: float64[C].

        `fused`: as parts of a worker that runs all its chunks as one, see `predictor.as_part`.
        """
        shape = shape or self.shapes[0]
        total = torch.zeros(len(statistics.vertices), dtype=torch.float64)
        for encoder in ENCODERS:
            known = self.predictors[encoder]

            def predict(s: ChunkStatistics, encoder: str = encoder) -> Tensor:
                return self.predictors[encoder].guess(name, s, shape, encoder)

            if fused:
                total += as_part(predict, known.linear, statistics, self.large)
            else:
                total += predict(statistics)
        return total


Progress = Callable[[int, int, str], None]


def study(
    model: str,
    cuts: Sequence[GraphChunks],
    size: StudySize,
    *,
    device: str = "cpu",
    seed: int = 1,
    timer: Callable[[int], ChunkTimer] | None = None,
    told: Progress | None = None,
) -> Study:
    """Measure chunks of one model, train on most of them, and predict the unseen ones.

    Args:
        model: one of `chunk_times.MODELS`.
        cuts: graphs cut into chunks; half of the chunks come from them, the others are random.
        size: how many, and how long.
        device: `cpu` or `cuda`.
        seed: of the draw of chunks and of the perceptrons.
        timer: hidden_dim -> what measures; None: a `ChunkTimer` on `device`.
        told: (steps done, all steps, words).

    Raises:
        InvalidInputError: fewer than two chunks to train on or to try.
    """
    if size.train < 2 or size.test < 2:
        raise InvalidInputError(
            f"train is {size.train} and test {size.test}, allowed are numbers from 2"
        )
    say = told or (lambda done, total, words: None)
    make = timer or (
        lambda hidden: ChunkTimer(
            model_named(model, FEATURES, hidden), device=device, aim_s=size.aim_s
        )
    )
    timers = {hidden: make(hidden) for hidden in size.hidden_dims}
    shapes = [shape_of(timers[hidden].model) for hidden in size.hidden_dims]
    chunks = mixed(cuts, size.train + size.test, seed=seed, largest=size.largest)
    tested = chunks[: size.test]
    pool, steps = chunks[size.test :], size.train + 3 * size.test

    spent = time.process_time if device == "cpu" else time.monotonic
    start = spent()
    parts, times, done = [], [], 0
    for place, hidden in enumerate(size.hidden_dims):  # half of all chunks at the main shape
        share = _shares(len(pool), len(size.hidden_dims))[place]
        part = pool[done : done + share]
        found = timers[hidden].measure(
            part,
            passes=1,
            budget_s=size.budget_s * share / max(1, len(pool)),
            told=lambda n, base=done: say(base + n, steps, f"{model}: chunks to train on"),
        )
        parts.append(part[: len(found)])
        times.append(found)
        done += share
    measured = sum(len(part) for part in parts)
    rate = 60 * measured / max(1e-9, spent() - start)

    words = f"{model}: unseen chunks"
    main = timers[size.hidden_dims[0]]
    truth = main.measure(tested, told=lambda n: say(size.train + n, steps, words))
    again = main.measure(tested, told=lambda n: say(size.train + 2 * size.test + n, steps, words))
    start = time.monotonic()
    with one_thread():  # its matrices are too small for two
        predictors = {
            encoder: _train(parts, [t[:, i] for t in times], shapes, encoder, size, seed)
            for i, encoder in enumerate(ENCODERS)
        }
    result = Study(model, device, shapes, predictors, large=max(1, size.largest // 2))
    result.train_s = time.monotonic() - start
    result.trained, result.tested, result.rate = measured, len(tested), rate
    result.unseen, result.measured = statistics_of(tested), truth
    say(steps, steps, "")
    _try(result, parts[0], times[0], tested, truth, again)
    return result


def _shares(count: int, shapes: int) -> list[int]:
    """Chunks of each shape: half for the first, the others in equal parts; all for a single one."""
    if shapes == 1:
        return [count]
    rest = [count // (2 * (shapes - 1))] * (shapes - 1)
    return [count - sum(rest), *rest]


def _train(
    parts: list[list[LocalChunk]],
    seconds: list[Tensor],
    shapes: list[Shape],
    encoder: str,
    size: StudySize,
    seed: int,
) -> Predictors:
    statistics = [statistics_of(part) for part in parts]
    measured = list(zip(statistics, shapes, strict=True))
    both = []
    for inputs in ("lengths", "paper"):
        rows = torch.cat([inputs_of(s, shape, encoder, inputs) for s, shape in measured])
        net = train_mlp(
            rows, torch.cat(seconds), epochs=size.epochs, hidden=size.units, batch=BATCH, seed=seed
        )
        both.append(net)
    # A linear model knows no shape: it stands for the main one.
    return Predictors(both[0], both[1], fit_linear(statistics[0], seconds[0]))


def _try(
    result: Study,
    known: list[LocalChunk],
    known_s: Tensor,
    tested: list[LocalChunk],
    truth: Tensor,
    again: Tensor,
) -> None:
    """Fill in errors and the noise they are to be read against."""
    statistics, shape = statistics_of(tested), result.shapes[0]
    seen = statistics_of(known)
    total, seen_total = truth.sum(1), known_s.sum(1)
    guessed: dict[tuple[str, str], Tensor] = {}
    for i, encoder in enumerate(ENCODERS):
        result.repeat[encoder] = float(((again - truth).abs() / truth)[:, i].mean())
        for name in GUESSES[:3]:
            guess = result.predictors[encoder].guess(name, statistics, shape, encoder)
            guessed[encoder, name] = guess
            guessed[WHOLE, name] = guessed.get((WHOLE, name), 0) + guess
    result.repeat[WHOLE] = float(((again.sum(1) - total).abs() / total).mean())
    for name in ("edges", "vertices"):
        for i, encoder in enumerate((*ENCODERS, WHOLE)):
            seconds = known_s[:, i] if encoder in ENCODERS else seen_total
            scale = scaled_to(getattr(seen, name), seconds)
            guessed[encoder, name] = scale(getattr(statistics, name))
    for (encoder, name), guess in guessed.items():
        measured = truth[:, ENCODERS.index(encoder)] if encoder in ENCODERS else total
        result.errors[encoder, name] = error_of(guess, measured)
