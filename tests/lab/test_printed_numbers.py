"""A number that a paper prints stands in its `claims.yaml` and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dgbench.runtime.documents import load_yaml

SYSTEMS = Path(__file__).parents[2] / "systems"
LEDGERS = sorted(SYSTEMS.glob("*/claims.yaml"))

OWN = {
    "dgc/checks/scaling.py": {1.1: "how close two times are called the same"},
    "gnnflow/experiments/accuracy_runs.py": {0.95: "confidence of an interval"},
    "operators/ceilings/kernels.py": {1.3: "free memory that a table must leave, times its size"},
    "operators/experiments/weighted.py": {2.5: "deviations that a frequency may be off"},
    "tgcn/experiments/quality.py": {1.8: "events scored, over those of a stream"},
    "tgcn/findings/devices.py": {1.5: "how far apart even shares may be"},
    "tgcn/findings/sampling.py": {1.5: "growth called a multiple"},
    "tgcn/partition_runs.py": {1.5: "exponent of a power law"},
}
"""Numbers of our own that happen to stand in the paper's ledger, too."""

NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?![\w%]|\.\d)")


@cache
def printed_numbers(ledger: Path) -> dict[float, str]:
    """Each number in the value of a claim that is recognised as printed, and the claim's id."""
    found: dict[float, str] = {}

    def walk(value: object, claim: str) -> None:
        if isinstance(value, dict | list):
            for one in value.values() if isinstance(value, dict) else value:
                walk(one, claim)
        elif isinstance(value, int | float | str) and not isinstance(value, bool):
            for text in NUMBER.findall(str(value)):
                found.setdefault(float(text.replace(",", "")), claim)

    for claim in load_yaml(ledger.read_bytes()):
        walk(claim.get("value"), claim["id"])
    return {number: claim for number, claim in found.items() if is_telling(number)}


def is_telling(number: float) -> bool:
    """Return True for numbers that code has no other reason to hold.

    Small whole numbers, powers of two and tenths are sizes and shares everywhere.
    """
    if number != int(number):
        return len(f"{number:g}".replace(".", "").lstrip("0")) > 1
    digits = f"{int(number)}".rstrip("0")
    return len(digits) > 2 and int(number) & (int(number) - 1) != 0


def literals(source: str) -> Iterator[tuple[int, float]]:
    """Line and value of each number of a module, those in its texts included; no docstrings.

    In a text a number counts from three digits on: fewer are those of figures and sections.
    """
    tree = ast.parse(source)
    strings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
            continue
        if isinstance(node.value, int | float):
            yield node.lineno, float(node.value)
        elif isinstance(node.value, str) and id(node) not in strings:
            for text in NUMBER.findall(node.value):
                if len(text.replace(".", "")) > 2:
                    yield node.lineno, float(text.replace(",", ""))


@pytest.mark.parametrize("ledger", LEDGERS, ids=lambda path: path.parent.name)
def test_a_printed_number_lives_in_the_ledger_alone(ledger: Path) -> None:
    printed = printed_numbers(ledger)
    copies = {
        f"{path.relative_to(SYSTEMS)}:{line}: {number:g} is printed in {printed[number]}"
        for path in sorted(ledger.parent.rglob("*.py"))
        for line, number in literals(path.read_text())
        if number in printed and number not in OWN.get(str(path.relative_to(SYSTEMS)), ())
    }
    assert not copies


def test_the_numbers_of_our_own_are_still_there() -> None:
    for name, numbers in OWN.items():
        path = SYSTEMS / name
        there = {number for _, number in literals(path.read_text())}
        assert set(numbers) <= there, name


def test_a_copy_is_seen() -> None:
    """Numbers are found in code and in its texts, and not in docstrings."""
    source = '"""Table 3 has 36.7."""\nSHARE = 36.7\nreason = f"{x} of 1,234 in Figure 12"\n'
    assert list(literals(source)) == [(2, 36.7), (3, 1234.0)]
    assert [n for n in (36.7, 1234.0, 0.1, 12.0, 128.0, 1000.0) if is_telling(n)] == [36.7, 1234.0]
