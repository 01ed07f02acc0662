"""JSON and YAML that somebody else wrote: what it says, or one kind of error, never a crash."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

DEEPEST: Final = 100
"""Levels of a YAML document. libyaml's loader is recursive in C: far deeper ends the process."""

# libyaml's loader gives the same values as the one in Python, about ten times as fast.
_SAFE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSES = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


def decode_json(text: bytes, kind: Any = Any) -> Any:
    """A value of `kind` from JSON.

    Raises:
        msgspec.DecodeError: it is not JSON, not of the kind, not UTF-8, or nested too deeply.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"JSON is UTF-8: {error.reason}, byte {error.start}") from None
    except RecursionError:
        raise msgspec.DecodeError("JSON is nested too deeply") from None


class _Once(_SAFE):  # type: ignore[misc, valid-type]
    """Refuses a mapping that says one key twice, of which YAML keeps the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    said = f"the key '{key.value}' stands twice in one mapping"
                    raise yaml.constructor.ConstructorError(None, None, said, key.start_mark)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def load_yaml(text: bytes) -> Any:
    """The plain values of a YAML document (UTF-8): no tags of Python, no aliases, no key twice.

    Raises:
        yaml.YAMLError: for anything else; `problem` and `problem_mark` where they are known.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_SAFE):
        depth += isinstance(event, _OPENS) - isinstance(event, _CLOSES)
        if depth > DEEPEST:
            raise _error(f"more than {DEEPEST} levels", event)
        if isinstance(event, yaml.AliasEvent):  # a few lines of them are a terabyte of text
            raise _error("aliases (*name) are not allowed", event)
    try:
        return yaml.load(text, Loader=_Once)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        # PyYAML's constructors: 2001-99-99, 0b, !!bool x, a number of 5000 digits, !!timestamp x
        raise _error(f"a value is not what its form says: {error}") from None


def _error(problem: str, event: Any = None) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event and event.start_mark)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under a temporary name and put it in place, so that no half of it is ever seen.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
