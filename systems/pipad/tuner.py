"""The dynamic tuner (PiPAD 4.4): how many snapshots a partition of a frame holds.

One decision per frame, made once after the preparing epochs and kept. From what the preparing
epochs measured and an offline table of kernel gains it estimates each option, drops those that do
not fit into memory and those whose transfers would stall the pipeline, and takes the fastest rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dgbench.runtime.errors import InvalidInputError

OPTIONS: Final = (1, 2, 4, 8)
"""The paper's options, and 1: one snapshot at a time, where nothing else fits."""


class Gains(Protocol):
    """Speed-up of the graph kernels over one snapshot at a time, such as `gains.GainTable`."""

    def gain(
        self, s_per: int, overlap_rate: float, width: int, *, nodes: int = 0, edges: float = 0.0
    ) -> float: ...

    @property
    def source(self) -> str: ...


@dataclass(frozen=True)
class FrameFacts:
    """Facts about one frame from the preparing epochs.

    Attributes:
        times: its snapshots.
        widths: floats per vertex of each aggregation that a step still does; () where all results
            are kept from the preparing epochs.
        single_s: seconds of those aggregations one snapshot at a time, forward and backward, whole
            frame. rest_s: seconds of everything else of a step.
        overlap: S_per -> mean overlap rate of the frame's partitions; 1 may be left out.
        bytes: S_per -> bytes of each partition that is sent, in order; empty where none is.
        peak_bytes: memory of one snapshot at a time. S snapshots take at most S times this.
        nodes: vertices, 0 where not known.
        edges: mean entries of a snapshot, 0 where not known.
    """

    times: range
    widths: tuple[int, ...]
    single_s: float
    rest_s: float
    overlap: Mapping[int, float]
    bytes: Mapping[int, Sequence[int]]
    peak_bytes: int
    nodes: int = 0
    edges: float = 0.0


@dataclass(frozen=True)
class Option:
    """One S_per and what is expected of it.

    Attributes:
        s_per: snapshots of a partition.
        gain: of the aggregations over one snapshot at a time.
        compute_s, transfer_s: of a step; transfers of all partitions together.
        stall_s: how long compute waits for transfers that the partition before does not hide.
        fits: whether memory holds it for certain.
        speedup: of a step over one snapshot at a time, stalls included.
        verdict: why it was taken or not, in a few words.
    """

    s_per: int
    gain: float
    compute_s: float
    transfer_s: float
    stall_s: float
    fits: bool
    speedup: float
    verdict: str


@dataclass(frozen=True)
class Decision:
    """The tuner's choice for one frame.

    Attributes:
        s_per: snapshots of a partition.
        options: all that were looked at.
        buffer_bytes: device memory left for kept aggregation results: free memory less the bound
            on the peak of this choice.
        reason: one sentence for the row.
    """

    s_per: int
    options: tuple[Option, ...]
    buffer_bytes: int
    reason: str


