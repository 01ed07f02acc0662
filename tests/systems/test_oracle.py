"""The oracle, its tolerances, and trainers that are wrong in one way each."""

from __future__ import annotations

import pytest
import torch
from tiny_data import serve, tiny_sequence, tiny_workload
from torch import Tensor
from torch.nn import functional

from dgbench.lab.experiment import RunContext
from dgbench.lab.result_checks import LOOSEST, NUMERIC, close, equal, largest
from dgbench.runtime.draws import seed_draws
from dgbench.runtime.meter import Meter
from dgbench.systems.base import get_system, race
from dgbench.systems.base.conditioning import rounding, tolerances
from dgbench.systems.base.kept import begin_kept, kept_in_process, read
from dgbench.systems.base.kinks import with_nearest_slopes
from dgbench.systems.base.oracle import FRAMES, OUTPUT_FRAMES

MODELS = ("tgcn_model", "evolvegcn", "mpnn_lstm")


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path))
    begin_kept({})
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=9))


def context(number: int = 1) -> RunContext:
    return RunContext("cpu", "smoke", 1, meter=Meter(), budget_s=0.01, round=number)


def failed(found) -> set[str]:
    return {check.of for check in found.checks if not check.passed}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("system", ["reference", "pipad"])
def test_a_right_system_passes(system, model) -> None:
    task = tiny_workload(model=model)
    for found in (race.checked(system, task, context()), race.timed(system, task, context())):
        assert {check.of for check in found.checks} >= {"outputs", "gradients", "losses"}
        assert not failed(found)
        assert all(check.tolerance <= 1e-3 for check in found.checks if check.of in NUMERIC)
        assert {"outputs", "gradients", "moved"} in [set(check.alive) for check in found.checks]
    assert "updates" in {check.of for check in found.checks}


def times(factor):
    return lambda frame, found: factor * found


def swapped(frame, found):
    return found[[1, 0, *range(2, len(found))]]


def five_percent(frame, found):
    name = max(found, key=lambda name: float(found[name].norm()))
    return {**found, name: 1.05 * found[name]}


SPOILS = {
    "outputs": ("evaluate", times(1.5), "outputs"),
    "outputs from frame 2 on": ("evaluate", lambda frame, x: x + 1e-3 * (frame >= 2), "outputs"),
    "order of vertices": ("evaluate", swapped, "outputs"),
    "no gradients": ("gradients", lambda frame, x: {n: torch.zeros_like(x[n]) for n in x},
                     "gradients"),
    "one gradient 5 % off": ("gradients", five_percent, "gradients"),
    "losses": ("step", times(1.01), "losses"),
}  # fmt: skip


def spoil(monkeypatch, system: str, name: str) -> str:
    """Let a system's trainers be wrong; the subject of the check that has to fail."""
    method, change, of = SPOILS[name]
    kind = type(get_system(system).open(tiny_workload(), device="cpu"))
    right = getattr(kind, method)
    monkeypatch.setattr(kind, method, lambda self, i: change(i, right(self, i)))
    return of


@pytest.mark.parametrize(
    ("system", "measure", "name"),
    [*(("pipad", race.checked, name) for name in SPOILS if name != "no gradients"),
     ("pipad", race.timed, "outputs from frame 2 on"), ("pipad", race.timed, "no gradients"),
     ("pygt-g", race.timed, "order of vertices"), ("pygt-g", race.timed, "losses"),
     ("pygt-g", race.timed, "one gradient 5 % off")],
)  # fmt: skip
def test_a_spoiled_system_fails(monkeypatch, system, measure, name) -> None:
    of = spoil(monkeypatch, system, name)
    assert of in failed(measure(system, tiny_workload(), context()))


def test_parameters_that_are_never_updated_fail(monkeypatch) -> None:
    kind = type(get_system("pipad").open(tiny_workload(), device="cpu"))
    monkeypatch.setattr(kind, "step", lambda self, i: self.loss(i))
    assert "losses" in failed(race.checked("pipad", tiny_workload(), context()))
    assert failed(race.timed("pipad", tiny_workload(), context())) == {"updates"}


def test_a_system_that_is_spoiled_in_a_later_process_fails(monkeypatch) -> None:
    race.timed("pipad", tiny_workload(), context())  # the oracle's own losses are kept from here
    of = spoil(monkeypatch, "pipad", "outputs from frame 2 on")
    assert of in failed(race.timed("pipad", tiny_workload(), context(2)))


@pytest.mark.parametrize("number", [1, 2])
def test_updates_that_are_off_show_in_the_losses_of_the_first_steps(monkeypatch, number) -> None:
    kind = type(get_system("pipad").open(tiny_workload(), device="cpu"))
    enqueue = kind.enqueue

    def enqueue_wrong(self, frame):
        loss = enqueue(self, frame)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(1.01)
        return loss

    monkeypatch.setattr(kind, "enqueue", enqueue_wrong)
    assert "losses" in failed(race.timed("pipad", tiny_workload(), context(number)))


