"""A fork server for tests of runs."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def server(tmp_path_factory, warm_starts_of_module):
    """Fork server of the paper with the bad cells, for the tests that need not kill it."""
    from fake_papers import lookup

    from dgbench.harness.runner import ForkServer

    log = tmp_path_factory.mktemp("server") / "log"
    with ForkServer(lookup, ["fake"], threads=1, log=log, modules=("torch",)) as running:
        yield running
