"""Predicted time of a chunk from its sizes (DGC, section 3.4), and simpler estimates beside it.

The paper trains two perceptrons on measured chunks, one for each encoder: three hidden layers of
256 units and one output, mean absolute percentage error as the loss, Adam, 100 epochs. It puts a
ReLU behind each layer; behind the last it would make the output dead, so there is none here. Sizes
spread over orders of magnitude and so do times: inputs go in as logarithms, the output is the
logarithm of the time, and the loss is still of the times themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import torch
from torch import Tensor, nn

from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.systems.dgc.supergraph import ChunkStatistics
from dgbench.systems.dgc.volumes import Shape

Inputs = Literal["paper", "lengths"]
INPUTS: Final = ("paper", "lengths")
HIDDEN_LAYERS: Final = 3
HIDDEN_UNITS: Final = 256
EPOCHS: Final = 100
BATCH: Final = 128
RATE: Final = 2e-3
"""Largest rate of Adam; it rises and falls once over the training. The paper prints neither."""
BETAS: Final = (0.9, 0.999)
TERMS: Final = ("call", "vertices", "edges", "padded")


def layer_dims(shape: Shape, encoder: str) -> tuple[int, ...]:
    """Dimensions of the layers of one encoder, as the predictor's inputs name them."""
    if encoder == "structure":
        return (*shape.round_dims[1:], shape.spatial_dim)
    return (shape.spatial_dim, *(shape.state_dims or (shape.hidden_dim,)))


def inputs_of(
    statistics: ChunkStatistics, shape: Shape, encoder: str, inputs: Inputs = "lengths"
) -> Tensor:
    """float32[C, D], logarithms of (1 + size).

    Args:
        statistics: sizes of C chunks.
        shape: of the model.
        encoder: `structure` or `time`.
        inputs: `paper`: vertices, edges, features and layer dimensions; `lengths`: the number of
            sequences and their padded rows beside them, which the paper names and leaves out.

    Raises:
        UnknownKeyError: other `inputs`.
    """
    if inputs not in INPUTS:
        raise unknown_key("inputs", inputs, INPUTS)
    sizes = statistics.features(
        shape.feature_dim, layer_dims(shape, encoder), lengths=inputs == "lengths"
    )
    return sizes.log1p()


class Mlp:
    """One perceptron for one encoder.

    Attributes:
        mean, scale: float32[D], what is taken from an input, and what it is divided by then.
        layers: weight [out, in] and bias [out] of each layer.
    """

    def __init__(self, mean: Tensor, scale: Tensor, layers: list[tuple[Tensor, Tensor]]) -> None:
        self.mean, self.scale, self.layers = mean, scale, layers

    def __call__(self, inputs: Tensor) -> Tensor:
        """Predicted seconds, float64[C], for `inputs_of` [C, D]; always above 0."""
        if inputs.dim() != 2 or inputs.shape[1] != self.mean.numel():
            raise InvalidInputError(
                f"inputs has shape {list(inputs.shape)}, expected [C, {self.mean.numel()}]"
            )
        x = (inputs - self.mean) / self.scale
        *hidden, (weight, bias) = self.layers
        for w, b in hidden:
            x = torch.relu(torch.addmm(b, x, w.t()))
        return torch.addmm(bias, x, weight.t()).squeeze(1).double().exp()


def train_mlp(
    inputs: Tensor,
    seconds: Tensor,
    *,
    epochs: int = EPOCHS,
    hidden: int = HIDDEN_UNITS,
    batch: int = BATCH,
    seed: int = 1,
) -> Mlp:
    """Train a perceptron on measured chunks.

    Args:
        inputs: float32[n, D] from `inputs_of`.
        seconds: float64[n], measured, above 0.
        epochs, hidden, batch: as the paper, except the size of a batch, which it does not print.
        seed: of the weights and of the order of chunks.

    Raises:
        InvalidInputError: fewer than two chunks, other lengths, or a time that is not above 0.
    """
    _check_measured(inputs, seconds)
    mean = inputs.mean(0)
    scale = inputs.std(0)
    scale = torch.where(scale > 1e-6, scale, 1.0)  # an input that never changes says nothing
    target = seconds.log().float()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        widths = [inputs.shape[1], *[hidden] * HIDDEN_LAYERS, 1]
        linears = [nn.Linear(a, b) for a, b in pairwise(widths)]
        with torch.no_grad():
            linears[-1].bias.fill_(float(target.mean()))
        net = nn.Sequential(
            *(part for linear in linears[:-1] for part in (linear, nn.ReLU())), linears[-1]
        )
        _descend(net, (inputs - mean) / scale, target, epochs, batch)
    layers = [(p.weight.detach().clone(), p.bias.detach().clone()) for p in linears]
    return Mlp(mean, scale, layers)


def _descend(net: nn.Module, x: Tensor, target: Tensor, epochs: int, batch: int) -> None:
    """Adam over one vector of all parameters; importing torch's own takes longer than training."""
    parameters = list(net.parameters())
    flat = torch.cat([p.detach().flatten() for p in parameters])
    grad, first, second = (torch.zeros_like(flat) for _ in range(3))
    parts = [p.numel() for p in parameters]
    for p, values, slot in zip(parameters, flat.split(parts), grad.split(parts), strict=True):
        p.data, p.grad = values.view_as(p), slot.view_as(p)
    count = target.numel()
    steps, step = epochs * math.ceil(count / batch), 0
    for _ in range(epochs):
        for part in torch.randperm(count).split(batch):
            step += 1
            gap = net(x[part]).squeeze(1) - target[part]
            # |predicted / measured - 1|; far off the mark the ratio itself would overflow.
            loss = torch.expm1(gap.clamp(max=3.0)).abs().add((gap - 3.0).clamp(min=0)).mean()
            grad.zero_()
            loss.backward()
            first.lerp_(grad, 1 - BETAS[0])
            second.mul_(BETAS[1]).addcmul_(grad, grad, value=1 - BETAS[1])
            unbiased = (second / (1 - BETAS[1] ** step)).sqrt_().add_(1e-8)
            rate = RATE * _wave(step / steps) / (1 - BETAS[0] ** step)
            flat.addcdiv_(first, unbiased, value=-rate)


