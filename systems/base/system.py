"""The plugin interface. A third party's package implements `System` and names it in the
entry-point group `dgbench.systems`; nothing in dgbench has to change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor

from dgbench.runtime.meter import Meter
from dgbench.runtime.readback import Readback
from dgbench.systems.base.moments import AdamMoments, moments_of
from dgbench.systems.base.workload import Workload

if TYPE_CHECKING:
    from dgbench.lab.arena import Code
    from dgbench.lab.experiment import Measurement, RunContext
    from dgbench.systems.base.rank_training import RankTraining


@dataclass(frozen=True, slots=True)
class Technique:
    """One named switch of a system.

    Attributes:
        name: the switch, as written in settings (`reuse`).
        what: one sentence for people.
        exact: True if the mathematics stays the same, False if it approximates.
        source: paper and section.
        default: whether it is on when nothing is said.
        ours: whether dgbench added it; the published form of a system goes without.
    """

    name: str
    what: str
    exact: bool
    source: str
    default: bool = True
    ours: bool = False


@dataclass(frozen=True, slots=True)
class FrameResult:
    """Results of a trainer on a frame with the parameters that it has.

    Attributes:
        output: of the last snapshot, on the CPU.
        gradients: of the loss, by the shared model's names, on the CPU.
        loss: of the frame.
    """

    output: Tensor
    gradients: dict[str, Tensor]
    loss: float


class Trainer(ABC):
    """One system opened on one workload, one device, one set of switches.

    A *step* is one optimiser step on one frame. `step(i)` trains on frame `i`; frames are
    numbered `0 .. num_frames - 1` in time order. The same workload, seed and frame order give
    the same losses in every exact system, up to float rounding.
    """

    num_frames: int
    meter: Meter

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if "step" in vars(cls) and "enqueue" not in vars(cls):
            cls.enqueue = Trainer.enqueue  # another class's would pass by this one's `step`

    def prepare(self) -> None:
        """One-off work before steady training (slicing, extraction, first aggregation).

        The harness times it apart and adds it to end-to-end times. Default: nothing.
        """
        return None

    @abstractmethod
    def step(self, frame: int) -> float:
        """Train on one frame and return the loss before the update. Waits for the device."""

    def enqueue(self, frame: int) -> Readback:
        """`step` that need not wait for the device: the loss is read when it is asked for.

        Steps go on in the order they are given. Default: `step`, which waits.
        """
        return Readback(self.step(frame))

    def train_epoch(self) -> float:
        """Train on every frame once, in order; return the mean loss."""
        losses = [self.enqueue(i) for i in range(self.num_frames)]
        return sum(loss.value() for loss in losses) / max(1, len(losses))

    @abstractmethod
    def evaluate(self, frame: int) -> Tensor:
        """The model's output on a frame, without training; float32[N, ...] on the CPU."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Parameters by the shared model's names, detached, on the CPU."""

    @abstractmethod
    def gradients(self, frame: int) -> dict[str, Tensor]:
        """Gradients of the loss on a frame by the same names, without an update."""

    def trained(self) -> dict[str, Tensor]:
        """The leaf tensors that steps update in place, by the shared model's names.

        The harness reads and moves them between steps, without a call. Default: none, so that it
        asks for `state` after every step.
        """
        return {}

    def shared(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Values or gradients keyed as in `trained`, in the shared model's names and shapes."""
        return tensors

    def moments(self) -> dict[str, AdamMoments]:
        """Adam's moments of what is trained, by the names of `trained` (of `state` without it).

        Asked for once a step was taken. Default: those of the `torch.optim.Adam` that is an
        attribute of this trainer.
        """
        return moments_of(self, self.trained())

    def report(self) -> dict[str, float]:
        """Numbers that only the trainer knows and a row should carry, such as a tuner's choice.

        Asked after the timed steps. Names are registered metrics (`lab.metrics`), each value is in
        its metric's unit: s, B as an int, a share as a fraction of 1. Default: none.
        """
        return {}

    def close(self) -> None:
        """Release what was taken. Default: nothing."""
        return None


