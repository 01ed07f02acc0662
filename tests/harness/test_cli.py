"""The command: light to start, plain about mistakes, the same content as JSON."""

from __future__ import annotations

import json
from types import SimpleNamespace

import fake_run
import pytest

from dgbench.harness import doctor
from dgbench.harness.cli import main
from dgbench.harness.cli.choosing import keep_named
from dgbench.runtime.errors import DgbenchError
from dgbench.systems.base import registry


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return int(end.value.code or 0)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A run of the toy paper, with the paper known to the registry."""

    class Point:
        name, value, dist = "toy", "fake_run:PAPER", None
        paper = fake_run.toy_paper(tmp_path)

        def load(self):
            return self.paper

    class Bad(Point):
        name, value = "bad", "nowhere:PAPER"

        def load(self):
            raise ImportError("no module named nowhere")

    real = registry._points

    def points(group):
        if group == registry.PAPERS:
            return {"toy": Point(), "bad": Bad()}
        return real(group)

    monkeypatch.setattr(registry, "_points", points)
    monkeypatch.setenv("DGBENCH_RESULTS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return fake_run.make_run(tmp_path / "runs")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("claims", "toi"), "did you mean: toy?"),
        (("run", "toy/fgi1"), "toy/fig1"),
        (("run", "--resume", "last", "--group", "a"), "leave out --group"),
        (("run", "toy/fig1", "--threads", "0"), "--threads is 0, allowed: 1 to "),
        (("run", "toy/fig1", "--threads", "1", "--cluster", "c.toml"), "leave one of both out"),
        (("reproduce", "bad"), "nowhere"),
        (("reproduce", "toy", "--preset", "quik"), "quick"),
        (("reproduce", "toy", "--resume", "nothing"), "run 'nothing' is not known"),
        (("reproduce", "toy", "--resume", ""), "--resume is '', allowed: a run"),
        (("list", "SYSTEMS"), "did you mean: systems?"),
        (("claims", "toy", "--run", "none-such"), "is not known"),
    ],
)
def test_a_mistake_is_one_line_and_a_hint(toy, words, said, capsys):
    assert call(*words) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert said in err
    assert "Traceback" not in err


def test_list_reports_a_broken_plugin_and_goes_on(toy, capsys):
    assert call("list") == 0
    out = capsys.readouterr().out
    assert "toy/fig1" in out
    assert "broken: paper 'bad'" in out
    assert call("list", "--json") == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["broken"][0]["name"] == "bad"
    assert {e["id"] for e in plain["experiments"]} == {"toy/fig1", "toy/table9"}
    assert call("list", "papers", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "toy"


def test_groups_are_chosen_by_name_and_stay_whole():
    names = ["pair/a", "pair/a", "pair/b", "alone"]
    plan = SimpleNamespace(cells=[SimpleNamespace(cell=SimpleNamespace(group=n)) for n in names])
    keep_named(plan, ("pair/a", "al*"))
    assert [one.cell.group for one in plan.cells] == ["pair/a", "pair/a", "alone"]
    with pytest.raises(DgbenchError):
        keep_named(plan, ("pair/b",))


def test_a_missing_need_of_the_doctor_is_exit_code_one(monkeypatch, capsys):
    missing = doctor.DoctorCheck("torch", "missing", "none", "pip install torch")
    monkeypatch.setattr(doctor, "diagnose", lambda: [missing])
    assert call("doctor") == 1
    assert "pip install torch" in capsys.readouterr().out
