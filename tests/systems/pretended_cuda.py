"""A device that this machine does not have: tensors that say 'cuda:0' and lie in memory.

What computes with them is the CPU, so results can be compared, but a tensor of the CPU and one of
the device in one operation raise as they would on a GPU, and so do numpy and compiled operators
that are handed the wrong ones. What a GPU would copy on the side (a CPU's index into a device's
tensor) is refused, too. Copies in either direction are noted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from dgbench.runtime.touched import note_launch

DEVICE = torch.device("cuda", 0)


class MixedDevices(RuntimeError):
    """An operation on tensors of two devices."""


class Pretended(Tensor):
    """A tensor on the device.

    To C++ it is of the device `meta`, which autograd can handle without a driver; Python is told
    another one.

    Attributes:
        inner: the tensor in memory that holds its numbers.
    """

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> Pretended:
        return Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device="meta",
        )  # fmt: skip

    def __init__(self, inner: Tensor) -> None:
        assert type(inner) is Tensor
        self.inner = inner

    device = property(lambda self: DEVICE)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]
    is_meta = property(lambda self: False)  # type: ignore[assignment]

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    def data_ptr(self) -> int:
        raise MixedDevices("the address of a device's tensor was asked for")

    def numpy(self, **_: Any) -> Any:
        raise MixedDevices("numpy cannot read a device's tensor")

    __array__ = numpy

    def tolist(self) -> Any:
        CURRENT.noted["to_host"] += 1
        return self.inner.tolist()

    def cpu(self) -> Tensor:
        CURRENT.noted["to_host"] += 1
        return _Home.apply(self)

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        there = kwargs.pop("device", None)
        if func is torch.ops.aten.where.self:
            # The backward pass of `where` makes its zero where it thinks that the gradient lies.
            if sum(_is_real(x) for x in args) < 2:
                raise MixedDevices("both numbers of a 'where' in C++ are lost")
            args = tuple(x if _is_real(x) else torch.zeros((), dtype=x.dtype) for x in args)
        given, _ = tree_flatten((args, kwargs))
        if func is torch.ops.aten._local_scalar_dense.default:
            CURRENT.noted["to_host"] += 1
        if _has_unknown_size(func, args):
            CURRENT.noted["sized"] += 1
        for x in given:
            # A number of no dimension may come from the host: it travels with the launch.
            if isinstance(x, Tensor) and not isinstance(x, Pretended) and x.dim():
                if func is not torch.ops.aten.copy_.default:
                    raise MixedDevices(f"{func} on '{DEVICE}' was given a tensor of '{x.device}'")
                CURRENT.noted["copied"] += 1
        if there is not None and torch.device(there).type == "cpu":
            raise MixedDevices(f"{func} would make a tensor of the CPU from one of '{DEVICE}'")
        inner = func(*tree_map(_inside, args), **tree_map(_inside, kwargs))
        if func is torch.ops.aten.copy_.default and not isinstance(args[0], Pretended):
            return args[0]
        if func._schema.is_mutable and func._schema.returns:
            return kwargs["out"] if "out" in kwargs else args[0]
        return tree_map(_outside, inner)


class _Home(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Pretended) -> Tensor:
        return x.inner.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return Pretended(gradient.detach().clone())


class Pretence(TorchFunctionMode):
    """Lets tensors be made on and brought to the device.

    Attributes:
        noted: how often something came to the device (`to_device`), the host read (`to_host`), or
            was copied between both into memory that was there (`copied`); how often a number was
            sent home without a wait (`read_back`), and the host waited for the device (`waits`):
            also for a copy to it (`blocking`), as it does unless that comes from page-locked memory
            and need not be over, and for the size of a result (`sized`).
    """

    def __init__(self) -> None:
        super().__init__()
        self.noted: Counter[str] = Counter()
        self._locked: set[int] = set()

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is Tensor.to:
            return self._brought(args, kwargs)
        if func is Tensor.pin_memory:
            locked = args[0].clone()
            self._locked.add(locked.untyped_storage().data_ptr())
            return locked
        if func is Tensor.__setitem__ and isinstance(args[0], Pretended):
            x, index, value = args
            if isinstance(value, (bool, int, float)):
                # C++ would make a tensor of the number where it thinks that x lies.
                assert not x.requires_grad
                _check_index(index)
                x.inner[tree_map(_inside, index)] = value
                return None
        if func is torch.where and any(isinstance(x, Pretended) for x in args):
            # C++ would make a tensor of a number where it thinks that the others lie.
            dtype = next(x.dtype for x in args[1:] if isinstance(x, Tensor))
            args = tuple(x if isinstance(x, Tensor) else torch.tensor(x, dtype=dtype) for x in args)
        where = kwargs.get("device")
        if where is None or torch.device(where).type == "meta":
            return func(*args, **kwargs)
        del kwargs["device"]
        wanted = torch.device(where).type == "cuda"
        if any(isinstance(x, Pretended) for x in args):
            if not wanted:
                raise MixedDevices(f"{func} of a device's tensor for '{where}'")
            return func(*args, **kwargs)
        made = func(*args, **kwargs)
        if not wanted:
            return made
        if func in (torch.tensor, torch.as_tensor, torch.asarray):
            return self._there(made)
        return Pretended(made.detach()).requires_grad_(made.requires_grad)

    def _brought(self, args: tuple, kwargs: dict) -> Tensor:
        x, *rest = args
        where = kwargs.pop("device", None)
        for i, argument in enumerate(rest):
            if isinstance(argument, (str, torch.device, Tensor)):
                where = argument.device if isinstance(argument, Tensor) else argument
                rest[i : i + 1] = [argument.dtype] if isinstance(argument, Tensor) else []
                break
        if rest and rest[0] is None:
            rest = rest[1:]
        behind = kwargs.pop("non_blocking", False)
        kind = "" if where is None else torch.device(where).type
        if kind == "meta":
            return Tensor.to(x, where, *rest, **kwargs)
        found = x
        if kind == "cuda":
            found = self._there(x, behind=behind)
        elif kind and isinstance(x, Pretended):
            found = x.cpu()
        return Tensor.to(found, *rest, **kwargs) if rest or kwargs else found

    def _there(self, x: Tensor, *, behind: bool = False) -> Tensor:
        if isinstance(x, Pretended):
            return x
        self.noted["to_device"] += 1
        if not behind or x.untyped_storage().data_ptr() not in self._locked:
            self.noted["blocking"] += 1
        found = Pretended(x.detach().clone().as_subclass(Tensor))
        return found.requires_grad_(x.requires_grad)


THREADED = {"interact_dots": 5, "interact_sums": 7, "time_lstm": 6, "time_lstm_backward": 8}
"""Operators of the CPU that take a number of threads, and what they take before it."""


class _Operators:
    """The compiled operators of the CPU for tensors of the device."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)

        def checked(*args: Any) -> Any:
            given, _ = tree_flatten(args)
            for x in given:
                if isinstance(x, Tensor) and not isinstance(x, Pretended):
                    raise MixedDevices(f"the operator {name} of '{DEVICE}' was given '{x.device}'")
            note_launch()
            # A device's end in scratch and a stream, the CPU's in a number of threads.
            given = tree_map(_inside, args)
            return function(*given[: THREADED[name]], 1) if name in THREADED else function(*given)

        return checked


