"""Reading rows whose metrics had their dimensions in their names, as observations.

Until schema 3 a row kept numbers under names such as `gain tgcn 4`. `<paper>.yaml` says for each
experiment what such a name means: a pattern, the metric, and what its parts are:

    fig9:
      values:
        rate_<snapshots_together>: aggregation_rate    # the number is a dimension
        gain <setting>: {metric: speedup, low: low <setting>, high: high <setting>}
        share_percent: {metric: share_of_peak, scale: 0.01, dims: {link: pcie}}
      samples: step_time

A part is a registered dimension; `<setting=a|b>` allows these values only, and a part of type str
takes any text. The first pattern that fits is used. A name that no pattern fits is not dropped: it
becomes an `unnamed_...` observation with its old name as a dimension. Phases need no pattern.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import yaml
from msgspec.structs import replace

from dgbench.lab import metrics
from dgbench.lab.table import Observation
from dgbench.runtime.errors import InvalidInputError

metrics.add_dimension("old_name", str, "name of a number in a row from before schema 3")
metrics.add("unnamed_time", "time", "a time of an old row whose name is not understood")
metrics.add("unnamed_count", "count", "a counter of an old row whose name is not understood")
metrics.add("unnamed_number", "score", "a number of an old row whose name is not understood")

_PART = re.compile(r"<(?P<name>\w+)(?:=(?P<allowed>[^>]*))?>")
_OF_TYPE = {int: r"-?\d+", float: r"[-+]?\d[-+.\de]*", str: r".+", bool: r"True|False"}
SOURCES = ("values", "counters", "phases")
RENAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "derived_number": ("estimate", {}),
    "edge_rate": ("throughput", {"of": "edges"}),
    "feature_width": ("columns", {"of": "edge features"}),
    "mean_count": ("estimate", {}),
    "pass_time": ("operation_time", {}),
}
"""Metrics of schema 3 that are another one with dimensions today."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Meaning of a name from before schema 3.

    Attributes:
        expression: fits the whole name; its groups are dimensions.
        metric: registered name. dims: further dimensions, the same for all names that fit.
        low, high: names (with parts) of the interval's ends, or "". scale: factor to the metric's
            unit. samples: whether the row's samples are this metric's, too. ends: whether the name
            is an end of another one's interval.
    """

    expression: re.Pattern[str]
    metric: str = ""
    dims: Mapping[str, Any] = field(default_factory=dict)
    low: str = ""
    high: str = ""
    scale: float | None = None
    end: bool = False

    def read(self, name: str) -> dict[str, Any] | None:
        """The dimensions that a name holds, or None where it does not fit."""
        match = self.expression.fullmatch(name)
        if match is None:
            return None
        texts = match.groupdict()
        return {
            key: _value(metrics.dimension(key).type, text) for key, text in texts.items()
        } | dict(self.dims)


@dataclass(frozen=True, slots=True)
class Names:
    """The patterns of an experiment by source, and the metric of its samples."""

    patterns: Mapping[str, tuple[Pattern, ...]]
    samples: str


def observations(
    paper: str,
    experiment: str,
    sources: Mapping[str, Mapping[str, float]],
    units: Mapping[str, str],
    samples: Sequence[float],
) -> list[Observation]:
    """The numbers of an old row as observations, in their order.

    Args:
        paper, experiment: whose row it is.
        sources: numbers by name, by `SOURCES`.
        units: unit of a value by name, where the row says it.
        samples: seconds of each iteration.
    """
    names = _names(paper).get(experiment) or Names({}, "step_time")
    found: list[Observation] = []
    for source in SOURCES:
        numbers = sources[source]
        for name, value in numbers.items():
            known = _read(paper, experiment, source, name)
            if known is None:
                kind = "count" if source == "counters" else _kind(name, units.get(name))
                dims = {"old_name": name}
                found.append(Observation(metric=f"unnamed_{kind}", value=value, dims=dims))
                continue
            pattern, dims = known
            if not pattern.end:
                found.append(_observed(pattern, dims, value, numbers))
    if not samples:
        return found
    return _with_samples(found, names.samples, list(samples))


def known(one: Observation) -> Observation:
    """An observation as it is, or under the name that its metric has today; of a metric that
    nobody registered, under its name as an old one."""
    if one.metric in metrics.METRICS:
        return one
    if one.metric in RENAMED:
        name, dims = RENAMED[one.metric]
        return replace(one, metric=name, dims={**dims, **one.dims})
    dims = {**one.dims, "old_name": one.metric}
    return Observation(metric="unnamed_number", value=one.value, dims=dims)


def _observed(
    pattern: Pattern, dims: dict[str, Any], value: float, numbers: Mapping[str, float]
) -> Observation:
    def scaled(number: float | None) -> float | None:
        return number if number is None or pattern.scale is None else number * pattern.scale

    return Observation(
        metric=pattern.metric,
        value=value if pattern.scale is None else value * pattern.scale,
        dims=dims,
        low=scaled(numbers.get(_filled(pattern.low, dims))) if pattern.low else None,
        high=scaled(numbers.get(_filled(pattern.high, dims))) if pattern.high else None,
    )


def _with_samples(found: list[Observation], metric: str, samples: list[float]) -> list[Observation]:
    """The observations with a row's samples at their metric; one more where there is none."""
    from statistics import median

    for number, one in enumerate(found):
        if one.metric == metric and not one.dims:
            found[number] = Observation(metric=metric, value=one.value, samples=samples)
            return found
    return [*found, Observation(metric=metric, value=median(samples), samples=samples)]


