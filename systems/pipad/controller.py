"""The pipeline controller (PiPAD 4.3): preparing epochs, decisions, steady training.

Preparing: frames are trained on one snapshot at a time, results of the first layer are kept on the
host, groups are extracted in the background, and times, bytes and memory are noted. Then the tuner
decides once for every frame, and the decisions stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from statistics import fmean
from typing import Final

from dgbench.systems.pipad.analyzer import Analysis, Analyzer
from dgbench.systems.pipad.engine import Engine
from dgbench.systems.pipad.gains import GainTable
from dgbench.systems.pipad.profile import (
    ProfiledFrame,
    aggregation_seconds,
    edges_of,
    frame_facts,
    free_bytes,
    timed_probe,
)
from dgbench.systems.pipad.tuner import Decision, Tuner

PREPARING_EPOCHS: Final = 2
PROFILED: Final = 3
"""Frames that are measured: the first, the middle and the last."""


class TrainingPhase(Enum):
    """Where training stands."""

    PREPARING = "preparing"
    STEADY = "steady"


class Controller:
    """Leads an engine from the preparing epochs to steady training.

    Args:
        engine: starts one snapshot at a time.
        frames: snapshots of every frame, in order.
        stride: how far frames slide.
        widths: floats per vertex of each aggregation of a steady step.
        sends_topology: whether a steady step needs adjacency at all.
        probe: does a frame's forward and backward pass without an update.
        tune: let the tuner choose; otherwise the engine's own S_per holds for all frames.
        buffer_bytes: limit of the device's buffer instead of what is free.

    Attributes:
        phase: where training stands.
        decisions: the tuner's, by frame; empty where it was not asked.
        analysis: what the analyzer found, or None where no partition is ever needed.
        notes: why partitions are as they are.
    """

    def __init__(
        self,
        engine: Engine,
        frames: Sequence[range],
        *,
        stride: int,
        widths: tuple[int, ...],
        sends_topology: bool,
        probe: Callable[[int], None],
        tune: bool,
        buffer_bytes: int | None = None,
    ) -> None:
        self.engine = engine
        self.frames = list(frames)
        self.phase = TrainingPhase.PREPARING
        self.decisions: list[Decision] = []
        self.analysis: Analysis | None = None
        self.notes: list[str] = []
        self._widths = widths
        self._sends_topology = sends_topology
        self._probe = probe
        self._tune = tune
        self._buffer_bytes = buffer_bytes
        self._stride = stride
        self._steps = 0
        self._seconds: dict[int, float] = {}
        self._sample: ProfiledFrame | None = None
        self._peak = 0
        self._analyzer: Analyzer | None = None
        engine.single = True

    # --- the two ways through preparation ---------------------------------------------------------

    def prepare(self) -> None:
        """End preparation now: analyse, aggregate and measure without training, then decide."""
        if self.phase is TrainingPhase.STEADY or not self.frames:
            return
        self._start_analysis()
        self.engine.aggregate_all()
        if self._analyzer is not None:
            self._analyzer.wait()  # first, or its thread would be in the measured times
        self._settle()

    def begin_step(self) -> None:
        """A training step is about to begin."""
        if self.phase is TrainingPhase.PREPARING and self._steps == 0:
            self._start_analysis()

    def end_step(self, frame: int, seconds: float) -> None:
        """A training step is over; the last one of the preparing epochs ends preparation."""
        if self.phase is TrainingPhase.STEADY:
            return
        self._steps += 1
        self._seconds[frame] = min(seconds, self._seconds.get(frame, seconds))
        if self._steps >= PREPARING_EPOCHS * len(self.frames):
            self._settle()

    def close(self) -> None:
        """End the background analysis, finished or not."""
        if self._analyzer is not None:
            self._analyzer.close()
            self._analyzer = None

    def report(self) -> dict[str, float]:
        """Numbers for a row: decisions, what preparation found, and what is kept where."""
        engine = self.engine
        chosen = Counter(engine.group_size(times) for times in self.frames)
        kept = [min(engine.capacity(t), self._useful_bytes()) for t in self.frames]
        found: dict[str, float] = {
            "partition_size": chosen.most_common(1)[0][0] if chosen else 1,
            "buffer_memory": int(max(kept, default=0)),
            "store_memory": int(engine.store.nbytes) if engine.store is not None else 0,
            "analysis_time": 0.0,
        }
        if self.analysis is not None:
            found["analysis_time"] = self.analysis.seconds
            found["analysis_memory"] = int(self.analysis.kept_bytes)
            if self.analysis.change_rates:
                found["topology_change"] = fmean(self.analysis.change_rates)
        if self._sample is not None:
            found["profiled_aggregation_time"] = self._sample.single_s
            found["profiled_step_time"] = self._sample.step_s
            found["peak_memory"] = int(self._peak)
        return found

    # --- analysis, profile, decisions -------------------------------------------------------------

    def _start_analysis(self) -> None:
        options = (2, 4, 8) if self._tune else (self.engine.s_per,)
        options = tuple(s for s in options if 1 < s <= len(self.frames[0]))
        if self._sends_topology and options and self.engine.grouped and self._analyzer is None:
            self._analyzer = Analyzer(
                self.engine.partitions,
                frame=len(self.frames[0]),
                stride=self._stride,
                options=options,
                form="wire" if self.engine.copies else "parts",
            )
            self._analyzer.start()

    def _settle(self) -> None:
        """From preparing to steady: wait for the analysis, measure what is missing, decide."""
        engine = self.engine
        if self._analyzer is not None:
            self.analysis = self._analyzer.wait()
        engine.forget()
        if self._tune and self._sends_topology:
            self._measure()
        engine.single = False
        self.phase = TrainingPhase.STEADY
        if self._tune and self._sends_topology:
            self._decide()
        elif not self._sends_topology:
            self.notes.append(
                "Nothing is aggregated in a step, so there are no partitions to choose."
            )
        if self._sends_topology and engine.grouped:  # sizes that were not chosen are never read
            engine.retain(g for times in self.frames for g in engine.groups(times))
        self._allow_buffers()
        if self._sends_topology:
            engine.plan(self.frames, self._stride)
        if self._widths:
            engine.settle(self.frames, self._widths)
        engine.forget()

    def _measure(self) -> None:
        last = len(self.frames) - 1
        samples = []
        for place in dict.fromkeys(round(i * last / (PROFILED - 1)) for i in range(PROFILED)):
            times = self.frames[place]
            step_s = self._seconds.get(place)
            if step_s is None or not self._peak:
                seconds, retained = timed_probe(
                    lambda place=place: self._probe(place), self.engine.device
                )
                step_s = seconds if step_s is None else step_s
                self._peak = max(self._peak, -(-retained // len(times)))
            single_s = aggregation_seconds(self.engine, times, self._widths)
            samples.append(ProfiledFrame(step_s, single_s, edges_of(self.engine, times)))
        self._sample = ProfiledFrame(
            fmean(s.step_s for s in samples),
            fmean(s.single_s for s in samples),
            round(fmean(s.edges for s in samples)),
        )

    def _decide(self) -> None:
        engine = self.engine
        gains = GainTable.find(engine.device.type, engine.kernel.name)
        if gains is None:
            self.notes.append(
                f"There is no table of gains for '{engine.kernel.name}' on "
                f"'{engine.device.type}'; partitions hold {engine.s_per} snapshots. "
                "`dgbench calibrate pipad` measures one."
            )
            return
        tuner = Tuner(
            gains,
            bandwidth=engine.bandwidth(),
            free_bytes=free_bytes(engine.device),
            merges=engine.merges,
        )
        reasons: Counter[int] = Counter()
        said: dict[int, str] = {}
        for times in self.frames:
            facts = frame_facts(
                engine,
                times,
                widths=self._widths,
                sample=self._sample,
                analysis=self.analysis or Analysis(),
                sends_topology=self._sends_topology,
                peak_bytes=self._peak,
            )
            decision = tuner.decide(facts)
            self.decisions.append(decision)
            engine.decided[times.start] = decision.s_per
            reasons[decision.s_per] += 1
            said.setdefault(decision.s_per, decision.reason)
        for s_per, count in reasons.most_common():
            self.notes.append(f"{count} of {len(self.frames)} frames, {said[s_per]}.")

    def _useful_bytes(self) -> int:
        """Largest number of bytes that a frame can leave to the next one."""
        return self.engine.buffer.row_bytes * len(self.frames[0]) if self.frames else 0

    def _allow_buffers(self) -> None:
        """Set the device memory that frames may leave to later ones (4.4)."""
        engine = self.engine
        engine.resident_limit = free_bytes(engine.device) // 2
        if not engine.on["device_buffer"]:
            return
        if self._buffer_bytes is not None:
            engine.buffer.capacity = self._buffer_bytes
        elif self.decisions:
            for times, decision in zip(self.frames, self.decisions, strict=True):
                engine.allowed[times.start] = decision.buffer_bytes
        else:
            engine.buffer.capacity = min(self._useful_bytes(), free_bytes(engine.device))
