"""The page of performance against the kept rows, by plain sums over their lines."""

from __future__ import annotations

import gzip
import importlib.util
import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest

from dgbench.harness.store import Store

ROOT = Path(__file__).resolve().parents[1]
KEPT = sorted(p.parent for p in (ROOT / "results/reference").glob("*/operators/run.json"))
every_machine = pytest.mark.parametrize("folder", KEPT, ids=lambda p: p.parent.name)


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    path = ROOT / "docs/hooks/performance.py"
    spec = importlib.util.spec_from_file_location("docs_performance", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # for dataclasses
    spec.loader.exec_module(module)
    return module


def lines(folder: Path) -> list[dict]:
    """Rows that went well, as they were written."""
    with gzip.open(folder / "rows.jsonl.gz") as file:
        rows = [json.loads(line)["row"] for line in file]
    return [r for r in rows if r["status"] == "ok" and "control" not in r["params"]]


def test_page_is_what_the_kept_rows_say(hook) -> None:
    found = (ROOT / "docs/performance.md").read_text()
    assert found == hook.page(), f"run: {hook.COMMAND}"


@every_machine
def test_ratio_is_the_lowest_mean_over_peers(hook, folder) -> None:
    """Of races: the geometric mean over processes of what each observed, by hand."""
    seen: dict[tuple, list[float]] = defaultdict(list)
    for row in lines(folder):
        for one in row.get("observed", ()):
            dims = one.get("dims", {})
            if one["metric"] == "speedup" and dims.get("method") == "dgbench":
                key = row["experiment"], tuple(row["params"].items()), dims["baseline"]
                seen[key].append(math.log(one["value"]))
    means = {key: math.exp(sum(logs) / len(logs)) for key, logs in seen.items()}
    raced = [s for s in hook.standings(Store.open(folder).rows()) if s.operator in hook.BOUNDS]
    assert bool(raced) == bool(means)
    limits = {"copy of as many bytes", "torch index_select", "lookup of nothing and gather"}
    peers = {
        key: mean
        for key, mean in means.items()
        if key[2] not in limits and not key[2].startswith("dgbench")
    }
    lowest = defaultdict(lambda: math.inf)
    for (experiment, params, _), mean in peers.items():
        lowest[experiment, params] = min(lowest[experiment, params], mean)
    wanted = sorted((experiment, round(mean, 9)) for (experiment, _), mean in lowest.items())
    assert sorted((s.operator, round(s.ratio.value, 9)) for s in raced) == wanted
