"""Estimates of the time that is left, shares of checks, and output that nobody reads."""

from __future__ import annotations

import errno
import io

import pytest

from dgbench.harness.terminal.progress import ProgressListener


@pytest.mark.parametrize("live", [True, False])
def test_progress_that_nobody_reads_does_not_end_the_run(live):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(errno.EPIPE, "gone")

    shown = ProgressListener(Closed(), live=live)
    shown.on_note("the fork server died")
    shown.on_end()
