"""Digest of loaded data: equal where two hosts would train on the same numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

import msgspec
import torch
from torch import Tensor

SKIPPED: Final = ("origin", "spec", "notes")
"""Fields that say where data came from, and not what it is."""


def digest(data: Any) -> str:
    """SHA-256 over all tensors, numbers and words of a container of the datasets floor."""
    found = hashlib.sha256()
    _add(found, data)
    return found.hexdigest()


def _add(found: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous()
        found.update(f"{value.dtype}{list(value.shape)}".encode())
        if value.numel():
            found.update(value.reshape(-1).view(torch.uint8).numpy())
    elif is_dataclass(value):
        for field in fields(value):
            if field.name not in SKIPPED and field.init and field.compare:
                found.update(field.name.encode())
                _add(found, getattr(value, field.name))
    elif isinstance(value, msgspec.Struct):
        found.update(msgspec.json.encode(value))
    elif isinstance(value, Mapping):
        for key in sorted(value):
            _add(found, (key, value[key]))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        found.update(f"[{len(value)}]".encode())
        for one in value:
            _add(found, one)
    else:
        found.update(repr(value).encode())
