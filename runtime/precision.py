"""Precision of float32 products, and other settings of torch that results and times hang on."""

from __future__ import annotations

from typing import Any


def plain_products() -> None:
    """Let a process multiply float32 in float32, and nothing in less.

    torch lets cuDNN, whose LSTM and GRU a baseline may run, round factors to TF32 unless told
    otherwise. That is 1e-3 off where 1e-5 is allowed, and no contender here has asked for it.
    """
    import torch

    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def torch_settings() -> dict[str, Any]:
    """Settings of torch that change results or times, by the names that people know."""
    import torch

    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return {
        "default dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "autocast": torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"),
        "TF32": bool(cuda.allow_tf32 or cudnn.allow_tf32),
        "reduced sums in float16": bool(cuda.allow_fp16_reduced_precision_reduction),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "flushed denormal numbers": _flushes(),
    }


def _flushes() -> bool:
    """Return True if numbers below the normal ones count as 0 in this thread."""
    import torch

    return float(torch.tensor(1e-39) * 1.0) == 0.0


def changed_settings(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Sentences on settings that a process has changed."""
    return [
        f"it set torch's {name} to {now[name]}, it was {value}"
        for name, value in before.items()
        if now[name] != value
    ]
