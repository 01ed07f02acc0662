"""Reading a ledger of claims, strictly: a misspelt key must never silently weaken a claim."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from dgbench.lab.paper import Claim
from dgbench.runtime.documents import load_yaml
from dgbench.runtime.errors import InvalidInputError, unknown_key

_FIELDS = tuple(field.name for field in msgspec.structs.fields(Claim))


class _Needs(msgspec.Struct):
    gpus: Annotated[int, msgspec.Meta(ge=0)] | None = None
    cpu_only_ok: bool = False
    real_dataset_required: bool = False


_NEEDS = _Needs.__struct_fields__


def load_ledger(path: Path | None) -> list[Claim]:
    """Read `claims.yaml`: a list of claims, in the order of the paper; none without a path.

    Raises:
        InvalidInputError: the file cannot be read, is not YAML, is not a list of claims, holds an
            unknown or mistyped key, or names an id twice. The message has path and id.
        UnknownKeyError: a key of a claim is misspelt; the nearest names are suggested.
    """
    if path is None:
        return []
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"ledger {path} cannot be read: {error.strerror}",
            hint="a paper names its ledger in Paper.ledger; is the file part of the package?",
        ) from error
    return list(_claims(path, text))


@lru_cache(maxsize=16)  # a report and its tests ask for the same ledgers over and over
def _claims(path: Path, text: bytes) -> tuple[Claim, ...]:
    try:
        entries = load_yaml(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", "not valid YAML")
        raise InvalidInputError(f"ledger {path}{line}: {problem}") from error
    if not isinstance(entries, list) or not entries:
        raise InvalidInputError(
            f"ledger {path} must be a list of claims, found {type(entries).__name__}",
            hint="each entry starts with '- id: <paper>-<what>'",
        )
    claims: list[Claim] = []
    seen: dict[str, int] = {}
    for position, entry in enumerate(entries, 1):
        claim = _claim(path, position, entry)
        if claim.id in seen:
            raise InvalidInputError(
                f"ledger {path}: id '{claim.id}' is used by entries "
                f"{seen[claim.id]} and {position}",
                hint="every claim has an id of its own",
            )
        seen[claim.id] = position
        claims.append(claim)
    return tuple(claims)


def _claim(path: Path, position: int, entry: Any) -> Claim:
    if not isinstance(entry, dict):
        raise InvalidInputError(
            f"ledger {path}, entry {position} must be a mapping, found {type(entry).__name__}"
        )
    name = entry.get("id", f"entry {position}")
    for key in entry:
        if key not in _FIELDS:
            raise unknown_key("key", str(key), _FIELDS, of=f"claim '{name}' in {path}")
    # A ledger writes `baseline: null` for "none"; the same habit on text fields means "".
    texts = ("subject", "twin_reason", "notes")
    cleaned = {k: ("" if v is None and k in texts else v) for k, v in entry.items()}
    try:
        claim = msgspec.convert(cleaned, Claim)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"ledger {path}, claim '{name}': {error}") from error
    for key in claim.needs:
        if key not in _NEEDS:
            raise unknown_key("key", str(key), _NEEDS, of=f"needs of claim '{name}' in {path}")
    for key in ("id", "statement"):
        if not getattr(claim, key).strip():
            raise InvalidInputError(f"ledger {path}, claim '{name}': '{key}' is empty")
    try:
        msgspec.convert(claim.needs, _Needs)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"ledger {path}, claim '{name}', needs: {error}") from error
    if strange := _strange(claim.value):
        raise InvalidInputError(
            f"ledger {path}, claim '{name}': value holds {strange}",
            hint="finite numbers, words, lists and mappings of them are allowed",
        )
    if claim.tolerance is not None and not 0 <= claim.tolerance < 1:
        raise InvalidInputError(
            f"ledger {path}, claim '{name}': tolerance must be at least 0 and below 1, "
            f"found {claim.tolerance}"
        )
    return claim


def _strange(value: Any) -> str:
    """First part of a printed value that is no number, word, list or mapping, or ""."""
    if isinstance(value, dict):
        return next(filter(None, map(_strange, [*value, *value.values()])), "")
    if isinstance(value, list):
        return next(filter(None, map(_strange, value)), "")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    plain = value is None or isinstance(value, str | int | float)
    return "" if plain else f"{type(value).__name__} {value}"
