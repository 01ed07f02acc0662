"""Available compiled operators, their build settings, and reasons for missing ones."""

from __future__ import annotations

import functools
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.touched import note_launch

NOTE_FILE = "_cuda_build.json"


def build_info() -> dict[str, Any]:
    """Describe the two extension modules.

    Returns:
        `{"cpu": {...}, "cuda": {...}}`. Each holds `built` (bool), `reason` (why not, or "") and,
        where built, compiler, flags, architectures or vector width. `cuda.usable` says whether a
        device is there that the module was compiled for; `cuda.device` names it.
    """
    return {"cpu": _cpu_info(), "cuda": _cuda_info()}


def extension(device: torch.device) -> ModuleType:
    """The module whose functions take tensors of `device`.

    Raises:
        UnsupportedError: no compiled operators for that kind of device, with the reason.
    """
    if device.type == "cpu":
        module, reason = _import("_cpu")
    elif device.type == "cuda":
        module, reason = _import("_cuda")
    else:
        module, reason = None, "operators exist for cpu and cuda tensors only"
    if module is None:
        raise UnsupportedError(
            f"no compiled operators for a tensor on '{device}': {reason}",
            hint="move the tensors to the CPU, or rebuild with `pip install .` where nvcc and a "
            "device are (DGBENCH_CUDA=all builds without a device)",
        )
    return module


def stream_of(device: torch.device) -> tuple[int, ...]:
    """The trailing arguments of a compiled call: the current CUDA stream, nothing on the CPU."""
    if device.type != "cuda":
        return ()
    note_launch()
    return (torch.cuda.current_stream(device).cuda_stream,)


@functools.cache
def _import(name: str) -> tuple[ModuleType | None, str]:
    try:
        return importlib.import_module(f"dgbench.kernels_cuda.{name}"), ""
    except ImportError as error:
        note = _build_note().get("reason", "") if name == "_cuda" else ""
        return None, note or f"{name} does not import ({error})"


def _build_note() -> dict[str, Any]:
    """Read the build note of `_cuda` beside the extension modules; {} if there is none."""
    for folder in importlib.import_module("dgbench.kernels_cuda").__path__:
        path = Path(folder) / NOTE_FILE
        if path.is_file():
            return json.loads(path.read_text())
    return {}


def _cpu_info() -> dict[str, Any]:
    module, reason = _import("_cpu")
    if module is None:
        return {"built": False, "reason": reason}
    return {"built": True, "reason": "", **module.build_info()}


def _cuda_info() -> dict[str, Any]:
    module, reason = _import("_cuda")
    note = _build_note()
    if module is None:
        return {"built": False, "usable": False, "reason": reason, **_without(note)}
    info = {"built": True, "reason": "", "usable": False, "device": "", **_without(note)}
    info.update(module.build_info())
    if not torch.cuda.is_available():
        info["reason"] = "built, but torch sees no CUDA device"
        return info
    info["device"] = torch.cuda.get_device_name()
    problem = module.probe()
    info["usable"] = problem == ""
    info["reason"] = problem
    return info


def _without(note: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in note.items() if key not in {"built", "reason"}}