class Tuner:
    """Decides S_per of frames.

    Args:
        gains: the offline table.
        bandwidth: bytes per second of the link; None (or no positive number) where nothing is
            copied or nothing was measured, and then no option is dropped for stalling.
        free_bytes: memory of the device that training may use.
        options: S_per to look at; the smallest is taken where none fits.
        merges: (S, vertices, width) -> whether the engine aggregates a partition in one call; None
            where it always does. Where it does not, a partition gains nothing. Asked only for
            frames whose number of vertices is known.

    Raises:
        InvalidInputError: no option, or one below 1; negative memory.
    """

    def __init__(
        self,
        gains: Gains,
        *,
        bandwidth: float | None,
        free_bytes: int,
        options: Sequence[int] = OPTIONS,
        merges: Callable[[int, int, int], bool] | None = None,
    ) -> None:
        if not options or min(options) < 1:
            raise InvalidInputError(f"'options' is {list(options)}, needed: numbers from 1 up")
        if free_bytes < 0:
            raise InvalidInputError(f"'free_bytes' is {free_bytes}, it cannot be negative")
        known = bandwidth is not None and math.isfinite(bandwidth) and bandwidth > 0
        self._gains = gains
        self._bandwidth = bandwidth if known else None
        self._free = int(free_bytes)
        self._options = tuple(sorted(set(options)))
        self._merges = merges

    def decide(self, facts: FrameFacts) -> Decision:
        """The five steps of section 4.4 for one frame.

        Raises:
            InvalidInputError: an empty frame, or times or sizes that are negative or not finite.
        """
        _check(facts)
        most = self._free // max(1, facts.peak_bytes)  # U: peak(S) <= S * peak(1)
        found = [self._option(facts, size, most) for size in self._options]
        usable = [o for o in found if o.fits] or found[:1]
        steady = [o for o in usable if not o.stall_s]
        if steady:
            # Equal estimates: fewer, larger partitions, so fewer calls and transfers.
            best = max(steady, key=lambda o: (o.speedup, o.s_per))
        else:
            best = min(usable, key=lambda o: (o.stall_s, -o.speedup))
        options = tuple(self._judged(o, best, facts) for o in found)
        buffer = max(0, self._free - best.s_per * max(1, facts.peak_bytes))
        return Decision(best.s_per, options, buffer, self._reason(best, options, facts))

    def _option(self, facts: FrameFacts, size: int, most: int) -> Option:
        frame = len(facts.times)
        gain = self._gain(facts, min(size, frame))
        compute = facts.single_s / gain + facts.rest_s
        sent = facts.bytes.get(size, ())
        transfers = [n / self._bandwidth for n in sent] if self._bandwidth else [0.0] * len(sent)
        stall = _stall(transfers, compute, frame, size)
        alone = facts.single_s + facts.rest_s
        return Option(
            s_per=size,
            gain=gain,
            compute_s=compute,
            transfer_s=sum(transfers),
            stall_s=stall,
            fits=size <= most and (size <= frame or size == self._options[0]),
            speedup=alone / (compute + stall) if compute + stall > 0 else 1.0,
            verdict="",
        )

    def _gain(self, facts: FrameFacts, size: int) -> float:
        """Of all aggregations together: their times add, and grow with their widths."""
        if not facts.widths or size == 1:
            return 1.0
        rate = facts.overlap.get(size, 0.0)
        spent = 0.0
        for width in facts.widths:
            merged = (
                self._merges is None or not facts.nodes or self._merges(size, facts.nodes, width)
            )
            one = 1.0
            if merged:
                one = self._gains.gain(size, rate, width, nodes=facts.nodes, edges=facts.edges)
            spent += width / one
        return sum(facts.widths) / spent

    def _judged(self, option: Option, best: Option, facts: FrameFacts) -> Option:
        size, frame = option.s_per, len(facts.times)
        if size == best.s_per and option.fits:
            verdict = "chosen, stalls least" if option.stall_s else "chosen"
        elif size == best.s_per:
            verdict = "chosen, though nothing is sure to fit"
        elif size > frame:
            verdict = f"longer than the frame of {frame}"
        elif not option.fits:
            need = _size(size * facts.peak_bytes)
            verdict = f"may not fit: up to {need}, {_size(self._free)} are free"
        elif option.stall_s:
            verdict = f"stalls {_time(option.stall_s)} a step"
        elif option.speedup == best.speedup:
            verdict = "as fast"
        else:
            verdict = f"slower, {option.speedup:.2f}x"
        return Option(**{**option.__dict__, "verdict": verdict})

    def _reason(self, best: Option, options: Sequence[Option], facts: FrameFacts) -> str:
        """One sentence: what was chosen, from which numbers, and why not the others."""
        others = [f"{o.s_per} {o.verdict}" for o in options if o.s_per != best.s_per]
        chosen = f"S_per {best.s_per}"
        if not best.fits:
            why = "nothing is sure to fit, so the smallest partition"
        elif best.stall_s:
            why = f"every option stalls, this least ({_time(best.stall_s)} a step)"
        elif not facts.widths:
            why = "nothing is aggregated in a step, so partitions set transfers only"
        elif best.s_per == 1:
            why = f"one snapshot at a time is fastest by the {self._gains.source}"
        else:
            rate = facts.overlap.get(best.s_per, 0.0)
            why = (
                f"kernels {best.gain:.2f}x at overlap rate {rate:.2f} by the "
                f"{self._gains.source}, step {best.speedup:.2f}x"
            )
        rest = f"; {', '.join(others)}" if others else ""
        if facts.bytes.get(best.s_per) and self._bandwidth is None:
            rest += "; without a bandwidth stalls are not judged"
        return f"{chosen}: {why}{rest}"


def _stall(transfers: Sequence[float], compute_s: float, frame: int, size: int) -> float:
    """Seconds by which the transfer of a partition outlasts the compute of the one before."""
    lengths = [min(size, frame - start) for start in range(0, frame, size)]
    stall = 0.0
    for before, transfer in zip(lengths, transfers[1:], strict=False):
        stall += max(0.0, transfer - compute_s * before / frame)
    return stall


def _check(facts: FrameFacts) -> None:
    if not len(facts.times):
        raise InvalidInputError("'facts.times' is empty, a frame holds one snapshot at least")
    numbers = {
        "single_s": facts.single_s,
        "rest_s": facts.rest_s,
        "peak_bytes": facts.peak_bytes,
        "nodes": facts.nodes,
        "edges": facts.edges,
    }
    for name, value in numbers.items():
        if not (math.isfinite(value) and value >= 0):
            raise InvalidInputError(f"'facts.{name}' is {value}, needed: a number from 0 up")
    if any(width < 1 for width in facts.widths):
        raise InvalidInputError(f"'facts.widths' is {facts.widths}, needed: widths from 1 up")


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} us"


def _size(count: int) -> str:
    for unit, step in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= step:
            return f"{count / step:.3g} {unit}"
    return f"{count} B"
