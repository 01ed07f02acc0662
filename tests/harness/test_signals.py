"""A signal that a library caught still ends the command."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from dgbench.harness.signals import raise_pending, signals_unwind
from dgbench.runtime.errors import SignalExit


def _signalled_twice():
    """A bare `except:` around an import catches the first; the second does not cut an end off."""
    with signals_unwind():
        with contextlib.suppress(BaseException):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        raise_pending()


def test_a_signal_that_a_library_caught_is_raised_again():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SignalExit) as ending:
        _signalled_twice()
    assert ending.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    raise_pending()  # nothing is left of it
