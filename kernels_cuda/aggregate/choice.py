"""Choice of how a product over one snapshot is done on the CPU: modelled, measured, or forced.

Kernels for several kinds of registers are compiled, rows can be taken by length, and rows of x
asked for early: which is the fastest differs from processor to processor by up to a third, by no
rule that held on three. So it is measured once, in a second at most, and kept in the cache folder
by processor, build and threads; a model stands in where nothing was measured, where a file cannot
be read, and for several snapshots at once. `DGBENCH_AGGREGATE` says who chooses:

    (not set)               what was measured before, else the model; nothing is timed or written
    measured                the same, but what is missing is measured at the first product, and kept
    model                   the model
    avx512, avx2, portable  the model, on these registers or the widest below that are there

Order and asking early change no bit of a result. Other registers add up in another order, so
results differ by rounding.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.build_info import extension
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.machine import cache_root, cpu_name

ORDERED_WIDTH: Final = 128
"""Floats of a row of several snapshots up to which rows are taken by length."""
ORDERED_SINGLE: Final = 31
"""The same for one snapshot: rows of two lines and more cost more than the branches at their ends,
and y is better written from front to back."""
REGISTERS: Final = ("avx512", "avx2", "portable")
TRIED: Final = ("avx512", "avx2")
"""Those that are measured; the last is for machines that have neither."""
SWITCH: Final = "DGBENCH_AGGREGATE"
WIDTHS: Final = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
AHEAD: Final = (8, 32)
LINE: Final = 16
"""Floats of a line of cache; rows within one are asked for as the model says, by the size of x."""
LIMIT_S: Final = 0.8
"""Seconds after which no further width is begun; one takes a tenth of a second at most."""
MARGIN: Final = 0.93
"""Share of the model's time that a variant must stay below to be taken."""
TURNS: Final = 4


class ProductVariant(NamedTuple):
    """One way to do a product.

    Attributes:
        registers: of `REGISTERS`; "" as the compiled model says. ordered: rows by length.
        ahead: entries ahead at which rows of x are asked for; -1 as the compiled model says.
    """

    registers: str
    ordered: bool
    ahead: int


Table = Mapping[int, ProductVariant]
"""Variants that were measured, by width."""

_tables: dict[int, Table] = {}
"""By number of threads; empty ones where the model chooses."""
forgotten = 0
"""Times that `forget` was called: what was chosen before it is out of date."""


def choose(snapshots: int, width: int) -> ProductVariant:
    """The variant of a product of `snapshots` by `width` floats a row, on torch's threads.

    Raises InvalidInputError where `DGBENCH_AGGREGATE` is none of its values.
    """
    threads = torch.get_num_threads()
    table = _tables.get(threads)
    if table is None:
        table = _tables[threads] = _table(threads)
    if not table or snapshots > 1:
        return model(snapshots, width)
    return table.get(width) or _near(table, width)


def model(snapshots: int, width: int) -> ProductVariant:
    """ProductVariant where nothing was measured."""
    most = ORDERED_SINGLE if snapshots == 1 else ORDERED_WIDTH
    return ProductVariant("", snapshots * width <= most, -1)


def forget() -> None:
    """Look at the environment and the kept file again at the next product."""
    global forgotten
    forgotten += 1
    _tables.clear()
    extension(torch.device("cpu")).aggregate_registers("")


def measure(seconds: Callable[[ProductVariant, int], float], spent: Callable[[], float]) -> Table:
    """The fastest variant of each width, one property after the other.

    Args:
        seconds: does a product once by a variant at a width and says how long it took.
        spent: seconds since the beginning; widths that begin after `LIMIT_S` are left to the model.
    """
    found: dict[int, ProductVariant] = {}
    for width in WIDTHS:
        if spent() > LIMIT_S:
            break
        best = model(1, width)
        for name in ProductVariant._fields:
            values = {
                "registers": TRIED,
                "ordered": (not best.ordered,),
                "ahead": AHEAD if width > LINE else (),
            }[name]
            others = [best._replace(**{name: value}) for value in values]
            best = _faster(best, others, width, seconds)
        found[width] = best
    return found


