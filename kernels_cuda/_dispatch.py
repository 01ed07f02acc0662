"""From tensors to the extension module of their device."""

from __future__ import annotations

from typing import Any

import torch

from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.runtime.errors import UnsupportedError


def call(name: str, device: torch.device, *arguments: Any, **named: Any) -> None:
    """Call the compiled operator `name` of `device`.

    The last positional argument is added here: the number of threads torch is set to on the CPU,
    the current stream on CUDA. Arguments by name are optional ones.

    Raises:
        UnsupportedError: the operator is not compiled for that device, with what to do.
    """
    operator = getattr(extension(device), name, None)
    if operator is None:
        raise UnsupportedError(
            f"operator '{name}' is not compiled for tensors on '{device}'",
            hint="move the tensors to the CPU, or rebuild with `pip install .` where nvcc is",
        )
    operator(*arguments, *(stream_of(device) or (torch.get_num_threads(),)), **named)