def _wave(done: float) -> float:
    """Rises to 1 in the first tenth of the steps, then falls to 0 as half a cosine does."""
    return done / 0.1 if done < 0.1 else 0.5 * (1 + math.cos(math.pi * (done - 0.1) / 0.9))


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """Seconds = a + b vertices + c edges (+ d padded rows), all of them at least 0.

    Attributes:
        coefficients: float64[4] for TERMS.
    """

    coefficients: Tensor

    def __call__(self, statistics: ChunkStatistics) -> Tensor:
        """Predicted seconds, float64[C]."""
        return _terms(statistics) @ self.coefficients


def fit_linear(
    statistics: ChunkStatistics, seconds: Tensor, *, terms: tuple[str, ...] = TERMS
) -> Linear:
    """The linear model of least relative squares without negative coefficients.

    Args:
        statistics: sizes of n chunks. seconds: float64[n], above 0.
        terms: those of TERMS that may differ from 0.

    Raises:
        InvalidInputError: as `train_mlp`, or an unknown or no term.
    """
    unknown = [term for term in terms if term not in TERMS]
    if unknown or not terms:
        raise InvalidInputError(f"terms is {terms}, allowed are some of {', '.join(TERMS)}")
    columns = _terms(statistics)
    _check_measured(columns, seconds)
    scaled = columns / seconds.unsqueeze(1)
    left = [TERMS.index(term) for term in terms]
    found = torch.zeros(len(TERMS), dtype=torch.float64)
    while left:
        part = scaled[:, left]
        unit = part.norm(dim=0).clamp(min=1e-300)
        solved = torch.linalg.lstsq(part / unit, torch.ones(len(part), 1).double()).solution
        values = solved.squeeze(1) / unit
        if bool((values >= 0).all()):
            found[left] = values
            break
        left.remove(left[int(values.mul(unit).argmin())])
    return Linear(found)


def as_part(
    predict: Callable[[ChunkStatistics], Tensor],
    linear: Linear,
    statistics: ChunkStatistics,
    large: int,
) -> Tensor:
    """Time that chunks add to a worker that runs all its chunks as one, float64[C] in seconds.

    Alone a chunk pays for its calls, and for the steps of its longest sequence though few rows go
    through each; of tiny chunks that is nearly all. A worker pays it once for all its chunks. So
    each chunk is thought of as several like it that fill `large` vertex-steps, predicted together,
    less what the linear model of the same measurements says of a call, and divided by their number.

    Args:
        predict: seconds of chunks run alone.
        linear: of the same encoder, or a sum of both.
        statistics: sizes of C chunks.
        large: vertex-steps, inside the range that was measured.
    """
    factor = (large / statistics.vertices.double().clamp(min=1)).clamp(min=1)

    def times(sizes: Tensor) -> Tensor:
        return (sizes * factor).round().long()

    several = ChunkStatistics(
        times(statistics.vertices),
        times(statistics.edges),
        times(statistics.inner_edges),
        times(statistics.sequences),
        statistics.longest,
    )
    whole = linear(several)
    rest = whole - linear.coefficients[0]
    share = torch.where(rest > 0, rest / whole.clamp(min=1e-300), 1.0)
    return predict(several) * share / factor


def _terms(statistics: ChunkStatistics) -> Tensor:
    columns = [
        torch.ones_like(statistics.vertices),
        statistics.vertices,
        statistics.edges,
        statistics.padded,
    ]
    return torch.stack(columns, 1).double()


def _check_measured(rows: Tensor, seconds: Tensor) -> None:
    if seconds.dim() != 1 or len(rows) != seconds.numel() or seconds.numel() < 2:
        raise InvalidInputError(
            f"seconds has shape {list(seconds.shape)}, expected one for each of the {len(rows)} "
            "chunks, which must be at least 2"
        )
    if not bool((seconds.isfinite() & (seconds > 0)).all()):
        raise InvalidInputError("seconds holds a number that is not above 0")


@dataclass(frozen=True, slots=True)
class Error:
    """Mean |predicted - measured| / measured over unseen chunks (equation 8).

    Attributes:
        mean: the error. low, high: its 95 % interval, by resampling chunks.
        count: n, chunks.
    """

    mean: float
    low: float
    high: float
    count: int


def error_of(predicted: Tensor, measured: Tensor, *, seed: int = 1, draws: int = 1000) -> Error:
    """Equation 8 with an interval from `draws` resamplings of the chunks.

    Raises:
        InvalidInputError: other lengths, fewer than two chunks, or times that are not above 0.
    """
    _check_measured(predicted, measured)
    each = (predicted - measured).abs() / measured
    draw = torch.Generator().manual_seed(seed)
    picked = torch.randint(each.numel(), (draws, each.numel()), generator=draw)
    low, high = torch.quantile(each[picked].mean(1), torch.tensor([0.025, 0.975]).double()).tolist()
    return Error(float(each.mean()), low, high, each.numel())


def scaled_to(guess: Tensor, measured: Tensor) -> Callable[[Tensor], Tensor]:
    """A guess in another unit, such as vertices, as seconds: times the factor of least error."""
    ratio = (measured / guess.double().clamp(min=1)).median()
    return lambda sizes: sizes.double().clamp(min=1) * ratio
