"""Ranks on the devices of this machine: how many there are, and why so many cannot train."""

from __future__ import annotations


def gpu_count() -> int:
    """CUDA devices of this machine."""
    import torch

    return torch.cuda.device_count()


def devices_lacking(ranks: int, device: str) -> str:
    """Why so many ranks cannot train on this kind of device, each on its own; "" if they can."""
    there = gpu_count() if device == "cuda" else ranks
    if there >= ranks:
        return ""
    needed = "a CUDA device" if ranks == 1 else f"{ranks} CUDA devices"
    return f"needs {needed}, {there or 'none'} {'is' if there < 2 else 'are'} here"
