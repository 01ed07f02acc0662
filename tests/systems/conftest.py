"""Settings for the tests of systems."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from dgbench.systems.base.kept import begin_kept


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Graphs of a dozen vertices cost less than waking a second thread, far less on a busy host."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _nothing_kept():
    """Let no test use numbers that another one made sure of."""
    begin_kept({})