class System(ABC):
    """A training system: a paper's, a released baseline or the reference.

    Class attributes:
        name: the word used in commands and rows (`pipad`).
        title: the name shown to people (`PiPAD`).
        kind: `paper`, `baseline` or `reference`.
        provenance: what a baseline is: "released 0.56.2", "re-implemented (GE-SpMM style)".
        code: whose code it is, as the arena says it.
        techniques: its switches.
        trains: class of its workloads and what it does with them; None takes any.
        enters: tasks of the arena that it enters, as `snapshot-training@1`.
        forms: settings of its switches by name that the arena races beside it, such as an engine
            with all techniques off.
        colour, marker: how figures draw it (None takes the next free pair).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    kind: ClassVar[Literal["paper", "baseline", "reference"]]
    about: ClassVar[str] = ""
    provenance: ClassVar[str] = ""
    code: ClassVar[Code] = "re-implemented"
    techniques: ClassVar[tuple[Technique, ...]] = ()
    trains: ClassVar[tuple[type, str] | None] = None
    enters: ClassVar[tuple[str, ...]] = ()
    forms: ClassVar[Mapping[str, Mapping[str, bool]]] = {}
    colour: ClassVar[str | None] = None
    marker: ClassVar[str | None] = None

    def switches(self, chosen: Mapping[str, bool] | None = None) -> dict[str, bool]:
        """The defaults overlaid with `chosen`; raises UnknownKeyError for a name it lacks."""
        from dgbench.runtime.errors import unknown_key

        on = {t.name: t.default for t in self.techniques}
        for key, value in (chosen or {}).items():
            if key not in on:
                raise unknown_key("technique", key, on, of=f"system '{self.name}'")
            on[key] = bool(value)
        return on

    def unsupported(self, workload: Any, device: str) -> list[str]:
        """Reasons why this workload cannot run here, as sentences; an empty list means it can.

        Default: it is none of the workloads in `trains`, or there is no such device.
        """
        import torch

        reasons = []
        if self.trains is not None and not isinstance(workload, self.trains[0]):
            reasons.append(f"{self.title} {self.trains[1]} (`{self.trains[0].__name__}`)")
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            reasons.append("there is no CUDA device here")
        return reasons

    def load_ahead(self) -> None:  # noqa: B027 (most systems have nothing)
        """Make once what each process that opens this system would make again.

        The fork server calls it for dgbench's own systems before it forks: it starts no thread,
        reaches no device and opens no data. Default: nothing.
        """

    @abstractmethod
    def open(
        self,
        workload: Workload,
        *,
        device: str = "cpu",
        switches: Mapping[str, bool] | None = None,
        meter: Meter | None = None,
    ) -> Trainer:
        """Load the data, build the model from the workload's seed and return a trainer."""

    def race_ranks(
        self, workload: Any, ranks: int, context: RunContext, *, least: int, timeout_s: float
    ) -> Measurement:
        """Race this system's ways to deal a workload out over ranks, in turns on one group.

        A task of the arena calls it. Observed for each way, as dimension `setting`, are
        `epoch_time` with the seconds of every turn, `throughput` of `vertex_steps`, `exchanged`
        bytes of an epoch, and in a cell's first process the `memory` of the fullest `rank`. Where
        `context.control` is set, the first way takes turns with itself, too: a `control_ratio`.
        Default: the system trains on one process.

        Args:
            workload: one that the system trains. ranks: processes, at least 1.
            context: of the cell. least: turns that count, at least.
            timeout_s: of the whole group.

        Raises:
            UnsupportedError: the system has no ranks.
        """
        from dgbench.runtime.errors import UnsupportedError

        raise UnsupportedError(f"{self.title} does not train on ranks")

    def rank_training(self) -> RankTraining:
        """Way to train on ranks that `dgbench ranks` starts, on one host or several.

        Default: the system trains on one process.

        Raises:
            UnsupportedError: the system has no ranks.
        """
        from dgbench.runtime.errors import UnsupportedError

        raise UnsupportedError(f"{self.title} does not train on ranks")

    def calibrate(
        self,
        path: Path,
        *,
        device: str = "cpu",
        quick: bool = False,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> dict[str, Any]:
        """Measure once what this system wants to know of a machine, and keep it in `path`.

        `dgbench calibrate SYSTEM` calls it. Default: the system has nothing to measure.

        Args:
            path: the file to write, whole or not at all.
            device: `cpu` or `cuda`.
            quick: coarsely, in less than a minute.
            progress: told (steps done, all steps, what is measured now).

        Returns:
            A summary for people and `--json`: names to numbers, words or lists of such mappings.

        Raises:
            UnsupportedError: nothing to calibrate, or the device cannot be used here.
            StoreError: the file cannot be written.
        """
        from dgbench.runtime.errors import UnsupportedError

        raise UnsupportedError(
            f"{self.title} has nothing to calibrate", hint="it runs without: dgbench run"
        )