def _value(wanted: type, text: str) -> Any:
    return text == "True" if wanted is bool else wanted(text)


def _filled(name: str, dims: Mapping[str, Any]) -> str:
    return _PART.sub(lambda part: str(dims[part["name"]]), name)


def _kind(name: str, unit: str | None) -> str:
    if unit is None:
        clock = name.endswith((" s", "_s")) or name.startswith(("us_per_", "s_per_"))
    else:
        clock = unit in ("s", "ms", "us") or unit.startswith(("s per ", "us per "))
    return "time" if clock else "number"


@cache
def _read(paper: str, experiment: str, source: str, name: str) -> tuple[Pattern, dict] | None:
    names = _names(paper).get(experiment)
    if names is not None:
        for pattern in names.patterns.get(source, ()):
            dims = pattern.read(name)
            if dims is not None:
                return pattern, dims
        if source == "phases":
            return Pattern(re.compile(".*"), "phase_time"), {"phase": name}
    return None


@cache
def _names(paper: str) -> dict[str, Names]:
    """The patterns of a paper by experiment; none where it has no file."""
    name = "machine" if paper == "-" else paper
    path = resources.files(__name__) / f"{name}.yaml"
    if not name.isidentifier() or not path.is_file():
        return {}
    plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    shared = plain.pop("all", {})
    return {name: _experiment(one or {}, shared) for name, one in plain.items()}


def _experiment(plain: Mapping[str, Any], shared: Mapping[str, Any]) -> Names:
    patterns = {}
    for source in SOURCES:
        texts = {**(plain.get(source) or {}), **(shared.get(source) or {})}
        made: list[Pattern] = []
        for text, meaning in texts.items():
            made += _patterns(str(text), meaning)
        patterns[source] = tuple(made)
    return Names(patterns, plain.get("samples", shared.get("samples", "step_time")))


def _patterns(text: str, meaning: Any) -> list[Pattern]:
    """The pattern of a name, and those of the ends of its interval."""
    options: dict[str, Any] = {"metric": meaning} if isinstance(meaning, str) else dict(meaning)
    if unknown := set(options) - {"metric", "dims", "low", "high", "scale"}:
        raise InvalidInputError(f"pattern '{text}' has unknown keys: {', '.join(sorted(unknown))}")
    metrics.metric(options["metric"])
    for name, value in options.get("dims", {}).items():
        metrics.check_value(name, value)
    ends = [
        Pattern(_expression(options[end]), end=True) for end in ("low", "high") if end in options
    ]
    return [*ends, Pattern(_expression(text), **options)]


def _expression(text: str) -> re.Pattern[str]:
    parts, last = [], 0
    for part in _PART.finditer(text):
        parts.append(re.escape(text[last : part.start()]))
        dimension = metrics.dimension(part["name"])
        allowed = part["allowed"]
        inner = (
            "|".join(map(re.escape, allowed.split("|"))) if allowed else _OF_TYPE[dimension.type]
        )
        parts.append(f"(?P<{part['name']}>{inner})")
        last = part.end()
    return re.compile("".join(parts) + re.escape(text[last:]))
