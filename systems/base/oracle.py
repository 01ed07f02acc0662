"""Oracle of a training task: the plain model in float64, and checks of trainers against it.

A trainer is asked for frames drawn over the whole epoch and always for the last one: a cache that
goes stale is right in the beginning. Tolerances are those of `systems.base.conditioning`, tensor by
tensor. Over 500 lines: all checks of the one class share results and tolerances that cost a step.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.lab.result_checks import (
    LOOSEST,
    ResultCheck,
    close,
    deviations,
    equal,
    largest,
    with_frames,
)
from dgbench.models.dtdg.mpnn_lstm import FrameNorm
from dgbench.runtime.draws import draws_of
from dgbench.runtime.threads import one_thread
from dgbench.runtime.touched import comparing
from dgbench.systems.base import liveness
from dgbench.systems.base.conditioning import MIN_TOLERANCE, SAFETY, UNIT, rounding, tolerances
from dgbench.systems.base.data_digest import digest
from dgbench.systems.base.kept import content_of, kept_key, read, write
from dgbench.systems.base.kinks import excess, with_nearest_slopes
from dgbench.systems.base.system import FrameResult, Trainer
from dgbench.systems.base.workload import Workload

FRAMES: Final = 4
"""Frames whose outputs and gradients the first process of a cell compares: the last one, and the
others drawn."""

OUTPUT_FRAMES: Final = 3
"""Frames whose outputs later processes compare. Of five processes, all miss a fault on three frames
of eight in less than 1 % of runs."""

STEPS: Final = 3
"""Optimiser steps that a trainer and the oracle take together."""

PLAIN_SHARE: Final = 2.0
"""Times the deviation of torch's own float32 operators, tensor by tensor, that a released baseline
may deviate, which is made of them. Its row shows both."""

MAX_PLAIN_DEVIATION: Final = 4e-3
"""Largest deviation that a system which is not released may share with torch's own operators: the
head and the loss are torch's in all systems, and sums over many alike rows lose digits there. The
gradient of a bias before a norm is nothing but rounding, and was seen 1.6e-3 off in both."""

DRAWS: Final = 4
"""Times that float32 is asked what it does to a result, each time rounded another way."""

FEW_NUMBERS: Final = 1 << 15
"""Numbers of a snapshot's hidden outputs below which an oracle works in one thread: torch splits an
operation from so many on."""

AGAINST: Final = "float64 oracle"
OUTPUT: Final = "output"


class Oracle:
    """The plain trainer in float64 that others are compared with.

    Args:
        plain: opens the plain trainer in a dtype.
        task: what is trained; tolerances are kept under its name.
        draw: chooses frames; by default as `runtime.draws` does, alike for all contenders of a
            round.

    Attributes:
        trainer: in float64.
        first: parameters that training begins with.
    """

    @comparing()
    def __init__(
        self,
        plain: Callable[[torch.dtype], Trainer],
        task: object,
        *,
        draw: random.Random | None = None,
    ) -> None:
        self._plain, self._task = plain, task
        self._draw = draw or draws_of("frames")
        self.trainer = plain(torch.float64)
        self.first = self.trainer.state()
        self._allowed: dict[str, float] | None = None
        self._known = _FrameResults(self.trainer)
        self._torch: _FrameResults | None = None
        self._single: Trainer | None = None
        self._own: dict[int, dict[str, Tensor]] = {}  # what a trainer answered last, by frame

    def frames(self, count: int = FRAMES) -> list[int]:
        """Frames to compare: drawn ones in time order, and the last."""
        last = self.trainer.num_frames - 1
        drawn = self._draw.sample(range(last), min(count - 1, last)) if last > 0 else []
        return [*sorted(drawn), last]

    @comparing()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over the parameters of a trainer, by the shared model's names."""
        own = self.trainer.state()
        if any(not torch.equal(mine, state[name].to(mine.dtype)) for name, mine in own.items()):
            self._forget()
            _load(self.trainer, state)

    @comparing()
    def compare(
        self,
        trainer: Trainer,
        frames: Sequence[int],
        *,
        system: str = "",
        released: bool = False,
        when: str = "",
        passed_over: Collection[int] = (),
    ) -> list[ResultCheck]:
        """Checks of outputs and gradients on frames, with the parameters that both now have.

        Where torch's own float32 gradients are off by more than `MAX_PLAIN_DEVIATION`, they say
        nothing about a system: a frame that was not asked for yet takes the place of such a one,
        as long as there are any.

        Args:
            trainer: as it was left by what it did before.
            frames: which ones.
            system: name of the trainer's system.
            released: whether it is made of torch's float32 operators, see `PLAIN_SHARE`.
            when: what happened before, for the reason of a failed check.
            passed_over: frames that were asked for and said nothing.
        """
        wanted = {frame: self._known.answers(frame) for frame in frames}
        found = {frame: _answers(trainer, frame) for frame in frames}
        self._own = found

        def judged(allowed: Mapping[str, float], plain: Any = None) -> list[ResultCheck]:
            about = {"against": AGAINST, "system": system, "part": when}
            checks = []
            for of, pick in (("outputs", _outputs), ("gradients", _gradients)):
                limits = {f"{n}, frame {f}": most for n, most in allowed.items() for f in frames}
                beside = None if plain is None else pick(plain)
                checks.append(close(of, pick(found), pick(wanted), limits, plain=beside, **about))
            return with_frames(checks, frames)

        names = {name for answers in wanted.values() for name in answers}
        allowed = dict.fromkeys(names, MIN_TOLERANCE)
        checks = judged(allowed)
        if all(check.passed for check in checks):
            return checks
        # Where that is not enough, what costs least is asked first: torch's own float32.
        most = math.inf if released else MAX_PLAIN_DEVIATION
        plain = {frame: self._by_torch().answers(frame) for frame in frames}
        for frame in frames:
            for pick in (_outputs, _gradients):
                gaps = deviations(pick({frame: plain[frame]}), pick({frame: wanted[frame]}))
                for key, gap in gaps.items():
                    name = key.rpartition(", ")[0]
                    allowed[name] = max(allowed[name], min(most, PLAIN_SHARE * gap))
        checks = judged(allowed, plain)
        # Then float32 in several draws, rounding with the first parameters, and with those it has
        # come to.
        for ask in (
            lambda: self._by_float32(frames, wanted, released),
            self.allowed,
            lambda: self._rounding(self.trainer, frames[-1]),
        ):
            if all(check.passed for check in checks):
                break
            moved = ask()
            allowed = {name: max(limit, moved.get(name, 0.0)) for name, limit in allowed.items()}
            checks = judged(allowed, plain)
        if not checks[1].passed:
            for frame in frames:
                wanted[frame] |= self._nearest(frame, found[frame], wanted[frame], allowed)
            checks = judged(allowed, plain)
        outputs, gradients = checks
        if gradients.passed or released:
            return checks
        off = {
            frame
            for frame in frames
            if largest(_gradients({0: plain[frame]}), _gradients({0: wanted[frame]}))
            > MAX_PLAIN_DEVIATION
        }
        asked = {*frames, *passed_over}
        rest = [frame for frame in range(self.trainer.num_frames) if frame not in asked]
        instead = self._draw.sample(rest, min(len(off), len(rest)))
        if not instead:
            return checks
        again = self.compare(
            trainer,
            sorted({*frames, *instead} - off),
            system=system,
            when=when,
            passed_over={*passed_over, *off},
        )
        return [outputs, *again]

    @comparing()
    def settings(
        self,
        trainers: Mapping[str, Trainer],
        *,
        first: bool,
        starts: Mapping[str, Mapping[str, Tensor]] | None = None,
    ) -> list[ResultCheck]:
        """Checks of settings of one system as their timed steps left them, by name.

        All are asked with the parameters of a drawn one, so that the oracle answers once; whatever
        else they hold stays as it is.

        Args:
            trainers: of the settings, which train the shared model's parameters.
            first: outputs and gradients of drawn frames and the last, else outputs of fewer.
            starts: parameters that training went on from, where an audit moved them.
        """
        states = {name: trainer.state() for name, trainer in trainers.items()}
        state = states[self._draw.choice(list(trainers))]
        self.load(state)
        frames, found = self.frames(FRAMES if first else OUTPUT_FRAMES), []
        for name, trainer in trainers.items():
            _load(trainer, state)
            when = f"{name}, after the timed steps"
            if first:
                found += self.compare(trainer, frames, system=name, when=when)
            else:
                found += self.output(trainer, frames, system=name, when=when)
            start = (starts or {}).get(name)
            found += self.liveness(states[name], start, system=name, when=when)
        return found

    @comparing()
    def liveness(
        self,
        state: Mapping[str, Tensor] | None = None,
        start: Mapping[str, Tensor] | None = None,
        *,
        system: str = "",
        when: str = "",
    ) -> list[ResultCheck]:
        """A check of how alive is what `compare` or `output` compared last, see `base.liveness`.

        Args:
            state: parameters that the system's timed steps led to, where it trained.
            start: those that it went on from, where an audit moved them; the first ones without.
            system, when: as in `compare`.
        """
        known = {frame: self._known.known(frame) for frame in self._own}
        return liveness.check(
            self._measures(known), self._measures(self._own, state, start),
            against=AGAINST, system=system, part=when,
        )  # fmt: skip

    def _measures(
        self,
        answers: Mapping[int, Mapping[str, Tensor]],
        now: Mapping[str, Tensor] | None = None,
        start: Mapping[str, Tensor] | None = None,
    ) -> liveness.Measures:
        gradients = [{k: v for k, v in one.items() if k != OUTPUT} for one in answers.values()]
        return liveness.measures(
            outputs=[(one[OUTPUT], self._reached(frame)) for frame, one in answers.items()],
            gradients=[one for one in gradients if one],
            first=(start or self.first) if now else None,
            now=now,
        )

    def _reached(self, frame: int) -> Tensor | None:
        """Vertices that the last snapshot of a frame reaches; None for a stream."""
        plain: Any = self.trainer
        if not hasattr(plain.data, "topology"):
            return None
        frames = isinstance(self._task, Workload)
        last = plain.task.times(frame)[-1] if frames else plain.task.steps - 1
        return liveness.reached(plain.data, last)

    @comparing()
    def output(
        self,
        trainer: Trainer,
        frames: Sequence[int] = (),
        *,
        system: str = "",
        released: bool = False,
        when: str = "",
    ) -> list[ResultCheck]:
        """A check of outputs alone; all of `compare` where it does not pass.

        Args:
            trainer, system, released, when: as there. The oracle takes over its parameters.
            frames: which ones; the last one by default.
        """
        self.load(trainer.state())
        frames = frames or [self.trainer.num_frames - 1]
        own = {f"frame {frame}": trainer.evaluate(frame).cpu() for frame in frames}
        exact = {f"frame {frame}": self._known.output(frame) for frame in frames}
        self._own = {frame: {OUTPUT: own[f"frame {frame}"]} for frame in frames}
        about = {"against": AGAINST, "system": system, "part": when}
        check = close("outputs", own, exact, MIN_TOLERANCE, **about)
        if not check.passed and released:
            plain = {f"frame {frame}": self._by_torch().output(frame) for frame in frames}
            allowed = {
                name: max(MIN_TOLERANCE, PLAIN_SHARE * largest({"": one}, {"": exact[name]}))
                for name, one in plain.items()
            }
            check = close("outputs", own, exact, allowed, plain=plain, **about)
        if check.passed:
            return with_frames([check], frames)
        return self.compare(trainer, frames, system=system, released=released, when=when)

    @comparing()
    def first_steps(
        self, losses: Sequence[float], *, system: str = "", released: bool = False
    ) -> ResultCheck:
        """A check of the losses of the first steps of training, `losses` as a trainer had them.

        The oracle's own are kept between processes, and so are those of torch's float32 operators;
        where they do not confirm a trainer's, both are made anew.
        """
        frames = range(min(STEPS, len(losses), self.trainer.num_frames))
        about = {"against": AGAINST, "system": system, "part": f"first {len(frames)} steps"}
        content = self._content(len(frames))

        def of_plain(dtype: torch.dtype, *, anew: bool) -> list[float]:
            kept = kept_key((self._task, "losses", str(dtype), content))
            known = None if anew else read(kept)
            if known is None or len(known) != len(frames):
                steps = self._steps_of_plain(dtype, frames)
                known = {str(frame): loss for frame, loss in zip(frames, steps, strict=True)}
                write(kept, known)
            return list(known.values())

        for anew in (False, True):
            check = self._judged_losses(
                losses[: len(frames)],
                of_plain(torch.float64, anew=anew),
                lambda anew=anew: of_plain(torch.float32, anew=anew),
                lambda: self._rounding_of_losses(frames, self.first),
                released,
                about,
            )
            if check.passed:
                break
        return check

    def _content(self, frames: int) -> str:
        """Hash of what the first frames read, and of the parameters that training begins with."""
        data = self.trainer.data  # type: ignore[attr-defined]
        if isinstance(self._task, Workload):
            times = self.trainer.task.times(frames - 1)  # type: ignore[attr-defined]
            return content_of(data, times.stop + 1, self.first)
        return digest((data, self.first))

    @comparing()
    def train(self, trainer: Trainer, *, system: str = "", released: bool = False) -> ResultCheck:
        """A check of the losses of the first steps of training, from equal parameters."""
        count = min(STEPS, self.trainer.num_frames)
        return self._losses(trainer, range(count), system, released, f"{count} steps")

    @comparing()
    def next_step(
        self, trainer: Trainer, frame: int, *, system: str = "", released: bool = False
    ) -> list[ResultCheck]:
        """Checks of the loss of one more step, by the path that trains, and of its update.

        Every parameter that the oracle's step moves must move in the trainer's. How far is not
        compared: the trainer's optimiser has a history that the oracle's has not.
        """
        before = trainer.state()
        self.load(before)
        wanted = self._known.result(frame)
        about = {"against": AGAINST, "system": system, "part": f"frame {frame}, one more step"}
        losses = self._judged_losses(
            [trainer.step(frame)],
            [wanted.loss],
            lambda: [self._by_torch().result(frame).loss],
            lambda: self._rounding_of_losses([frame], before),
            released,
            about,
            by_output=lambda: largest(
                {"": self._by_torch().output(frame)}, {"": self._known.output(frame)}
            ),
        )
        after = trainer.state()
        due = _moved_by(wanted.gradients, self.trainer)
        moved = {name: not torch.equal(before[name], after[name]) for name in due}
        updates = equal("updates", moved, dict.fromkeys(due, True), against=AGAINST, system=system)
        return [losses, updates]

    @comparing()
    def retake(
        self,
        state: Mapping[str, Tensor],
        frame: int,
        left: Mapping[str, Mapping[str, Tensor]],
        read: Callable[[FrameResult], dict[str, dict[str, Tensor]]],
        *,
        system: str = "",
        released: bool = False,
        part: str = "",
        limits: dict[str, dict[str, float]] | None = None,
    ) -> list[ResultCheck]:
        """Checks of what one step of training left, taken again from the same state.

        Args:
            state: parameters before it, by the shared model's names.
            frame: that it trained on.
            left: by kind of check, tensors that the trainer's step left.
            read: forms the same tensors from loss and gradients of the plain trainer.
            system, released: see `compare`. part: which step, for the reason of a failed check.
            limits: tolerances that were measured for the same step from a state that only rounding
                tells apart, by kind and tensor; those that are measured here are added.
        """
        self.load(state)
        exact = read(self._known.result(frame))
        return judge_retaken(
            left,
            exact,
            (read(result) for result in self._drawn(state, frame, released)),
            lambda: read(self.trainer.result(frame)),  # type: ignore[attr-defined]
            {"against": AGAINST, "system": system, "part": part},
            limits,
            together=released,
        )

    def _drawn(
        self, state: Mapping[str, Tensor], frame: int, released: bool
    ) -> Iterator[FrameResult]:
        """Results in float32, rounded another way each time, see `_by_float32`."""
        if self._single is None:
            self._single = self._new_by_torch() if released else self._plain(torch.float32)
        random_bits = torch.Generator().manual_seed(1)
        for draw in range(DRAWS):
            _load(self._single, state if draw == 0 else moved_by_a_unit(state, random_bits))
            yield _FrameResults(self._single).result(frame)

    @comparing()
    def allowed(self) -> dict[str, float]:
        """Tolerance of the output and of each gradient; kept between processes of a task."""
        if self._allowed is None:
            kept = kept_key(self._task)
            self._allowed = _sane(read(kept))
            if self._allowed is None:
                fresh = self._plain(torch.float64)  # with the parameters that training begins with
                found = self._rounding(fresh, fresh.num_frames - 1)
                fresh.close()
                self._allowed = found
                write(kept, self._allowed)
        return self._allowed

    def close(self) -> None:
        """Give memory free."""
        self._forget()
        if self._single is not None:
            self._single.close()
        self.trainer.close()

    def _forget(self) -> None:
        """Forget what the parameters so far gave."""
        self._known.clear()
        if self._torch is not None:
            self._torch.trainer.close()
            self._torch = None

    def _losses(
        self, trainer: Trainer, frames: Sequence[int], system: str, released: bool, part: str
    ) -> ResultCheck:
        before = self.trainer.state()
        found = [trainer.step(frame) for frame in frames]
        wanted = [self.trainer.step(frame) for frame in frames]
        self._forget()
        return self._judged_losses(
            found,
            wanted,
            lambda: self._steps_of_plain(torch.float32, frames, before),
            lambda: self._rounding_of_losses(frames, before),
            released,
            {"against": AGAINST, "system": system, "part": part},
        )

    def _judged_losses(
        self,
        found: Sequence[float],
        wanted: Sequence[float],
        by_torch: Callable[[], list[float]],
        rounded: Callable[[], float],
        released: bool,
        about: Mapping[str, str],
        by_output: Callable[[], float] = lambda: 0.0,
    ) -> ResultCheck:
        """A check of losses; where they are not close, `by_torch` gives those of torch's own
        float32 operators, `by_output` how far off their output is, and `rounded` what rounding may
        do to losses."""
        check = close("losses", found, wanted, MIN_TOLERANCE, **about)
        if check.passed:
            return check
        plain = by_torch()
        gap = close("losses", plain, wanted, 0.0, against="").gap
        most = math.inf if released else MAX_PLAIN_DEVIATION
        allowed = max(MIN_TOLERANCE, min(most, PLAIN_SHARE * gap))
        check = close("losses", found, wanted, allowed, plain=plain, **about)
        for ask in (  # a loss is a mean over what the output holds
            lambda: min(most, PLAIN_SHARE * by_output()),
            lambda: self.allowed()[OUTPUT],
            rounded,
        ):
            if check.passed:
                break
            allowed = max(allowed, ask())
            check = close("losses", found, wanted, allowed, plain=plain, **about)
        return check

    def _rounding(self, trainer: Trainer, frame: int) -> dict[str, float]:
        """Tolerances of the answers of a plain trainer with the parameters that it now has."""

        def output() -> dict[str, Tensor]:
            return {OUTPUT: trainer.evaluate(frame).cpu()}

        def gradients() -> dict[str, Tensor]:
            return trainer.gradients(frame)

        # Apart, since small gradients are measured against the size of all that is given.
        return tolerances(rounding(output, output()) | rounding(gradients, gradients()))

    def _rounding_of_losses(self, frames: Sequence[int], state: Mapping[str, Tensor]) -> float:
        """Tolerance of losses: steps of Adam turn rounding of gradients into that of parameters."""

        def losses() -> dict[str, Tensor]:
            trainer = self._plain(torch.float64)
            _load(trainer, state)
            found = [trainer.step(frame) for frame in frames]
            trainer.close()
            return {str(i): torch.tensor(loss, dtype=torch.float64) for i, loss in enumerate(found)}

        return max(tolerances(rounding(losses, losses())).values())

    def _steps_of_plain(
        self,
        dtype: torch.dtype,
        frames: Sequence[int],
        state: Mapping[str, Tensor] | None = None,
    ) -> list[float]:
        """Losses of steps of a new plain trainer, from its first parameters or from these."""
        plain = self._plain(dtype) if dtype == torch.float64 else self._new_by_torch()
        if state is not None:
            _load(plain, state)
        with _few_threads(plain):
            found = [plain.step(frame) for frame in frames]
        plain.close()
        return found

    def _by_torch(self) -> _FrameResults:
        """Results by torch's own operators in float32, with the oracle's parameters."""
        if self._torch is None:
            plain = self._new_by_torch()
            _load(plain, self.trainer.state())
            self._torch = _FrameResults(plain)
        return self._torch

    def _by_float32(
        self, frames: Sequence[int], wanted: Mapping[int, Mapping[str, Tensor]], released: bool
    ) -> dict[str, float]:
        """Tolerance of each answer by what float32 does to it, the largest of `DRAWS`.

        A gap of one tensor is one draw of a random number: twice a lucky one is no bound. So the
        parameters are moved by up to a unit in their last place, and all operations round anew.
        Norms are in float64, as systems have them; in a released baseline they are torch's.
        """
        plain = self._new_by_torch() if released else self._plain(torch.float32)
        state, allowed = self.trainer.state(), dict[str, float]()
        random_bits = torch.Generator().manual_seed(1)
        for draw in range(DRAWS):
            _load(plain, state if draw == 0 else moved_by_a_unit(state, random_bits))
            results = _FrameResults(plain)
            for frame in frames:
                gaps = deviations(results.answers(frame), wanted[frame])
                for name, gap in _rounded(gaps, together=released).items():
                    allowed[name] = max(allowed.get(name, 0.0), gap)
                results.clear()
        plain.close()
        return allowed

    def _nearest(
        self,
        frame: int,
        found: Mapping[str, Tensor],
        wanted: Mapping[str, Tensor],
        allowed: Mapping[str, float],
    ) -> dict[str, Tensor]:
        """Gradients of a frame with slopes at kinks as a trainer found them, where they are off."""
        own = {name: tensor for name, tensor in found.items() if name != OUTPUT}

        off = deviations(own, {name: wanted[name] for name in own})
        if all(gap <= allowed[name] for name, gap in off.items()):
            return {}
        nearest = with_nearest_slopes(
            lambda: self.trainer.gradients(frame), lambda exact: excess(own, exact, allowed)
        )
        return nearest or {}

    def _new_by_torch(self) -> Trainer:
        plain = self._plain(torch.float32)
        for module in plain.model.modules():  # type: ignore[attr-defined]
            if isinstance(module, FrameNorm):
                module.exact = False
        return plain


