"""The driver of the kernels, which watches them on a device, calls every launcher."""

from __future__ import annotations

import re
import subprocess

import emulator
import pytest


def test_the_driver_calls_every_launcher() -> None:
    declared, called = (
        {
            name
            for path in paths
            for name in re.findall(pattern, re.sub(r"//[^\n]*", "", path.read_text()))
        }
        for paths, pattern in (
            (emulator.SOURCES.glob("*/*.h"), r"\b(dgb_\w+)\("),
            (emulator.DRIVER.iterdir(), r"\b(dgb_\w+)\b"),
        )
    )
    assert declared
    assert declared == called


@pytest.mark.nightly
def test_every_case_is_right_over_the_emulator() -> None:
    if reason := emulator.missing():
        pytest.skip(reason)
    done = subprocess.run([emulator.build_driver()], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
