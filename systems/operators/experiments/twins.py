"""Generating twins of datasets, against the rates that making them in place of files asks for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from dgbench.datasets import twins
from dgbench.datasets.twins.params import params as params_of
from dgbench.datasets.twins.scaling import at_scale
from dgbench.kernels_cuda.twins import rank_copy
from dgbench.lab.experiment import Preset
from dgbench.lab.result_checks import equal
from dgbench.systems.operators.race import OURS, OperatorCase, OperatorRace

BARS = {False: (5_000_000, "5 M edges/s"), True: (2_000_000, "2 M edges/s")}
"""Edges a second to be reached, by whether repeated pairs are refused."""
SIZES = {"smoke": (30_000,), "quick": (1_000_000,), None: (1_000_000, 10_000_000)}
NAMES = {
    "smoke": ("stack", "flickr"),
    "quick": ("stack", "gdelt", "flickr", "netflix"),
    None: ("stack", "gdelt", "twitter", "flickr", "youtube", "epinions", "netflix"),
}


def workload(name: str, size: int) -> dict[str, Any]:
    """Params of a twin at the scale that gives so many edges."""
    pairs = "distinct" if params_of(name).simple else "free"
    return {"dataset": name, "edges": size, "pairs": pairs}


class Twins(OperatorRace):
    name = "twins"
    title = "Generating a twin"
    question = "How many edges of a twin are generated in a second?"
    reading = (
        "One thread, processor time. Ours are the edges alone, compared with what two threads "
        "make; the stream has time stamps and is checked beside. There is no peer: what a call may "
        "take follows from the rate to be reached."
    )
    claims = ("operators-twins-free", "operators-twins-distinct")
    threads = 1
    clock = staticmethod(time.process_time)
    workloads = {
        preset: tuple(
            workload(name, size)
            for size in sizes
            for name in NAMES[preset]
            if params_of(name).events >= size
        )
        for preset, sizes in SIZES.items()
    }
    rivals = "the rate to be reached"
    label = "{dataset}, {edges:,} edges, {pairs} pairs"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        name, size = params["dataset"], params["edges"]
        known = params_of(name)
        scale = size / known.events
        spec = at_scale(name, known, scale)
        rate, title = BARS[known.simple]
        wanted = rank_copy(spec, 1, threads=2)

        def stream(_: int) -> tuple[Any, ...]:
            made = twins.generate(name, scale, 1, threads=1)
            return made.src.numpy(), made.dst.numpy()

        return OperatorCase(
            calls={OURS: lambda _: rank_copy(spec, 1, threads=1), f"{OURS}, stream": stream},
            check=lambda _, __, found: equal(
                "edges", dict(zip("sd", found, strict=True)), dict(zip("sd", wanted, strict=True)),
                against="edges by two threads",
            ),
            bars=((OURS, title, size / rate),),
            work=(("throughput", {"of": "edges"}, size),),
            data={"dataset": name, "twin": True, "scale": scale, "note": ""},
        )  # fmt: skip
