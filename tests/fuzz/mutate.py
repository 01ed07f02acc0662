"""Blind mutation: bytes, lines and JSON trees, with what an input does as its only guide.

The readers are half C (pyarrow, msgspec, libyaml, zlib), where no coverage is seen; a refusal in
words not met before is as good a sign of a new path.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

from tests.fuzz.attempt import Tally, limits, watched
from tests.fuzz.target import Target

LONGEST = 16_384
KEPT = 400
"""Inputs that are mutated further."""
BOLD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0,
    1e308, 1e39, 5e-324, "", "x", "\x00", "é\u202e", "../x", "nan", [], {}, [[]], [None], {"": 0},
)  # fmt: skip


class Mutator:
    """Makes inputs of a target out of others; the same seed makes the same inputs."""

    def __init__(self, target: Target, rng: random.Random) -> None:
        self.target, self.rng = target, rng
        ways: list[Callable[[bytes], bytes]] = [self._flip, self._cut, self._copy, self._token]
        if target.kind in ("lines", "json"):
            ways += [self._line, self._number, self._number]
        if target.kind == "json":
            ways += [self._tree] * 6
        self.ways = ways

    def one(self, good: list[bytes], pool: list[bytes]) -> bytes:
        """An input made of one that is accepted, more often than not, or of the pool."""
        rng = self.rng
        data = rng.choice(good if good and rng.random() < 0.7 else pool)
        if rng.random() < 0.1:
            other = rng.choice(pool)
            data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
        for _ in range(1 + int(rng.expovariate(1.0))):
            data = rng.choice(self.ways)(data)
        return data[:LONGEST]

    def _place(self, data: bytes) -> int:
        return self.rng.randrange(len(data) + 1)

    def _flip(self, data: bytes) -> bytes:
        out = bytearray(data or b"0")
        out[self.rng.randrange(len(out))] ^= self.rng.choice((1, 2, 4, 8, 16, 32, 64, 128, 255))
        return bytes(out)

    def _cut(self, data: bytes) -> bytes:
        first = self._place(data)
        return data[:first] + data[first + 1 + int(self.rng.expovariate(0.1)) :]

    def _copy(self, data: bytes) -> bytes:
        first, to = self._place(data), self._place(data)
        part = data[first : first + 1 + int(self.rng.expovariate(0.05))]
        return data[:to] + part * self.rng.choice((1, 1, 1, 2, 50)) + data[to:]

    def _token(self, data: bytes) -> bytes:
        if not self.target.tokens:
            return self._flip(data)
        at, word = self._place(data), self.rng.choice(self.target.tokens)
        return data[:at] + word + data[at + self.rng.choice((0, 0, 1, len(word))) :]

    def _line(self, data: bytes) -> bytes:
        """A line doubled, moved here from elsewhere, emptied or left out."""
        lines = data.split(b"\n")
        at = self.rng.randrange(len(lines))
        instead = self.rng.choice(([lines[at]] * 2, [self.rng.choice(lines)], [b""], []))
        return b"\n".join([*lines[:at], *instead, *lines[at + 1 :]])

    def _number(self, data: bytes) -> bytes:
        """Another number, word or nothing where a digit was."""
        digits = [k for k, byte in enumerate(data) if 48 <= byte <= 57]
        if not digits:
            return self._flip(data)
        first = last = self.rng.choice(digits)
        while last < len(data) and (48 <= data[last] <= 57 or data[last] == 46):
            last += 1
        choices = self.target.tokens or (b"-1", b"0", b"1e9")
        return data[:first] + self.rng.choice(choices) + data[last:]

    def _tree(self, data: bytes) -> bytes:
        """The same document with one node changed."""
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            return self._number(data)
        holder = [tree]
        self._bend(holder)
        return json.dumps(holder[0] if holder else None).encode()

    def _bend(self, holder: Any) -> None:
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            key = self.rng.choice(keys)
            inner = holder[key]
            if not isinstance(inner, dict | list) or not inner or self.rng.random() < 0.25:
                break
            holder = inner
        act = self.rng.randrange(6)
        if act == 0:
            del holder[key]
        elif act == 1 and isinstance(holder, list):
            holder.insert(key, inner)
        elif act == 1:
            holder[self.rng.choice(("x", "", "-1", key + "0"))] = inner
        elif act == 2 and isinstance(inner, int | float):  # most often still allowed
            holder[key] = inner + 1
        else:
            holder[key] = self.rng.choice((*BOLD, [inner]))


def run(target: Target, *, runs: int, seconds: float, seed: int) -> Tally:
    """Mutate until there were `runs` inputs or `seconds` have passed."""
    rng = random.Random(f"{seed}/{target.name}")
    mutator, tally = Mutator(target, rng), Tally(target.name)
    pool, good, seen = target.seeds(), [], set()
    begun = len(pool)
    begin = time.monotonic()
    with limits():
        for number in range(runs):
            data = pool[number] if number < begun else mutator.one(good, pool)
            word = watched(target, data, tally)
            if word == "accepted" and (number < begun or number % 97 == 0):
                good = [*good[-KEPT:], data]
            if word not in seen:
                seen.add(word)
                if number >= begun:
                    pool = [*pool[-KEPT:], data]
            if number % 64 == 0 and time.monotonic() - begin > seconds:
                break
    return tally
