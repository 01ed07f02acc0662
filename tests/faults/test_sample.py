"""A sample of the fault campaign; the whole of it is `nox -s faults`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="looks into /proc")
def test_a_sample_of_the_campaign_loses_nothing():
    command = [sys.executable, "-m", "tests.faults", "--only", "cell killed"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.split(" faults injected")[0].split()[-1]) >= 8
