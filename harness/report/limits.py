"""Limits of a machine as people read them: their words and units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dgbench.lab.table import Observation

GIGA: Final = 1e9


@dataclass(frozen=True, slots=True)
class Limit:
    """One of the limits, as people read it.

    Attributes:
        name: identifies it in a page's template.
        metric, dims: the observation that holds it.
        words, unit: what is said of it.
    """

    name: str
    metric: str
    dims: Mapping[str, str]
    words: str
    unit: str

    def read(self, observations: Iterable[Observation]) -> float | None:
        """Its value in thousand millions a second; None where it was not measured."""
        found = (o.value for o in observations if o.metric == self.metric and o.dims == self.dims)
        value = next(found, None)
        return None if value is None else value / GIGA


LIMITS: Final = tuple(
    Limit(name, metric, dims, words, "GB/s" if metric == "bandwidth" else "GFLOP/s")
    for name, metric, dims, words in (
        ("copy_one", "bandwidth", {"place": "host", "using": "one"}, "copy, one thread"),
        ("copy_all", "bandwidth", {"place": "host", "using": "all"}, "copy, all threads"),
        ("product_one", "product_rate", {"place": "host", "using": "one"},
         "matrix product, one thread"),
        ("product_all", "product_rate", {"place": "host", "using": "all"},
         "matrix product, all threads"),
        ("copy_device", "bandwidth", {"place": "device"}, "copy on the device"),
        ("to_device", "bandwidth", {"place": "host to device"}, "host to device"),
        ("from_device", "bandwidth", {"place": "device to host"}, "device to host"),
        ("product_device", "product_rate", {"place": "device"}, "matrix product on the device"),
    )
)  # fmt: skip
"""In the order of pages. 1 GB is 1e9 bytes, read and written ones of a copy in one memory."""


def limits_in(observations: Iterable[Observation]) -> dict[str, float]:
    """Limits by name, in GB/s and GFLOP/s; those that were measured."""
    every = list(observations)
    found = {limit.name: limit.read(every) for limit in LIMITS}
    return {name: value for name, value in found.items() if value is not None}
