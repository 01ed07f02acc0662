"""Inputs drawn by hypothesis: documents of the right kind and the wrong content."""

from __future__ import annotations

import json
import time
import zlib
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.attempt import Tally, limits, watched
from tests.fuzz.target import Target

BATCH = 2000


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Whole inputs of a target."""
    seeds = target.seeds()
    blind = st.binary(max_size=300)
    words = st.one_of(st.sampled_from(target.tokens or (b"",)), st.binary(max_size=8), _numbers())
    if target.kind == "json":
        trees = [t for t in map(_tree, seeds) if t is not None]
        return st.one_of(st.sampled_from(trees).flatmap(_like), _json().map(_dump), blind)
    if target.kind == "lines":
        return st.one_of(st.sampled_from(seeds).flatmap(lambda d: _lines(d, words)), blind)
    return st.one_of(st.sampled_from(seeds).flatmap(lambda d: _pieces(d, words)), blind)


def _tree(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _dump(tree: Any) -> bytes:
    return json.dumps(tree).encode()


def _scalars() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=6),
    )  # fmt: skip


def _json() -> st.SearchStrategy[Any]:
    return st.recursive(
        _scalars(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
        max_leaves=6,
    )


def _like(tree: Any) -> st.SearchStrategy[bytes]:
    return _grown(tree).map(_dump)


def _grown(tree: Any) -> st.SearchStrategy[Any]:
    """Trees of the same shape, some of whose nodes are something else."""
    if isinstance(tree, dict):
        same = st.fixed_dictionaries({}, optional={k: _grown(v) for k, v in tree.items()})
    elif isinstance(tree, list):
        parts = [_grown(v) for v in tree[:4]]
        same = st.tuples(*parts).map(list) | (st.lists(st.one_of(parts), max_size=4) if parts else
                                              st.just([]))  # fmt: skip
    elif isinstance(tree, bool) or tree is None:
        same = st.booleans() | st.none()
    elif isinstance(tree, int):
        same = st.integers(-2, 4) | st.integers()
    elif isinstance(tree, float):
        same = st.floats(allow_nan=False, allow_infinity=False)
    else:
        same = st.just(tree) | st.text(max_size=6)
    keep = st.just(tree)
    return st.integers(0, 9).flatmap(lambda n: same if n > 3 else keep if n else _json())


def _numbers() -> st.SearchStrategy[bytes]:
    return (st.integers().map(str) | st.floats().map(repr)).map(str.encode)


def _lines(data: bytes, words: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    lines = data.split(b"\n")
    changed = st.sampled_from(lines).flatmap(lambda line: _pieces(line, words))
    line = st.sampled_from(lines) | changed
    few = st.lists(line, max_size=6).map(b"\n".join)
    return few.map(lambda rest: lines[0] + b"\n" + rest)


def _pieces(data: bytes, words: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    place = st.integers(0, len(data))
    return st.tuples(place, place, words).map(
        lambda cut: data[: min(cut[:2])] + cut[2] + data[max(cut[:2]) :]
    )


def run(target: Target, *, runs: int, seconds: float, seed_: int) -> tuple[Tally, list[bytes]]:
    """Draw until there were `runs` inputs or `seconds` have passed; see `mutate.run`."""
    tally, seen, new = Tally(target.name, "hypothesis"), set(), []
    strategy, begin, batch = inputs(target), time.monotonic(), 0

    def one(data: bytes) -> None:
        word = watched(target, data, tally)
        if word not in seen:
            seen.add(word)
            new.append(data)

    with limits():
        while tally.inputs < runs and time.monotonic() - begin < seconds:
            count = min(BATCH, runs - tally.inputs)
            check = settings(
                max_examples=count, phases=[Phase.generate], database=None, deadline=None,
                suppress_health_check=list(HealthCheck), derandomize=False,
            )(given(strategy)(one))  # fmt: skip
            before = tally.inputs
            seed(zlib.crc32(f"{seed_}/{target.name}/{batch}".encode()))(check)()
            batch += 1
            if tally.inputs == before:
                break
    tally.seconds = time.monotonic() - begin
    return tally, new
