"""The sizes a run comes in."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from dgbench.runtime.errors import unknown_key

MIN_ROUNDS = 5
"""Rounds of a timed claim at least; only groups that have so many may get more."""


class RoundsRule(msgspec.Struct, frozen=True):
    """Limits of adding rounds to groups whose claims are undecided.

    Attributes:
        most: rounds of a group. budget_s: seconds of all processes of a paper; the plan's own
            rounds run even where they take longer.
    """

    most: int
    budget_s: float


@dataclass(frozen=True, slots=True)
class PresetInfo:
    """One preset.

    Attributes:
        name: the word used in commands.
        about: one sentence for people.
        budget_s: seconds of steady iterations that one process aims for.
        control: where A/A controls go: `none`, one per `paper`, or one per `experiment`.
        rounds: when rounds are added to those of the plan; None never.
    """

    name: str
    about: str
    budget_s: float
    control: str
    rounds: RoundsRule | None = None


PRESETS: dict[str, PresetInfo] = {
    p.name: p
    for p in (
        PresetInfo(
            "smoke",
            "seconds: tiny data, one process a cell; shows that everything runs, says no more",
            0.1,
            "none",
        ),
        PresetInfo(
            "quick",
            "about three minutes a paper on two cores: small data, five pairs for a timed claim",
            0.12,
            "paper",
            RoundsRule(most=10, budget_s=165.0),  # a quarter of a minute for plan and report
        ),
        PresetInfo(
            "full",
            "about half an hour a paper on a workstation: real data where it can be had",
            3.0,
            "experiment",
            RoundsRule(most=20, budget_s=1800.0),
        ),
        PresetInfo(
            "paper",
            "the paper's own sizes; says up front what it needs and what it leaves out",
            10.0,
            "experiment",
            RoundsRule(most=20, budget_s=7200.0),
        ),
        PresetInfo(
            "quality",
            "whole trainings over five seeds beside dictionaries, of experiments called 'quality' "
            "alone: hours, which the plan states; it may be interrupted and resumed",
            10.0,
            "none",
        ),
    )
}


def preset_info(name: str) -> PresetInfo:
    """The preset called `name`. Raises UnknownKeyError."""
    if name not in PRESETS:
        raise unknown_key("preset", name, PRESETS)
    return PRESETS[name]
