"""Work side by side: the same results in the same order, also where processes fail."""

import os

from dgbench.harness.report.parallel import side_by_side


def test_results_keep_their_order():
    assert side_by_side(lambda x: x * x, list(range(20))) == [x * x for x in range(20)]
    assert side_by_side(lambda x: x, []) == []


def test_a_lost_process_costs_nothing(caplog):
    here = os.getpid()

    def work(x):
        if os.getpid() != here:
            os._exit(9)
        return x

    assert side_by_side(work, [1, 2, 3]) == [1, 2, 3]
    if len(os.sched_getaffinity(0)) > 1:
        assert "one by one" in caplog.text
