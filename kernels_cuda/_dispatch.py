"""From tensors to the extension module of their device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import to_dlpack

from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.runtime.errors import UnsupportedError


def call(name: str, device: torch.device, *arguments: Any, **named: Any) -> None:
    """Call the compiled operator `name` of `device`.

    The last positional argument is added here: the number of threads torch is set to on the CPU,
    the current stream on CUDA. Arguments by name are optional ones. Tensors of the CPU are handed
    over as capsules: left to ask a tensor itself, the binding takes 2 us for each.

    Raises:
        UnsupportedError: the operator is not compiled for that device, with what to do.
    """
    operator = getattr(extension(device), name, None)
    if operator is None:
        raise UnsupportedError(
            f"operator '{name}' is not compiled for tensors on '{device}'",
            hint="move the tensors to the CPU, or rebuild with `pip install .` where nvcc is",
        )
    if device.type != "cpu":
        operator(*arguments, *stream_of(device), **named)
        return
    threads = torch.get_num_threads()
    try:
        operator(*map(capsule, arguments), threads, **named)
    except TypeError:  # no form fits, or not the first: a capsule can be taken only once
        operator(*arguments, threads, **named)


def capsule(argument: Any) -> Any:
    """Capsule of a tensor of the CPU for a compiled operator; anything else as it is."""
    return to_dlpack(argument) if isinstance(argument, Tensor) else argument
