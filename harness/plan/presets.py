"""The sizes a run comes in."""

from __future__ import annotations

from dataclasses import dataclass

from dgbench.runtime.errors import unknown_key


@dataclass(frozen=True, slots=True)
class PresetInfo:
    """One preset.

    Attributes:
        name: the word used in commands.
        about: one sentence for people.
        budget_s: seconds of steady iterations that one process aims for.
        control: where A/A controls go: `none`, one per `paper`, or one per `experiment`.
    """

    name: str
    about: str
    budget_s: float
    control: str


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
        ),
        PresetInfo(
            "full",
            "about half an hour a paper on a workstation: real data where it can be had",
            3.0,
            "experiment",
        ),
        PresetInfo(
            "paper",
            "the paper's own sizes; says up front what it needs and what it leaves out",
            10.0,
            "experiment",
        ),
    )
}


def preset_info(name: str) -> PresetInfo:
    """The preset called `name`. Raises UnknownKeyError."""
    if name not in PRESETS:
        raise unknown_key("preset", name, PRESETS)
    return PRESETS[name]