CURRENT = Pretence()
"""Takes notes; replaced by each `pretended_cuda`."""


class PretendedEvent:
    """An event of a device on which every event comes `TICK_MS` after the one before."""

    TICK_MS = 1e-3
    recorded = 0

    def __init__(self, **_: Any) -> None:
        self.at = 0

    def record(self, stream: Any = None) -> None:
        PretendedEvent.recorded += 1
        self.at = PretendedEvent.recorded

    def query(self) -> bool:
        return False

    def synchronize(self) -> None:
        CURRENT.noted["event_waits"] += 1

    def elapsed_time(self, end: PretendedEvent) -> float:
        return self.TICK_MS * (end.at - self.at)


@contextmanager
def pretended_cuda(patch: Any) -> Iterator[Pretence]:
    """A machine with one such device, as far as dgbench asks for it.

    Args:
        patch: pytest's `monkeypatch`, or anything with its `setattr`.
    """
    global CURRENT
    from dgbench.kernels_cuda import _dispatch, build_info
    from dgbench.kernels_cuda.csr import check as csr_check
    from dgbench.kernels_cuda.interact import op as interact
    from dgbench.kernels_cuda.scan import op as scan
    from dgbench.kernels_cuda.transpose import op as transpose
    from dgbench.runtime import readback

    real = build_info.extension

    def extension(device: torch.device) -> Any:
        return _Operators(real(torch.device("cpu"))) if device.type == "cuda" else real(device)

    def stream_of(device: torch.device) -> tuple[int, ...]:
        return ()

    for module in (_dispatch, build_info, csr_check, scan, transpose):
        for name, made in (("extension", extension), ("stream_of", stream_of)):
            if hasattr(module, name):
                patch.setattr(module, name, made)

    def group_rows(rows: Pretended, num_rows: int) -> tuple[Tensor, Tensor]:
        # A backward pass, whose thread makes no tensors of the device, asks for it, too.
        groups = interact.group_edges(rows.inner, num_rows)
        return Pretended(groups.offsets), Pretended(groups.order)

    patch.setattr(interact, "group_rows", group_rows)
    patch.setattr(torch.cuda, "is_available", lambda: True)
    patch.setattr(torch.cuda, "device_count", lambda: 1)
    CURRENT = Pretence()

    def synchronize(*_: Any) -> None:
        CURRENT.noted["waits"] += 1

    def copy_to_host(tensor: Pretended) -> tuple[Tensor, Any]:
        CURRENT.noted["read_back"] += 1
        return tensor.inner.clone(), SimpleNamespace(synchronize=synchronize)

    patch.setattr(readback, "copy_to_host", copy_to_host)
    patch.setattr(torch.cuda, "synchronize", synchronize)
    patch.setattr(torch.cuda, "Event", PretendedEvent)
    patch.setattr(torch.cuda, "current_stream", lambda *_: None)
    with CURRENT:
        yield CURRENT


