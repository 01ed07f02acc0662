"""No rank outlives its launcher, however that ends; and ranks that torchrun starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent

LAUNCHER = """
import signal
import sys
import ranks_workers
from dgbench.runtime.ranks import launch

if __name__ == "__main__":
    # A shell starts what runs in the background deaf to Ctrl-C, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder, start = sys.argv[1:]
    launch(ranks_workers.wait_forever, 3, (folder,), timeout_s=50, start=start, threads=1)
"""


def environment() -> dict[str, str]:
    # One thread, so that the launcher may fork; OpenBLAS starts its own when numpy is imported.
    path = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path)}


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(true: object, seconds: float = 40.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
@pytest.mark.parametrize(
    ("start", "number"),
    [("forkserver", signal.SIGKILL), ("fork", signal.SIGKILL), ("fork", signal.SIGINT)],
)
def test_no_orphans(
    start: str, number: signal.Signals, tmp_path: Path, warm_python: list[str]
) -> None:
    script, folder = tmp_path / "launcher.py", tmp_path / "pids"
    script.write_text(LAUNCHER)
    folder.mkdir()
    process = subprocess.Popen(
        [*warm_python, str(script), str(folder), start],
        env={**environment(), "TMPDIR": str(tmp_path)},  # a killed launcher leaves its folder
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: len(list(folder.glob("[0-9]"))) == 3 or process.poll() is not None)
        assert process.poll() is None, process.stderr.read()
        pids = [int(file.read_text()) for file in folder.iterdir()]
        process.send_signal(number)
        wait_until(lambda: process.poll() is not None, 15.0)
        wait_until(lambda: all(map(gone, pids)), 15.0)
        if number is signal.SIGINT:
            assert "KeyboardInterrupt" in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def test_torchrun(tmp_path: Path, warm_python: list[str]) -> None:
    """The same function under torchrun, as on several machines."""
    (tmp_path / "torchrun.py").write_text("from torch.distributed.run import main\nmain()")
    command = [*warm_python, str(tmp_path / "torchrun.py"), "--standalone", "--nproc-per-node=2"]
    command += ["--no-python", *warm_python, "-m", "dgbench.runtime.ranks"]
    command += ["ranks_workers:add_up", "--args", "[20]"]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.strip().splitlines()[-1]) == {"sum": 41.0}
