"""A workload from words of a command line: `FIELD=VALUE`, the value as JSON or as a plain word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from dgbench.runtime.errors import InvalidInputError, unknown_key


def workload_from(kind: type[msgspec.Struct], words: Sequence[str], **given: Any) -> Any:
    """A checked workload of a class.

    Args:
        kind: class of the workload, with a `check`.
        words: one `FIELD=VALUE` for each field that is not at its default.
        given: fields by name, which no word may name again.

    Raises:
        InvalidInputError, UnknownKeyError: words that say no field, or a value out of range.
    """
    types, values = get_type_hints(kind), dict(given)
    for text in words:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidInputError(
                f"'{text}' sets nothing, allowed: FIELD=VALUE", hint="such as hidden_dim=8"
            )
        if name not in kind.__struct_fields__:
            raise unknown_key("field", name, kind.__struct_fields__, of=kind.__name__)
        if name in values:
            raise InvalidInputError(f"'{name}' is set twice: {values[name]!r} and '{value}'")
        values[name] = _value(name, value, types[name])
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in values:
            allowed = ", ".join(_choices(types[field.name])) or "a value"
            raise InvalidInputError(
                f"{kind.__name__} needs '{field.name}', allowed: {allowed}",
                hint=f"set {field.name}=...",
            )
    return kind(**values).check()  # type: ignore[attr-defined]


def _value(name: str, text: str, wanted: Any) -> Any:
    if (words := _choices(wanted)) and text not in words:
        raise unknown_key(name, text, words)
    value: Any = text
    if wanted is not str and not words:
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            value = text
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"'{name}' is '{text}': {error}") from None


def _choices(wanted: Any) -> tuple[str, ...]:
    return get_args(wanted) if get_origin(wanted) is Literal else ()