def test_kept_losses_that_are_wrong_are_made_anew() -> None:
    race.timed("reference", tiny_workload(), context())
    ((key, right),) = ((k, v) for k, v in kept_in_process()[0].items() if "output" not in v)
    wrong = {name: 3 * x for name, x in right.items()}
    begin_kept({key: wrong})
    assert read(key) == wrong
    assert not failed(race.timed("reference", tiny_workload(), context()))
    assert read(key) == right


@pytest.mark.parametrize("first", [True, False])
def test_of_settings_that_train_in_turns_the_wrong_one_is_named(first) -> None:
    oracle = race.oracle_of(tiny_workload(), context())
    trainers = {
        name: get_system("pipad").open(tiny_workload(), device="cpu") for name in ("on", "off")
    }
    for trainer in trainers.values():
        trainer.prepare()
        trainer.train_epoch()
    assert all(check.passed for check in oracle.settings(trainers, first=first))
    right = trainers["off"].evaluate
    trainers["off"].evaluate = lambda frame: 1.001 * right(frame)
    wrong = [check for check in oracle.settings(trainers, first=first) if not check.passed]
    assert {check.of for check in wrong} == {"outputs"}
    assert all(check.part.startswith("off, ") for check in wrong)


@pytest.mark.parametrize(
    ("system_off", "torch_off", "passed"),
    [({2}, {2}, True),  # another frame is asked instead
     ({2}, {}, False), ({0, 1, 2, 3, 4}, {2}, False), ({2, 4}, {2, 4}, True),
     ({0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, False)],  # none is left
)  # fmt: skip
def test_gradients_say_nothing_where_those_of_torch_are_off(
    monkeypatch, system_off, torch_off, passed
) -> None:
    oracle = race.oracle_of(tiny_workload(), context())
    assert oracle.trainer.num_frames == 5
    trainer = get_system("pipad").open(tiny_workload(), device="cpu")
    trainer.prepare()
    right = trainer.gradients
    trainer.gradients = lambda frame: {
        name: found * (1 + 0.03 * (frame in system_off)) for name, found in right(frame).items()
    }
    plain = oracle._by_torch()
    answers = plain.answers

    def spoiled(frame):
        off = 1 + 0.03 * (frame in torch_off)
        return {n: t if n == "output" else off * t for n, t in answers(frame).items()}

    monkeypatch.setattr(plain, "answers", spoiled)
    checks = oracle.compare(trainer, [2, 4])
    assert all(check.passed for check in checks) is passed
    assert [check.of for check in checks if not check.passed] == ([] if passed else ["gradients"])
    assert {check.of for check in checks} == {"outputs", "gradients"}


@pytest.mark.parametrize(
    ("name", "off", "passed"),
    [("lstm_1.bias_ih_l0", 0.0055, True), ("lstm_1.bias_ih_l0", 0.025, False),
     ("lstm_1.weight_ih_l0", 0.0055, False)],
)  # fmt: skip
def test_a_gradient_is_judged_by_what_float32_does_to_it(monkeypatch, name, off, passed) -> None:
    """torch sums the bias of an LSTM over all rows, one after the other; its norm is worse still,
    but systems have a norm in float64."""
    oracle = race.oracle_of(tiny_workload(model="mpnn_lstm"), context())
    kind = type(oracle.trainer)
    right = kind.result

    def rounded(self, frame):
        found = right(self, frame)
        if self.model.head.linear.weight.dtype == torch.float32:
            exact = self.model.norm_1.exact
            found.gradients["lstm_1.bias_ih_l0"] *= 1.004 if exact else 1.2
        return found

    monkeypatch.setattr(kind, "result", rounded)
    trainer = get_system("pipad").open(tiny_workload(model="mpnn_lstm"), device="cpu")
    trainer.prepare()
    own = trainer.gradients
    trainer.gradients = lambda frame: {
        key: found * (1 + off * (key == name)) for key, found in own(frame).items()
    }
    frames = range(oracle.trainer.num_frames)  # none is left to take the place of another
    assert all(check.passed for check in oracle.compare(trainer, frames)) is passed


def test_rounding_follows_the_condition_of_a_sum() -> None:
    terms = torch.randn(2000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    tame, cancelling = terms.abs(), torch.cat([terms, -terms, terms[:1] * 1e-9])

    def moved(values):
        return rounding(lambda: {"sum": values.sum()}, {"sum": values.sum()})

    assert tolerances(moved(cancelling)) == {"sum": LOOSEST}
    assert moved(tame)["sum"] < 1e-5
    assert tolerances(moved(tame))["sum"] < 1e-3


NAN, ONES, NONE = torch.tensor([float("nan")]), torch.ones(3), torch.zeros(3)


@pytest.mark.parametrize(
    ("found", "wanted", "passed"),
    [({"a": [1, 2]}, {"a": [1, 2]}, True), ({"a": [1, 2]}, {"a": [1, 3]}, False),
     ({"a": [1]}, {"a": [1, 2]}, False), ({"a": 1}, {"b": 1}, False), (NAN, NAN, False),
     ([], [], False)],  # nothing was compared
)  # fmt: skip
def test_equal(found, wanted, passed) -> None:
    assert equal("counters", found, wanted, against="x").passed is passed


@pytest.mark.parametrize(
    ("found", "wanted", "passed"),
    [(1.0 + 1e-6, 1.0, True), (1.1, 1.0, False), (float("nan"), 1.0, False),
     ({"a": torch.ones(2)}, {"a": ONES}, False), ({}, {"a": ONES}, False), (NONE, NONE, True),
     (NONE + 1e-3, NONE, False),
     ({"big": ONES, "dust": torch.tensor([2e-9])}, {"big": ONES, "dust": torch.tensor([1e-9])},
      True)],
)  # fmt: skip
def test_close(found, wanted, passed) -> None:
    check = close("outputs", found, wanted, 1e-5, against="x")
    assert check.passed is passed
    assert torch.isfinite(torch.tensor(check.gap, dtype=torch.float64))


def test_the_part_furthest_from_its_own_tolerance_is_named() -> None:
    found, wanted = {"tight": ONES + 1e-6, "loose": ONES + 1e-4}, {"tight": ONES, "loose": ONES}
    check = close("gradients", found, wanted, {"tight": 1e-7, "loose": 1e-3}, against="x")
    assert (check.part, check.passed) == ("tight", False)


@pytest.mark.parametrize("number", [1, 2])
def test_all_contenders_of_a_round_are_compared_on_the_same_frames(monkeypatch, number) -> None:
    found = []
    for system in ("pipad", "pygt-g", "reference"):
        seed_draws("a run, a round")
        checks = race.timed(system, tiny_workload(), context(number)).checks
        found.append([check.frames for check in checks if check.of == "outputs"])
    seed_draws("")
    assert found[0] == found[1] == found[2]
    assert [len(frames) for frames in found[0]] == [FRAMES if number == 1 else OUTPUT_FRAMES]


ROWS = 64
RECTIFIERS = {
    "relu": torch.relu,
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.25),
    "leaky_relu in place": lambda x: functional.leaky_relu(x * 1.0, 0.25, inplace=True),
}


def gradients(x: Tensor, rectify=torch.relu, *, shift: float = 0.0, rows=0) -> dict[str, Tensor]:
    """Of the sum of a rectified layer, with `shift` added to inputs of the rectifier."""
    weight = torch.ones(4, 3, dtype=torch.float64, requires_grad=True)
    inputs = x @ weight
    moved = torch.zeros_like(inputs)
    moved[rows, 0] = shift
    rectify(inputs + moved).sum().backward()
    return {"weight": weight.grad}


def near_zero(size: float) -> Tensor:
    """float64[ROWS, 4] whose first row sums up to `size`, of terms around one."""
    x = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    x[0] = torch.tensor([1.0, -1.0, 2.0, -2.0 + size], dtype=torch.float64)
    return x


@pytest.mark.parametrize("alike", [0, 500])
@pytest.mark.parametrize("kind", RECTIFIERS)
def test_a_slope_that_rounding_decides_is_taken_as_the_trainer_has_it(kind, alike):
    """Rows that are alike pass zero together."""
    x, rectify = near_zero(1e-8), RECTIFIERS[kind]
    x, rows = torch.cat([x, x[:1].expand(alike, 4)]), [0, *range(ROWS, ROWS + alike)]
    left = gradients(x, rectify, shift=-3e-8, rows=rows)  # the other side
    assert largest(left, gradients(x, rectify)) > 1e-3
    nearest = with_nearest_slopes(lambda: gradients(x, rectify), lambda found: largest(left, found))
    assert largest(left, nearest) < 1e-12


def test_a_wrong_sign_far_from_zero_stays_wrong():
    x = near_zero(1e-3)
    left = gradients(x, shift=-2e-3)
    assert with_nearest_slopes(lambda: gradients(x), lambda found: largest(left, found)) is None


def test_rows_of_zeros_are_no_kinks():
    x, seen = near_zero(1e-3), []
    x[5:40] = 0.0
    assert with_nearest_slopes(lambda: seen.append(1) or gradients(x), lambda found: 1.0) is None
    assert len(seen) == 3  # the exact one, and two that measure rounding