@comparing()
def judge_retaken(
    left: Mapping[str, Mapping[str, Tensor]],
    exact: Mapping[str, Mapping[str, Tensor]],
    drawn: Iterable[Mapping[str, Mapping[str, Tensor]]],
    retaken: Callable[[], Mapping[str, Mapping[str, Tensor]]],
    about: Mapping[str, Any],
    limits: dict[str, dict[str, float]] | None = None,
    *,
    together: bool = False,
) -> list[ResultCheck]:
    """Checks of what one step of training left, up to what float32 does to it.

    Args:
        left, exact: tensors by kind of check; what follows a comma in a kind says of which part.
        drawn: the same in float32, rounded another way each time.
        retaken: computes the exact tensors from the start.
        about: of all checks, see `ResultCheck`. limits: see `Oracle.retake`.
        together: see `_rounded`.
    """
    allowed = {} if limits is None else limits
    for of, tensors in exact.items():
        allowed[of] = dict.fromkeys(tensors, MIN_TOLERANCE) | allowed.get(of, {})

    plain: dict[str, Mapping[str, Tensor]] = {}  # of a release, the draw that is furthest off

    def judged(exact: Mapping[str, Mapping[str, Tensor]]) -> list[ResultCheck]:
        return [close(of.partition(",")[0], left[of], exact[of], allowed[of], plain=plain.get(of),
                      **about) for of in exact]  # fmt: skip

    checks = judged(exact)
    if together or all(check.gap <= LOOSEST for check in checks):  # else more is never rounding
        for found in drawn:
            if all(check.passed for check in checks):
                return checks
            for of, tensors in found.items():
                gaps = deviations(tensors, exact[of])
                for name, gap in _rounded(gaps, together=together).items():
                    allowed[of][name] = max(allowed[of][name], gap)
                if together and max(gaps.values()) > largest(plain.get(of, exact[of]), exact[of]):
                    plain[of] = tensors
            checks = judged(exact)
        # Operation by operation, where whole results tell too little.
        for of in [of for of, check in zip(exact, checks, strict=True) if not check.passed]:
            moved = rounding(lambda of=of: retaken()[of], exact[of])
            for name, limit in tolerances(moved).items():
                allowed[of][name] = max(allowed[of][name], limit)
        checks = judged(exact)
    if all(check.passed or check.of == "losses" for check in checks):
        return checks
    nearest = with_nearest_slopes(
        retaken, lambda found: sum(excess(left[of], found[of], allowed[of]) for of in exact)
    )
    return judged(nearest or exact)


