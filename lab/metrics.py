"""Metrics and dimensions: what may be observed, and what an observation may be told apart by.

A metric's name is an identifier of what was observed; its unit follows from its kind, and what it
was observed of stands in dimensions. A paper adds what only it observes, where it is imported:

    metrics.add("chunks", "count", "chunks that a partition was cut into")
    metrics.add_dimension("theta", float, "threshold below which a row counts as unchanged")
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, unknown_key

Kind = Literal["time", "rate", "count", "bytes", "ratio", "score", "share"]
Source = Literal["counted", "printed", "learned", "timed", "probed", "projected"]
"""Way in which a number was obtained: counted or computed exactly, whatever the machine; as who
published a dataset prints it (see `STATED`); from what a model learned (with its seed); by a clock;
by a probe of the machine; by a model of another."""
SOURCES: Final[tuple[Source, ...]] = (
    "counted", "printed", "learned", "timed", "probed", "projected",
)  # fmt: skip
"""From the source that depends on least to the one that depends on most."""
UNITS: Final[dict[str, str]] = {
    "time": "s", "rate": "1/s", "count": "", "bytes": "B", "ratio": "x", "score": "", "share": "",
}  # fmt: skip
"""Kind -> unit. A share is a fraction of 1; a score is any other number."""
STATED: Final = "stated"
"""Value of the dimension `method` or `setting` of a number that was printed by who published a
dataset, and not obtained here."""
PROBE: Final = "probe"
"""Name under which a reading of a probe is noted; no metric."""
EXACT: Final = ("count", "bytes")
"""Kinds that are integers; two processes of a cell must agree on them, unless told otherwise."""

_SOURCE_OF_KIND: Final[dict[str, Source]] = {
    "time": "timed", "rate": "timed", "count": "counted", "bytes": "counted", "ratio": "timed",
    "score": "counted", "share": "counted",
}  # fmt: skip

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z][a-z0-9]*)*")
_UNIT_WORDS: Final = frozenset(
    "s ms us ns sec seconds b kb mb gb kib mib gib bytes byte percent pct hz per".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Metric:
    """Name, kind and short description (without unit) of an observed quantity."""

    name: str
    kind: Kind
    about: str

    @property
    def unit(self) -> str:
        """The unit of its values: s, 1/s, B, x or none."""
        return UNITS[self.kind]

    @property
    def exact(self) -> bool:
        """True if its values are integers that do not depend on a clock."""
        return self.kind in EXACT


@dataclass(frozen=True, slots=True)
class Dimension:
    """Name, value type and description of a dimension that distinguishes observations of one
    metric."""

    name: str
    type: type
    about: str


METRICS: dict[str, Metric] = {}
DIMENSIONS: dict[str, Dimension] = {}


def add(name: str, kind: Kind, about: str) -> Metric:
    """Register a metric, or find it where it is registered with the same kind.

    Raises:
        InvalidInputError: the name is no identifier, holds a unit, a number or a dimension, the
            kind is unknown, or the name is taken by a metric of another kind.
    """
    words = name.split("_")
    if not _NAME.fullmatch(name):
        why = "is not words of a to z and digits, joined by _"
    elif taken := _UNIT_WORDS & set(words):
        why = f"holds a unit ('{min(taken)}'), which follows from its kind"
    elif name in DIMENSIONS:
        why = "is the name of a dimension"
    elif kind not in UNITS:
        raise unknown_key("kind", kind, UNITS, of=f"metric {name}")
    elif name in METRICS and METRICS[name].kind != kind:
        why = f"is taken by a {METRICS[name].kind}: {METRICS[name].about}"
    else:
        return METRICS.setdefault(name, Metric(name, kind, about))
    raise InvalidInputError(f"the metric '{name}' {why}")


def add_dimension(name: str, type_: type, about: str) -> Dimension:
    """Register a dimension, or find it where it is registered with the same type.

    Raises:
        InvalidInputError: the name is no identifier, or taken by one of another type.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInputError(f"the dimension '{name}' is not words of a to z joined by _")
    found = DIMENSIONS.setdefault(name, Dimension(name, type_, about))
    if found.type is not type_:
        raise InvalidInputError(
            f"the dimension '{name}' is taken by one of {found.type.__name__}: {found.about}"
        )
    return found


def metric(name: str) -> Metric:
    """The metric called `name`. Raises UnknownKeyError, which names the nearest."""
    if name not in METRICS:
        raise unknown_key("metric", name, METRICS)
    return METRICS[name]


def source(name: str, declared: Mapping[str, Source] | None = None) -> Source:
    """Return how the numbers of a metric were obtained.

    Args:
        name: of a metric, or `probe` for what a probe read.
        declared: sources by metric that the experiment declares, where its way differs.
    """
    if declared and name in declared:
        return declared[name]
    if name == PROBE:
        return "probed"
    from dgbench.lab.catalogue import SOURCES as named

    return named.get(name) or _SOURCE_OF_KIND[metric(name).kind]


def dimension(name: str) -> Dimension:
    """The dimension called `name`. Raises UnknownKeyError, which names the nearest."""
    if name not in DIMENSIONS:
        raise unknown_key("dimension", name, DIMENSIONS)
    return DIMENSIONS[name]


def check_value(name: str, value: object) -> None:
    """Raise InvalidInputError where a value is none that the dimension takes."""
    wanted = dimension(name).type
    allowed = (int, float) if wanted is float else (wanted,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and wanted is not bool):
        raise InvalidInputError(f"the dimension '{name}' takes {wanted.__name__}, found {value!r}")


def own(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Kind and words of those metrics that are a plugin's: rows carry them, for other readers."""
    return {
        name: (METRICS[name].kind, METRICS[name].about)
        for name in dict.fromkeys(names)
        if name in METRICS and name not in _OURS
    }


def adopt(found: Mapping[str, Sequence[str]]) -> None:
    """Register metrics that a row carries, where nobody has yet; what breaks the rules is not."""
    for name, (kind, about) in found.items():
        if name not in METRICS:
            with suppress(InvalidInputError, UnknownKeyError):
                add(name, kind, about)  # type: ignore[arg-type]


def _load() -> None:
    from dgbench.lab.catalogue import DIMENSIONS as dimensions
    from dgbench.lab.catalogue import METRICS as known

    for name, (type_, about) in dimensions.items():
        add_dimension(name, type_, about)
    for kind, names in known.items():
        for name, about in names.items():
            add(name, kind, about)  # type: ignore[arg-type]


_load()
_OURS: Final = frozenset(METRICS)