def _faster(
    best: ProductVariant,
    others: Iterable[ProductVariant],
    width: int,
    seconds: Callable[[ProductVariant, int], float],
) -> ProductVariant:
    """The best of some variants in turns; another one than `best` only by a margin."""
    everyone = [best, *others]
    taken: dict[ProductVariant, list[float]] = {one: [] for one in everyone}
    for turn in range(TURNS + 1):
        for one in everyone:
            took = seconds(one, width)
            if turn:  # the first warms
                taken[one].append(took)
    # The least of few turns: what disturbs the machine only ever adds.
    least = min(everyone, key=lambda one: min(taken[one]))
    return least if min(taken[least]) < MARGIN * min(taken[best]) else best


def _near(table: Table, width: int) -> ProductVariant:
    """Of the next measured width above; the model where there is none."""
    above = [known for known in table if known > width]
    return table[min(above)] if above else model(1, width)


def _table(threads: int) -> Table:
    switch = os.environ.get(SWITCH, "")
    if switch not in ("", "measured", "model", *REGISTERS):
        raise InvalidInputError(
            f"{SWITCH} is '{switch}', allowed are measured, model, {', '.join(REGISTERS)}"
        )
    if switch in REGISTERS:
        extension(torch.device("cpu")).aggregate_registers(switch)
    if switch in ("model", *REGISTERS):
        return {}
    path, owner = kept_at(threads)
    table = read(path, owner)
    if table is None and switch == "measured":
        table = _measure_here(threads)
        write(path, owner, table)
    return table or {}


def kept_at(threads: int) -> tuple[Path, dict[str, Any]]:
    """The file of this machine's table, and whose table it is: processor, build, threads."""
    name = cpu_name()
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    folder = cache_root() / "aggregate"
    return folder / f"{slug}-{threads}t.json", {"cpu": name, "threads": threads}


def read(path: Path, owner: Mapping[str, Any]) -> Table | None:
    """A kept table; None where there is none for this processor, build and number of threads."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if {key: kept[key] for key in owner} != owner or kept["build"] != _build():
            return None
        table = {int(width): ProductVariant(*one) for width, one in kept["widths"].items()}
        sound = all(
            one.registers in ("", *REGISTERS)
            and isinstance(one.ordered, bool)
            and type(one.ahead) is int
            and -1 <= one.ahead <= max(AHEAD)
            for one in table.values()
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return table if sound else None


def write(path: Path, owner: Mapping[str, Any], table: Table) -> bool:
    """Keep a table, whole or not at all; False where the folder cannot be written."""
    text = json.dumps({**owner, "build": _build(), "widths": table}, indent=1)
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(part, path)
    except OSError:
        if part is not None and os.path.exists(part):
            os.unlink(part)
        return False
    return True


def _build() -> str:
    """Hash that tells one build of the operators from another."""
    module = extension(torch.device("cpu"))
    return hashlib.sha256(Path(module.__file__ or "").read_bytes()).hexdigest()[:16]


def _measure_here(threads: int) -> Table:
    """`measure` on a power-law graph whose wide rows lie beyond a core's cache."""
    begin = time.perf_counter()
    rows, entries = 20_000, 240_000
    draw = torch.Generator().manual_seed(1)
    degree = torch.rand(rows, generator=draw).pow(-0.6)
    degree = (degree * (entries / degree.sum())).long()
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    nnz = int(indptr[-1])
    indices = torch.randint(0, rows, (nnz,), generator=draw).int()
    plain = (indptr, indices, torch.ones(nnz), None)
    order = torch.empty(rows, dtype=torch.int32)
    by_length = (torch.empty_like(indptr), torch.empty_like(indices), torch.empty(nnz), order)
    cpu = indptr.device
    call("sort_rows", cpu, indptr, None, order)
    call("take_rows", cpu, *plain[:3], order, *by_length[:3])
    place = torch.ones(2, rows * max(WIDTHS))
    clock = time.process_time if threads == 1 else time.perf_counter

    def seconds(variant: ProductVariant, width: int) -> float:
        x, y = (one[: rows * width].view(rows, width) for one in place)
        lists = by_length if variant.ordered else plain
        start = clock()
        call(
            "spmm", cpu, *lists, x, y, None, None, False,
            ahead=variant.ahead, registers=variant.registers,
        )  # fmt: skip
        return clock() - start

    return measure(seconds, lambda: time.perf_counter() - begin)