def _rounded(gaps: Mapping[str, float], *, together: bool) -> dict[str, float]:
    """Tolerance of each tensor by the gap that a draw of float32 arithmetic has.

    Args:
        together: the largest gap holds for all, as in a release, whose norms are torch's: where a
            column is nearly constant all tensors around it lose digits, each as its order of sums
            decides, which is another one in every number of threads and the same in every draw.
            Where torch loses more than `LOOSEST`, a release may, too.
    """
    if not together:
        return {name: min(LOOSEST, SAFETY * gap) for name, gap in gaps.items()}
    worst = max(gaps.values(), default=0.0)
    return dict.fromkeys(gaps, min(max(LOOSEST, PLAIN_SHARE * worst), SAFETY * worst))


class _FrameResults:
    """Results of a plain trainer by frame, each made once as long as parameters stay.

    Attributes:
        trainer: plain.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self._results: dict[int, FrameResult] = {}
        self._outputs: dict[int, Tensor] = {}

    def result(self, frame: int) -> FrameResult:
        """Output, gradients and loss."""
        if frame not in self._results:
            with _few_threads(self.trainer):
                self._results[frame] = self.trainer.result(frame)  # type: ignore[attr-defined]
        return self._results[frame]

    def answers(self, frame: int) -> dict[str, Tensor]:
        """Output and gradients by name."""
        found = self.result(frame)
        return {OUTPUT: found.output, **found.gradients}

    def output(self, frame: int) -> Tensor:
        """Output alone, which costs less."""
        if frame in self._results:
            return self._results[frame].output
        if frame not in self._outputs:
            with _few_threads(self.trainer):
                self._outputs[frame] = self.trainer.evaluate(frame).cpu()
        return self._outputs[frame]

    def known(self, frame: int) -> dict[str, Tensor]:
        """Answers of a frame as far as they were asked for."""
        return self.answers(frame) if frame in self._results else {OUTPUT: self.output(frame)}

    def clear(self) -> None:
        """Forget all: parameters have changed."""
        self._results.clear()
        self._outputs.clear()


def _few_threads(plain: Trainer) -> AbstractContextManager[None]:
    """One thread where a plain trainer works on few numbers: threads that wait for each other at
    every small operation take longer, and far longer where cores are shared."""
    numbers = plain.data.num_nodes * plain.workload.hidden_dim  # type: ignore[attr-defined]
    return one_thread() if numbers < FEW_NUMBERS else nullcontext()


def _moved_by(gradients: Mapping[str, Tensor], trainer: Trainer) -> list[str]:
    """Names of the parameters that a first step of Adam by these gradients changes."""
    found = []
    for name, value in trainer.state().items():
        moved = value.clone().requires_grad_()
        moved.grad = gradients[name].to(moved.dtype)
        torch.optim.Adam([moved], lr=trainer.workload.lr).step()  # type: ignore[attr-defined]
        if not torch.equal(moved.detach(), value):
            found.append(name)
    return found


def _answers(trainer: Trainer, frame: int) -> dict[str, Tensor]:
    """Output and gradients of a trainer on a frame, by name, on the CPU."""
    return {OUTPUT: trainer.evaluate(frame).cpu(), **trainer.gradients(frame)}


def _outputs(answers: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{OUTPUT}, frame {frame}": found[OUTPUT] for frame, found in answers.items()}


def _gradients(answers: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {
        f"{name}, frame {frame}": tensor
        for frame, found in answers.items()
        for name, tensor in found.items()
        if name != OUTPUT
    }


@torch.no_grad()
def _load(trainer: Trainer, state: Mapping[str, Tensor]) -> None:
    for name, parameter in trainer.model.named_parameters():  # type: ignore[attr-defined]
        parameter.copy_(state[name].to(parameter.device, parameter.dtype))


def moved_by_a_unit(state: Mapping[str, Tensor], random_bits: torch.Generator) -> dict[str, Tensor]:
    """Parameters that each differ by up to a unit in the last place of float32."""
    return {
        name: value * (1 + (4 * torch.rand(value.shape, generator=random_bits) - 2) * UNIT)
        for name, value in state.items()
    }


def _sane(kept: dict[str, float] | None) -> dict[str, float] | None:
    """Kept tolerances, or None where they are none."""
    if kept is None or OUTPUT not in kept:
        return None
    return kept if all(0 < value <= LOOSEST for value in kept.values()) else None
