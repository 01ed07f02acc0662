"""Whole training steps of discrete-time models as one compiled call each.

On graphs of some hundred vertices a step's arithmetic is a fraction of a millisecond, and what a
framework spends around it (calls, autograd nodes, the optimiser) is more. Here a step is one call:
forward, loss, backward and Adam, a block of vertices at a time, so that what the backward pass
needs never leaves the cache and is not made twice. The loss is the mean squared error of a linear
node head, which is folded into the pass.

Float32 and float64 on the CPU; the same bits for every number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import FLOATS
from dgbench.kernels_cuda.aggregate import ORDERED_WIDTH
from dgbench.kernels_cuda.aggregate.prepared import prepare, prepare_parts
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.layers.op import EPS
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.runtime.errors import InvalidInputError, UnsupportedError


@dataclass(slots=True)
class Adam:
    """Adam's settings, as `torch.optim.Adam` has them, and the number of updates so far."""

    rate: float
    beta_1: float = 0.9
    beta_2: float = 0.999
    eps: float = 1e-8
    decay: float = 0.0
    updates: int = field(default=0)


class FlatParameters:
    """Trained tensors, their gradients and Adam's moments, each kind in one flat tensor.

    The tensors themselves become views of `values`, and their `grad` a view of `grads`, so that
    whoever holds them reads and writes what the compiled step trains.

    Args:
        tensors: leaves of one dtype on the CPU, in the order of the step that trains them.

    Attributes:
        values, grads: [P]. moments: [2, P].
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)
        for i, tensor in enumerate(self.tensors):
            if tensor.device.type != "cpu":
                raise UnsupportedError(
                    f"tensors[{i}] is on '{tensor.device}', whole steps are compiled for the CPU"
                )
            if tensor.dtype not in FLOATS or tensor.dtype != self.tensors[0].dtype:
                raise InvalidInputError(
                    f"tensors[{i}] is {tensor.dtype}, allowed are float32 and float64, one for all"
                )
        with torch.no_grad():
            self.values = torch.cat([t.detach().reshape(-1) for t in self.tensors])
            self.grads = torch.zeros_like(self.values)
            self.moments = self.values.new_zeros(2, self.values.numel())
            first = 0
            for tensor in self.tensors:
                part = slice(first, first + tensor.numel())
                tensor.data = self.values[part].view(tensor.shape)
                tensor.grad = self.grads[part].view(tensor.shape)
                first = part.stop

    def gradients(self) -> list[Tensor]:
        """Copies of the gradients of the last step, in the order and shapes of `tensors`."""
        return self.split(self.grads.clone())

    def split(self, flat: Tensor) -> list[Tensor]:
        """Views of a flat tensor [P] in the order and shapes of `tensors`."""
        parts = flat.split([t.numel() for t in self.tensors])
        return [p.view(t.shape) for p, t in zip(parts, self.tensors, strict=True)]


class FrameProduct:
    """The normalised adjacency of a frame and its transpose, partition by partition.

    Args:
        vertices: N.
        dtype: of the steps it is for.
    """

    def __init__(self, vertices: int, dtype: torch.dtype = torch.float32) -> None:
        if dtype not in FLOATS:
            raise InvalidInputError(f"dtype is {dtype}, allowed are float32 and float64")
        native = extension(torch.device("cpu"))
        made = native.FrameProduct if dtype == torch.float32 else native.FrameProductDouble
        self.vertices = vertices
        self.dtype = dtype
        self.forward, self.backward = made(vertices), made(vertices)

    @property
    def steps(self) -> int:
        """Snapshots so far."""
        return self.forward.steps

    def multiply(self, x: Tensor, y: Tensor, width: int, *, transposed: bool = False) -> None:
        """y = A-hat x as a step does it, or with the transposes.

        Args:
            x, y: [T * N * width], contiguous, partitions one behind another, rows of each
                partition's snapshots side by side.
            width: floats a vertex.
            transposed: multiply as the backward pass does.

        Raises:
            ValueError: x or y of another size or dtype.
        """
        native = self.backward if transposed else self.forward
        native.multiply(x, y, width, torch.get_num_threads())

    def add(
        self, topology: Csr | PartTopology, row_scale: Tensor, col_scale: Tensor, width: int
    ) -> None:
        """Append what comes next in time: a snapshot, or a partition of several that is merged.

        Args:
            topology: N x N.
            row_scale, col_scale: [N, S] of a partition of S snapshots; [N] or [N, 1] of one.
            width: floats a vertex that it will be multiplied with, to choose the order of rows.

        Raises:
            InvalidInputError: a broken topology, or scales of another shape.
        """
        if isinstance(topology, Csr):
            prepared, over, snapshots = prepare(topology), topology, 1
        else:
            prepared, over = prepare_parts(topology), topology.over
            snapshots = topology.num_snapshots
        if (over.num_rows, over.num_cols) != (self.vertices, self.vertices):
            raise InvalidInputError(
                f"topology is {over.num_rows} x {over.num_cols}, expected {self.vertices} in both"
            )
        scales = []
        for name, scale in (("row_scale", row_scale), ("col_scale", col_scale)):
            one_snapshot = snapshots == 1 and scale.shape == (self.vertices,)
            if not one_snapshot and scale.shape != (self.vertices, snapshots):
                raise InvalidInputError(
                    f"{name} has shape {list(scale.shape)}, expected [{self.vertices}, {snapshots}]"
                )
            scales.append(scale.detach().to(self.dtype).contiguous())
        ordered = snapshots * width <= ORDERED_WIDTH
        forward = prepared.forward(over, self.dtype, ordered)
        self.forward.add(snapshots, *forward, *scales)
        backward = prepared.transposed(over, self.dtype, ordered)
        self.backward.add(snapshots, *backward, *scales[::-1])


def tgcn_model_step(
    flat: FlatParameters,
    x: Tensor,
    target: Tensor,
    hidden: int,
    *,
    every: bool = False,
    adam: Adam | None = None,
    output: Tensor | None = None,
) -> float:
    """One training step of the T-GCN model (Zhao et al.) with a node head.

    Args:
        flat: for each gate z, r, h: the convolution's weight [F, H] and bias [H], the linear
            layer's weight [H, 2 H] and bias [H]; then the head's weight [1, H] and bias [1].
        x: A-hat X of the frame, [T, N, F]; any stride but between features.
        target: [T, N]; the last row alone is read without `every`.
        hidden: H.
        every: the loss is the mean over all steps, else that of the last.
        adam: update the parameters; None leaves them and only makes gradients.
        output: where the last state goes, [N, H].

    Returns:
        The loss before the update.

    Raises:
        InvalidInputError: a shape, dtype or device that does not fit.
    """
    _check(flat, "x", x, (None, None, None))
    _check(flat, "target", target, (x.shape[0], x.shape[1]))
    if output is not None:
        _check(flat, "output", output, (x.shape[1], hidden))
    size = 3 * (x.shape[2] + 2 + 2 * hidden) * hidden + hidden + 1
    _check_size(flat, size, f"x {list(x.shape)} and hidden {hidden}")
    return _call("tgcn_model_step", flat, adam, x, target, hidden, every, output)


def evolvegcn_step(
    flat: FlatParameters,
    x: Tensor,
    product: FrameProduct,
    target: Tensor,
    hidden: int,
    *,
    every: bool = True,
    adam: Adam | None = None,
    output: Tensor | None = None,
) -> float:
    """One training step of EvolveGCN-O with GRU cells and a node head.

    The second layer has no activation behind it, so the head is multiplied into its weights, and
    one number a vertex is aggregated instead of H.

    Args:
        flat: for both layers: the initial weight [F, H] or [H, H], then weight_ih and weight_hh
            [3 H, H], bias_ih and bias_hh [3 H] of the cell; then the head's weight [1, H] and
            bias [1].
        x: A-hat X of the frame, [T, N, F]; any stride but between features.
        product: A-hat of the frame's T snapshots.
        target, hidden, every, adam, output: as in `tgcn_model_step`; the output is the second
            layer's for the last snapshot.

    Returns:
        The loss before the update.

    Raises:
        InvalidInputError: a shape, dtype or device that does not fit.
    """
    _check(flat, "x", x, (None, None, None))
    _check(flat, "target", target, (x.shape[0], x.shape[1]))
    _check_product(product, x)
    if output is not None:
        _check(flat, "output", output, (x.shape[1], hidden))
    size = (x.shape[2] + hidden + 12 * (hidden + 1)) * hidden + hidden + 1
    _check_size(flat, size, f"x {list(x.shape)} and hidden {hidden}")
    sides = product.forward, product.backward
    return _call("evolvegcn_step", flat, adam, x, *sides, target, hidden, every, output)


def mpnn_lstm_step(
    flat: FlatParameters,
    x: Tensor,
    raw: Tensor,
    product: FrameProduct,
    target: Tensor,
    hidden: int,
    *,
    norm_eps: float = EPS,
    adam: Adam | None = None,
    output: Tensor | None = None,
) -> float:
    """One training step of MPNN-LSTM with a node head, scored at the last snapshot.

    Args:
        flat: weight and bias of both convolutions, weight and bias of both norms, then weight_ih,
            weight_hh, bias_ih and bias_hh of both LSTMs; then the head's weight
            [1, 2 H + F + T - 1] and bias [1].
        x: A-hat X of the frame, dense [T, N, F] with T N of 2 or more.
        raw: X of the frame, [T, N, F], for the skip columns; any stride but between features.
        product: A-hat of the frame's T snapshots.
        target: [N], of the last snapshot.
        norm_eps: added to the variances of both norms.
        hidden, adam: as in `tgcn_model_step`.
        output: where the last snapshot's output goes, [N, 2 H + F + T - 1].

    Returns:
        The loss before the update.

    Raises:
        InvalidInputError: a shape, dtype or device that does not fit, or a frame of a single row.
    """
    _check(flat, "x", x, (None, None, None))
    _check(flat, "raw", raw, tuple(x.shape))
    _check(flat, "target", target, (x.shape[1],))
    _check_product(product, x)
    steps, vertices, features = x.shape
    if steps * vertices < 2:
        raise InvalidInputError(f"x has shape {list(x.shape)}, a norm needs two rows or more")
    width = 2 * hidden + features + steps - 1
    if output is not None:
        _check(flat, "output", output, (vertices, width))
    size = (features + 20 * hidden + hidden + 22) * hidden + width + 1
    _check_size(flat, size, f"x {list(x.shape)} and hidden {hidden}")
    sides = product.forward, product.backward
    return _call(
        "mpnn_lstm_step", flat, adam, x.contiguous(), raw, *sides, target, hidden, norm_eps, output
    )


def _call(name: str, flat: FlatParameters, adam: Adam | None, *arguments: object) -> float:
    """The compiled step `name`, with an update where `adam` is given."""
    moments, settings = None, (0, 0.0, 0.0, 0.0, 1.0, 0.0)
    if adam is not None:
        moments = flat.moments
        adam.updates += 1
        settings = (adam.updates, adam.rate, adam.beta_1, adam.beta_2, adam.eps, adam.decay)
    step = getattr(extension(flat.values.device), name)
    threads = torch.get_num_threads()
    return step(flat.values, flat.grads, moments, *arguments, *settings, threads)


def _check(flat: FlatParameters, name: str, tensor: Tensor, shape: tuple[int | None, ...]) -> None:
    if tensor.dim() != len(shape) or any(
        found < 1 or (wanted is not None and found != wanted)
        for found, wanted in zip(tensor.shape, shape, strict=False)
    ):
        wanted = ", ".join("1 or more" if size is None else str(size) for size in shape)
        raise InvalidInputError(f"{name} has shape {list(tensor.shape)}, expected [{wanted}]")
    if tensor.dtype != flat.values.dtype or tensor.device != flat.values.device:
        raise InvalidInputError(
            f"{name} is {tensor.dtype} on '{tensor.device}', expected {flat.values.dtype} on "
            f"'{flat.values.device}' as the parameters"
        )


def _check_product(product: FrameProduct, x: Tensor) -> None:
    found = product.steps, product.vertices, product.dtype
    if found != (x.shape[0], x.shape[1], x.dtype):
        raise InvalidInputError(
            f"product is of {found[0]} snapshots, {found[1]} vertices and {found[2]}, expected "
            f"{x.shape[0]}, {x.shape[1]} and {x.dtype} as x"
        )


def _check_size(flat: FlatParameters, size: int, about: str) -> None:
    if flat.values.numel() != size:
        raise InvalidInputError(
            f"flat holds {flat.values.numel()} numbers, expected {size} for {about}"
        )
