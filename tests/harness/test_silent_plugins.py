"""Systems of third parties that are wrong in silence: each is caught, and none wins."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from silent_plugins import FOREIGN, SILENT, install_silent

from dgbench.harness.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]
"""The run takes 34 s of a core, and minutes where many others want it."""

REASONS = {
    "scaled": "outputs",
    "stale": "outputs",
    "detached": "gradients",
    "biased": "gradients",
    "idle": "updates",
    "owing": "its counter 'edges_aggregated' is -",
    "foreign": "losses",
    "shared": "it replaced torch.Tensor.index_add, which its reference uses, too",
}
"""Words of the reason that a row of each system must give."""


def dgbench(python, env, *words):
    return subprocess.run(
        [*python, "-m", "dgbench", *words], env=env, capture_output=True, text=True, timeout=800,
        check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def raced(tmp_path_factory, warm_python):
    """A run of all of them, as the command ends it."""
    folder = tmp_path_factory.mktemp("silent")
    install_silent(folder)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"PYTHONPATH": path, "DGBENCH_RESULTS": str(folder / "runs")}
    done = dgbench(warm_python, env, "run", "silent/race", "--preset", "smoke", "--device", "cpu")
    (run,) = folder.glob("runs/*/run.json")
    claims = dgbench(warm_python, env, "claims", "silent", "--run", str(run.parent), "--json")
    verdicts = {one["id"]: one for one in json.loads(claims.stdout)}
    return done, Store.open(run.parent).rows(), verdicts


@pytest.mark.parametrize("name", [*SILENT, *FOREIGN])
def test_a_system_that_is_wrong_in_silence_is_caught(raced, name) -> None:
    done, rows, verdicts = raced
    mine = [row for row in rows if row.params.get("system") == name]
    assert mine
    assert not any(row.ok for row in mine)
    assert any(row.status == "check" and REASONS[name] in row.reason for row in mine)
    assert verdicts[f"silent-{name}"]["verdict"] == "not run here"
    assert f"WRONG RESULT: {name} on chickenpox" in " ".join(done.stdout.split())


def test_its_rivals_keep_their_rows_and_the_run_says_it_first(raced) -> None:
    done, rows, verdicts = raced
    sound = [row for row in rows if row.params.get("system") in ("sound", "reference")]
    assert len(sound) == 2
    assert {(row.status, row.reason) for row in sound} == {("ok", "")}
    assert verdicts["silent-sound"]["verdict"] == "reproduced"
    assert done.returncode == 1
    assert done.stdout.lstrip().startswith("WRONG RESULT: ")