_OPS = torch.ops.aten
_SIZED = {
    _OPS.nonzero.default, _OPS.masked_select.default, _OPS.bincount.default, _OPS._unique2.default,
    _OPS.unique_consecutive.default, _OPS.unique_dim.default, _OPS.repeat_interleave.Tensor,
}  # fmt: skip
"""Operations whose result is as long as the device finds it."""
_INDEXED = {_OPS.index.Tensor, _OPS.index_put.default, _OPS.index_put_.default}


def _has_unknown_size(func: Any, args: tuple) -> bool:
    """Return True if the host waits for the device to know how long a result is."""
    if func in _INDEXED:
        return any(isinstance(x, Tensor) and x.dtype == torch.bool for x in args[1])
    return func in _SIZED


def _check_index(index: Any) -> None:
    for x in tree_flatten(index)[0]:
        if isinstance(x, Tensor) and not isinstance(x, Pretended):
            raise MixedDevices(f"a tensor of '{DEVICE}' was indexed by one of '{x.device}'")


def _is_real(x: Tensor) -> bool:
    """Return True if a tensor has numbers, here or on the device."""
    return isinstance(x, Pretended) or x.device.type != "meta"


def _inside(x: Any) -> Any:
    return x.inner if isinstance(x, Pretended) else x


def _outside(x: Any) -> Any:
    return Pretended(x) if type(x) is Tensor else x
