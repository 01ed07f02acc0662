"""Words of the arena's races: sentences, rates and factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dgbench.harness.figures.words import WIDE, factor, with_interval

if TYPE_CHECKING:
    from dgbench.lab.arena import ArenaRace, RaceEntry, TunedSettings
    from dgbench.lab.compare import Ratio

FASTEST, TIED = "fastest", "same"


def race_title(race: ArenaRace) -> str:
    """Workload of a race with the settings inside it: "Wikipedia, 2 hops, recent"."""
    place = f"{race.case.title} (twin)" if race.twin else race.case.title
    return ", ".join([place, *filter(None, (_setting(race, *one) for one in race.setting))])


def _setting(race: ArenaRace, name: str, value: object) -> str:
    text = race.task.words.get(name, "{}").format(value)
    return text.removesuffix("s") if text.startswith("1 ") else text


def reason_text(one: RaceEntry) -> str:
    """Why a contender has no time: "skipped: not installed"."""
    return f"{one.status}: {one.reason}"


def tuned_words(found: TunedSettings) -> str:
    """Settings that a search chose: `2 threads, reuse off; 4 tried`."""
    changed = [f"{name} {'on' if on else 'off'}" for name, on in found.switches.items()]
    count = f"{found.threads} thread{'s' * (found.threads != 1)}"
    return f"{', '.join([count, *changed])}; {found.trials} tried"


def factor_text(found: Ratio) -> str:
    """A factor with its interval: `2.1x [1.9, 2.3]`."""
    return with_interval(found.value, found.low, found.high)


def ratio_text(one: RaceEntry) -> str:
    """`fastest`, a factor with its interval, or `same` where it is not told from the fastest."""
    if one.ratio is None:
        return FASTEST
    text = factor_text(one.ratio)
    if one.ratio.low is None:
        return f"{text}, no interval"
    return text if one.behind else f"{TIED} ({text})"


def shown_rate(value: float) -> str:
    """A rate with three digits and an SI prefix: `1.23 M`."""
    for limit, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit * 0.9995:
            return f"{value / limit:.3g} {prefix}"
    return f"{value:.3g}"


def lead_text(race: ArenaRace) -> str:
    """By how much the first is ahead of the next: `2.1x [1.9, 2.3]`, or `more than 3.1x` where
    its interval is so wide that the middle says nothing."""
    lead = race.lead
    if lead is None or lead.low is None or lead.high is None:
        return ""
    if lead.low > 0 and lead.high / lead.low > WIDE:
        return f"more than {factor(lead.low)}"
    return factor_text(lead)


def conditions(race: ArenaRace) -> str:
    """Device and number of processes of a race."""
    return f"{race.device.upper()}, {race.processes} process{'es' * (race.processes != 1)}"


def listed(names: Sequence[str]) -> str:
    """`A`, `A and B`, `A, B and C`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def lower_first(text: str) -> str:
    """A title inside a sentence."""
    return text[:1].lower() + text[1:]


def sentence(race: ArenaRace) -> str:
    """A sentence on a race that can be quoted: who is fastest, by how much, over what, where."""
    timed = race.timed
    where = f"{race.task.title}, {race_title(race)}"
    if not timed:
        return f"{where}: nothing was timed."
    first = timed[0]
    rate = f"{shown_rate(first.rate or 0.0)} {race.task.unit}/s"
    rival = race.rival
    if rival is None:
        return f"{where}: {first.entrant.title} alone was timed, at {rate}."
    if race.lead is None:
        return (
            f"{where}: {first.entrant.title} was first at {rate}, before {rival.entrant.title}; "
            f"{conditions(race)}: no interval, so that nothing is decided."
        )
    if not race.decided:
        names = listed([one.entrant.title for one in race.leaders])
        return f"{where}: {names} are not told apart, at {rate} ({conditions(race)})."
    return (
        f"{where}: {first.entrant.title} is fastest at {rate}, {lead_text(race)} as fast as "
        f"{rival.entrant.title}, the next ({conditions(race)})."
    )


def quotable(found: Sequence[ArenaRace]) -> str:
    """The sentence of the first race with one leader, else of the first one; "" without races."""
    chosen = [race for race in found if race.decided] or list(found)
    return sentence(chosen[0]) if chosen else ""


def headline(found: Sequence[ArenaRace], where: str) -> str:
    """The sentence above all races: in how many one contender leads, and the widest lead."""
    raced = [race for race in found if len(race.timed) > 1]
    told = [race for race in raced if race.decided]
    if not raced:
        return f"Nothing was raced on {where}"
    if not told:
        return f"On {where}, no contender is told apart from the next in {_races(len(raced))}"
    best = max(told, key=lambda race: (race.lead and race.lead.low) or 0.0)
    rival = best.rival or best.timed[1]
    return (
        f"On {where}, {len(told)} of {_races(len(raced))} {'has' if len(raced) == 1 else 'have'} a "
        f"clear leader; {best.timed[0].entrant.title} leads by most, {lead_text(best)} as fast "
        f"as the next, {rival.entrant.title}, at {lower_first(best.task.title)} "
        f"({race_title(best)}; {conditions(best)})"
    )


def _races(count: int) -> str:
    return "1 race" if count == 1 else f"{count} races"


def gain_text(race: ArenaRace) -> str:
    """The gain that a task takes apart as a product of factors; "" where one of them is missing
    or has no interval."""
    whole = race.breakdown
    if whole is None:
        return ""
    titles = {one.name: one.entrant.title for one in race.entries}
    words = " x ".join(f"{factor_text(one)} {name}" for name, one in whole.parts.items())
    return f"{titles[whole.fast]} over {titles[whole.slow]} is {words}"


def addition_text(one: RaceEntry) -> str:
    """Gain by additions of dgbench: `14.8x [14.1, 15.5] as fast as without`."""
    if one.gain is None:
        return "no pair of processes with the published form"
    text = factor_text(one.gain)
    if one.gain.low is None:
        return f"{text} as fast as without, no interval"
    return f"{text} as fast as without" if one.gain.side else f"{TIED} as without ({text})"
