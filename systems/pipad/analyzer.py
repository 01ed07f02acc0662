"""The online graph analyzer: every group of every partition size, beside the training.

Source: PiPAD 4.1 and 4.3. Frames slide by one snapshot, so a group may start anywhere: T - S + 1
groups for each size S. The paper extracts all of them on the CPU during the preparing epochs; the
tuner reads the overlap rates and the bytes, training reads the parts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.pipad.partitions import Partitions


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What the tuner needs to know of a group of snapshots.

    Attributes:
        words: 4-byte words of topology that a transfer of the group moves.
        whole_words: words of its snapshots sent one by one.
        overlap_rate: shared entries over the mean number of entries of a snapshot.
        jaccard: shared over distinct entries.
    """

    words: int
    whole_words: int
    overlap_rate: float
    jaccard: float


@dataclass(slots=True)
class Analysis:
    """What the analyzer found.

    Attributes:
        seconds: CPU time it took.
        groups: facts of the group at every start, for every size.
        change_rates: 1 - jaccard of snapshots t and t + 1, for every t.
        kept_bytes: extracted topology that is kept.
        s_options: sizes that were looked at; those longer than the frame are left out.
    """

    seconds: float = 0.0
    groups: dict[range, GroupFacts] = field(default_factory=dict)
    change_rates: list[float] = field(default_factory=list)
    kept_bytes: int = 0
    s_options: tuple[int, ...] = ()


class Analyzer:
    """Looks at all groups of a sequence once, in a thread of its own or at once.

    Args:
        partitions: the snapshots and how they travel; extracted groups are kept there.
        frame, stride: the sliding window; sizes above `frame` are left out.
        options: sizes S of a group.
        keep_bytes: extracted topology to keep at most; a quarter of the free memory by default.
        background: run beside the caller.
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
    ) -> None:
        if frame < 1 or stride < 1 or any(not 1 <= s <= 32 for s in options):
            raise InvalidInputError(
                f"frame {frame}, stride {stride} and options {tuple(options)}: frame and stride "
                "start at 1, options lie in 1..32"
            )
        self._partitions = partitions
        self._frame = frame
        self._stride = stride
        self._options = tuple(options)
        self._keep_bytes = keep_bytes
        self._background = background
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._analysis: Analysis | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin; returns at once in the background, else when all is done."""
        if not self._background:
            self._run()
            return
        self._thread = threading.Thread(target=self._run, name="pipad-analyzer", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether `wait` would return, or raise, without waiting."""
        return self._analysis is not None or self._error is not None

    def wait(self) -> Analysis:
        """The finished analysis. Raises what the analysis raised."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error
        assert self._analysis is not None
        return self._analysis

    def close(self) -> None:
        """Stop early; no thread is left when this returns."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        started = time.thread_time()
        try:
            analysis = self._analyse()
            analysis.seconds = time.thread_time() - started
            self._analysis = analysis
        except BaseException as error:  # handed to the caller of wait()
            self._error = error

    def _analyse(self) -> Analysis:
        snapshots = len(self._partitions.sequence)
        sizes = tuple(s for s in self._options if s <= min(self._frame, snapshots))
        found = Analysis(s_options=sizes)
        for size in sizes:
            for start in range(snapshots - size + 1):
                if self._stop.is_set():
                    return found
                times = range(start, start + size)
                part = self._partitions.partition(times)
                whole = sum(self._partitions.snapshot_words(t) for t in times)
                found.groups[times] = GroupFacts(
                    part.words, whole, part.parts.overlap_rate(), part.parts.jaccard()
                )
        for t in range(snapshots - 1):
            if 2 in sizes:
                found.change_rates.append(1 - found.groups[range(t, t + 2)].jaccard)
        return found
