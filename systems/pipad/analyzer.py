"""The online graph analyzer: every group of every partition size, beside the training.

Source: PiPAD 4.1 and 4.3. Frames slide by one snapshot, so a group may start anywhere: T - S + 1
groups for each size S. The paper extracts all of them on the CPU during the preparing epochs; the
tuner reads the overlap rates and the bytes, training reads the parts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import MAX_SNAPSHOTS, EdgeTrace, GroupCounts, trace_unchecked
from dgbench.kernels_cuda.slices import slice_count
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.pipad.partitions import Form, Partitions


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """Facts about a group of snapshots for the tuner.

    Attributes:
        words: 4-byte words of topology that a transfer of the group moves.
        whole_words: words of its snapshots sent one by one.
        overlap_rate: shared entries over the mean number of entries of a snapshot.
        jaccard: shared over distinct entries; both are 1 where all snapshots are empty.
    """

    words: int
    whole_words: int
    overlap_rate: float
    jaccard: float


@dataclass(slots=True)
class Analysis:
    """Result of the analyzer.

    Attributes:
        seconds: CPU time of the thread that made it.
        groups: facts of the group at every start, for every size.
        change_rates: 1 - |intersection| / |union| of the edges of snapshots t and t + 1.
        kept_bytes: extracted topology that is kept, and the trace that the rest comes from.
        s_options: sizes that were looked at; those longer than the frame are left out.
    """

    seconds: float = 0.0
    groups: dict[range, GroupFacts] = field(default_factory=dict)
    change_rates: list[float] = field(default_factory=list)
    kept_bytes: int = 0
    s_options: tuple[int, ...] = ()


class Analyzer:
    """Looks at all groups of a sequence once, in a thread of its own or at once.

    Two passes over the entries give the facts of all groups; then every group is taken apart and
    kept in `partitions`, in the order in which frames meet them, until `keep_bytes` are used. What
    is not kept is extracted when it is asked for. A static graph costs one extraction per size.

    Args:
        partitions: the snapshots and how they travel; extracted groups are kept there.
        frame, stride: the sliding window; sizes above `frame` are left out, and groups that no
            frame of that stride meets are looked at but kept last.
        options: sizes S of a group, 1 to 32 each.
        keep_bytes: budget of `partitions`; None: as it is.
        background: run beside the caller.
        form: keep groups as `parts` or as `wire`; by default as the device of `partitions` needs.
        threads: threads of the passes; more than one makes `seconds` count only one of them.

    Raises:
        InvalidInputError: a frame, stride, option or number of bytes out of range.
    """

    def __init__(
        self,
        partitions: Partitions,
        *,
        frame: int,
        stride: int = 1,
        options: Sequence[int] = (2, 4, 8),
        keep_bytes: int | None = None,
        background: bool = True,
        form: Form | None = None,
        threads: int = 1,
    ) -> None:
        if frame < 1 or stride < 1 or threads < 1:
            raise InvalidInputError(
                f"frame is {frame}, stride {stride}, threads {threads}; all start at 1"
            )
        if any(not 1 <= size <= MAX_SNAPSHOTS for size in options):
            raise InvalidInputError(
                f"options are {tuple(options)}, allowed are sizes of 1 to {MAX_SNAPSHOTS}"
            )
        if keep_bytes is not None and keep_bytes < 0:
            raise InvalidInputError(f"keep_bytes is {keep_bytes}, allowed are values from 0")
        self._partitions = partitions
        self._frame = frame
        self._stride = stride
        self._options = tuple(sorted(set(options)))
        if keep_bytes is not None:
            partitions.keep_bytes = keep_bytes
        self._background = background
        self._form: Form = form or ("parts" if partitions.device.type == "cpu" else "wire")
        self._threads = threads
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._started = False
        self._analysis: Analysis | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin; returns at once in the background, else when all is done.

        Raises:
            InvalidInputError: started before, or closed.
        """
        if self._started or self._stop.is_set():
            raise InvalidInputError("this analyzer was started or closed before; make another one")
        self._started = True
        if not self._background:
            self._run()
            return
        self._thread = threading.Thread(target=self._run, name="pipad-analyzer", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """True if `wait` would return, or raise what the analysis raised, without waiting."""
        return self._analysis is not None or self._error is not None

    def wait(self) -> Analysis:
        """The finished analysis.

        Raises:
            InvalidInputError: never started, or closed before it was finished.
            Exception: what the analysis raised.
        """
        self._join()
        if self._error is not None:
            raise self._error
        if self._analysis is None:
            raise InvalidInputError(
                "there is no analysis: it was "
                + ("closed before it was finished" if self._started else "never started")
            )
        return self._analysis

    def close(self) -> None:
        """Stop early; no thread is left when this returns. May be called again."""
        self._stop.set()
        self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        started = time.thread_time()
        try:
            analysis = self._analyse()
            if analysis is not None:
                analysis.seconds = time.thread_time() - started
                self._analysis = analysis
        except BaseException as error:  # handed to the caller of wait()
            self._error = error

    def _analyse(self) -> Analysis | None:
        """None where it was stopped."""
        partitions = self._partitions
        csrs = [partitions.topology(t) for t in range(len(partitions.sequence))]
        sizes = tuple(s for s in self._options if s <= min(self._frame, len(csrs)))
        if all(csr is csrs[0] for csr in csrs):
            trace, counts = None, _static_counts(csrs[0], len(csrs), sizes, partitions.cap)
            changes = [0.0] * (len(csrs) - 1)
        else:
            traced = self._trace(csrs, sizes)
            if traced is None:
                return None
            trace, counts = traced
            changes = _changes(trace)
        kept = 0
        if trace is not None and partitions.admit(trace.nbytes):
            kept = trace.nbytes
        else:
            trace = None
        partitions.learn(trace, counts)
        found = Analysis(change_rates=changes, s_options=sizes)
        for times, numbers in counts.items():
            found.groups[times] = self._facts(times, numbers)
        for times in self._order(counts):
            if self._stop.is_set():
                return None
            if partitions.store(times, self._form):
                kept += partitions.stored_bytes(times, self._form)
        found.kept_bytes = kept
        return found

    def _trace(
        self, csrs: list[Csr], sizes: tuple[int, ...]
    ) -> tuple[EdgeTrace, dict[range, GroupCounts]] | None:
        partitions, stop = self._partitions, self._stop.is_set
        trace = trace_unchecked(
            csrs,
            max((2, *sizes)),
            partitions.granularity,
            partitions.cap,
            threads=self._threads,
            stop=stop,
        )
        if trace is None:
            return None
        counts = trace.counts(sizes, threads=self._threads, stop=stop)
        return None if counts is None else (trace, counts)

    def _facts(self, times: range, numbers: GroupCounts) -> GroupFacts:
        mean = numbers.entries / len(times)
        return GroupFacts(
            words=self._partitions.words(times),
            whole_words=sum(self._partitions.snapshot_words(t) for t in times),
            overlap_rate=numbers.shared / mean if mean else 1.0,
            jaccard=numbers.shared / numbers.distinct if numbers.distinct else 1.0,
        )

    def _order(self, groups: Iterable[range]) -> list[range]:
        """Groups in the order frames meet them, those that no frame meets last."""

        def met(times: range) -> bool:
            # Groups of a frame start at its first snapshot and at every S-th after it.
            size = len(times)
            latest = times.start - times.start % self._stride
            starts = range(latest, max(-1, times.stop - self._frame - 1), -self._stride)
            return any((times.start - first) % size == 0 for first in starts)

        return sorted(groups, key=lambda times: (not met(times), times.start, len(times)))


def _static_counts(
    csr: Csr, steps: int, sizes: Sequence[int], cap: int
) -> dict[range, GroupCounts]:
    """The numbers of every group where all snapshots are one and the same matrix."""
    slices = slice_count(csr, cap)
    return {
        range(t, t + size): GroupCounts(csr.nnz, csr.nnz, size * csr.nnz, slices)
        for size in sizes
        for t in range(steps - size + 1)
    }


def _changes(trace: EdgeTrace) -> list[float]:
    """1 - |intersection| / |union| of every snapshot and the next."""
    changes = []
    for t in range(1, len(trace.csrs)):
        shared = int(trace.gaps[t, 1])
        union = trace.csrs[t - 1].nnz + trace.csrs[t].nnz - shared
        changes.append(1 - shared / union if union else 0.0)
    return changes
