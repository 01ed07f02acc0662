"""The sentences of `answer.PaperAnswer`: all wording of what a run found stands here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dgbench.harness.figures.words import WIDE
from dgbench.harness.store.standing import EARLIER, EXCUSED, OWN_ONLY, UNCOMPARED
from dgbench.harness.terminal.answer import Outcome, PaperAnswer, RaceAnswer, WorkloadOutcome
from dgbench.harness.terminal.text import WIDTH, wrapped
from dgbench.lab.quality import BELOW

MAX_LENGTH = 300
"""Characters of a sentence."""
MAX_SENTENCES = 6
"""Sentences of a paper."""
SHOWN = 3
"""Workloads that a sentence names."""

ORDER: tuple[Outcome, ...] = ("faster", "slower", "no difference")
STATUS_WORDS = {
    "oom": "ran out of memory",
    "time": "reached the time limit",
    "crash": "crashed",
    "check": "failed its check",
}


def sentences(answer: PaperAnswer) -> list[str]:
    """Sentences on the outcome of a paper's main races, the headline first."""
    if answer.smoke:
        return [f"{answer.title}: a smoke run is too short to say which system is faster."]
    text: list[str] = []
    rest: list[str] = []
    for race in answer.races:
        if race.counted:
            start = f"On {answer.device}, " if answer.device and not text else ""
            text += _race_sentences(race, start)
            if not race.fairer:
                rest += [*_quality(race, answer.apart), *_deviation(race), *_rest(race)]
        elif not race.fairer:
            text.append(_nothing(race))
    if answer.one_process:
        rest.insert(
            0,
            "These intervals are over turns inside one process or group of ranks; another start "
            "may differ by more.",
        )
    rest = list(dict.fromkeys(rest))  # two headlines may leave out the same, for the same reason
    if answer.idle:
        rest.append(f"In these races the GPU was idle ({answer.idle.use}).")
    if answer.stopped:
        rest.append(f"The run was stopped early, so {answer.title} is judged by part of it.")
    return [*text[: max(1, MAX_SENTENCES - len(rest))], *rest][:MAX_SENTENCES]


def answer_text(found: Sequence[str], width: int = WIDTH) -> str:
    """Sentences as text of a terminal, each on lines of its own."""
    return "\n".join(wrapped(sentence, "", width) for sentence in found)


def _race_sentences(race: RaceAnswer, start: str) -> list[str]:
    """The lead and how many workloads it holds for, in one sentence where there is room."""
    if all(one.ratio is None or one.ratio.low is None for one in race.counted):
        return [_without_interval(race, start)]
    lead, tally = _lead(race, start), _tally(race)
    if not tally:
        return [f"{lead}."]
    one = f"{lead}; {tally}."
    return [one] if len(one) <= MAX_LENGTH else [f"{lead}.", f"In all: {tally}."]


def _without_interval(race: RaceAnswer, start: str) -> str:
    """Factors that decide nothing, of up to `SHOWN` workloads."""
    subject = race.subject if start else race.subject[0].upper() + race.subject[1:]
    factors = [f"{_factor(one)} {_place(race, one)}" for one in _chosen(race.counted)]
    return (
        f"{start}{subject} was timed against {race.rival} without an interval, so that nothing is "
        f"decided: {_joined(factors)}."
    )


def _lead(race: RaceAnswer, start: str) -> str:
    """Factors on up to `SHOWN` workloads: "PiPAD trains 8.1x [6.9, 9.4] faster than X on W"."""
    shown = _chosen(race.counted)
    if race.fairer:
        start = f"{start}{'against' if start else 'Against'} {race.rival}, "
    subject = race.subject if start else race.subject[0].upper() + race.subject[1:]
    while True:
        text = f"{start}{subject} {_joined(_predicates(race, shown))}"
        if len(text) < MAX_LENGTH or len(shown) == 1:
            return text
        shown = shown[:-1]


def _predicates(race: RaceAnswer, shown: Sequence[WorkloadOutcome]) -> list[str]:
    """Predicates of the subject, one phrase for each outcome among the shown."""
    verb, rival = race.verb, race.rival
    if race.dataset:
        common = WorkloadOutcome(race.dataset, race.details, shown[0].twin, "no difference")
        verb += f" on {_name(common)}"
    phrases: list[str] = []
    for outcome in ORDER:
        mine = [one for one in shown if one.outcome == outcome]
        if not mine:
            continue
        first, *rest = mine
        named = not race.fairer and not phrases
        if outcome == "no difference":
            places = _joined([f"{_place(race, one)} ({_undecided(one)})" for one in mine])
            neither = f"{verb} neither clearly faster nor slower"
            words = f"{neither} than {rival}" if named else neither
            phrases.append(f"{words if not phrases else 'shows no clear difference'} {places}")
            continue
        words = f"{_factor(first)} {outcome}{f' than {rival}' if named else ''}"
        words = f"{words if phrases else f'{verb} {words}'} {_place(race, first)}"
        phrases.append(_joined([words, *(f"{_factor(one)} {_place(race, one)}" for one in rest)]))
    return phrases


def _quality(race: RaceAnswer, apart: bool) -> list[str]:
    """Quality of the subject's model, where it is below the dictionary or the reference."""
    where = " (trained whole in another run)" if apart else ""
    found: list[str] = []
    title = race.subject[0].upper() + race.subject[1:]
    for word, said in ((BELOW, BELOW), ("worse", "worse than the reference")):
        mine = [(one, one.quality) for one in race.counted if one.quality]
        places = [
            f"{_name(one)}, {quality.detail}" for one, quality in mine if quality.word == word
        ]
        if places:
            found.append(f"{title} predicts {said} on {'; '.join(places[:SHOWN])}{where}.")
    return found


def _deviation(race: RaceAnswer) -> list[str]:
    """Deviation of both systems' results from the reference, on the workloads that count."""
    parts = []
    for number, title in enumerate((race.subject, race.rival)):
        known = [d for one in race.counted if (d := one.deviations[number]) is not None]
        if known:
            parts.append(f"{max(known):.1g} ({title})")
    if not parts:
        return []
    return [f"Outputs, gradients and losses are within {_joined(parts)} of float64."]


def _chosen(counted: Sequence[WorkloadOutcome]) -> list[WorkloadOutcome]:
    """Up to `SHOWN` workloads whatever their outcome: real data before twins, and one of each
    dataset before a second."""
    seen: dict[str, int] = {}
    ranked = []
    for number, one in enumerate(counted):
        seen[one.dataset] = seen.get(one.dataset, 0) + 1
        ranked.append((one.twin, seen[one.dataset], number))
    return [counted[number] for _, _, number in sorted(ranked)[:SHOWN]]


def _tally(race: RaceAnswer) -> str:
    """On how many workloads, with the range of the factors; "" for a single workload."""
    counted = race.counted
    if len(race.workloads) == 1 or (race.fairer and len(counted) <= SHOWN):
        return ""
    words: list[str] = []
    for outcome in ORDER:
        mine = race.having(outcome)
        if not mine:
            continue
        number = str(len(mine)) if words else f"{len(mine)} of {_workloads(len(counted))}"
        span = _span(mine) if outcome != "no difference" and len(counted) > SHOWN else ""
        word = "no clear difference" if outcome == "no difference" else outcome
        words.append(f"{word} on {number}{span}")
    return ", ".join(words)


def _span(mine: Sequence[WorkloadOutcome]) -> str:
    """` (1.5x to 9.4x)`, the smallest and the largest factor."""
    if len(mine) < 2:
        return ""
    factors = sorted(mine, key=_size)
    low, high = (f"{_number(_size(one), _size(one))}x" for one in (factors[0], factors[-1]))
    return f" ({low} to {high})" if low != high else f" ({low})"


def _size(one: WorkloadOutcome) -> float:
    assert one.ratio is not None
    return 1 / one.ratio.value if one.outcome == "slower" else one.ratio.value


def _factor(one: WorkloadOutcome) -> str:
    """`2.1x [1.9, 2.3]`; of a slower system how many times slower it is."""
    ratio = one.ratio
    assert ratio is not None
    value, low, high = ratio.value, ratio.low, ratio.high
    if low is None or high is None:
        return f"{_number(value, value)}x"
    if one.outcome == "slower":
        value, low, high = 1 / value, 1 / high, 1 / low
    if high > WIDE * low:
        return f"{_number(value, value)}x, uncertain by a factor of {_uncertainty(low, high)}"
    return f"{_number(value, value)}x [{_number(low, value)}, {_number(high, value)}]"


def _uncertainty(low: float, high: float) -> str:
    """Factor by which an interval reaches beyond its middle, in words."""
    wide = math.sqrt(high / low) if low > 0 else math.inf
    return f"{wide:.0f}" if wide < 1000 else "over 1000"


def _number(number: float, value: float) -> str:
    """A number with as many decimals as a factor of this size needs: 1.04, 8.1, 247."""
    return f"{number:.{2 if value < 2 else 1 if value < 20 else 0}f}"


def _undecided(one: WorkloadOutcome) -> str:
    return _factor(one) + (", within the noise" if one.within_noise else "")


def _place(race: RaceAnswer, one: WorkloadOutcome) -> str:
    """`on HepTh (twin, EvolveGCN)`; `with DySAT` where all workloads are of one dataset."""
    if not race.dataset:
        return f"on {_name(one)}"
    own = [title for title in one.details if title not in race.details] or [_name(one)]
    return f"with {own[0]}" + (f" ({', '.join(own[1:])})" if own[1:] else "")


def _name(one: WorkloadOutcome) -> str:
    """`HepTh (twin, EvolveGCN)`."""
    marks = (["twin"] if one.twin else []) + list(one.details)
    return f"{one.dataset} ({', '.join(marks)})" if marks else one.dataset


def _rest(race: RaceAnswer) -> list[str]:
    """Sentences on workloads that ran and are not counted, and the number that ran."""
    text = []
    groups: dict[str, list[str]] = {}
    for one in race.having("not counted"):
        groups.setdefault(_fault(one), []).append(_name(one))
    if groups:
        causes = [f"{fault} on {_some(names)}" for fault, names in groups.items()]
        sentence = f"Not counted: {'; '.join(causes)}."
        if len(sentence) > MAX_LENGTH:
            number = _workloads(sum(map(len, groups.values())))
            sentence = f"Not counted: {number} that failed or may be wrong."
        text.append(sentence)
    missing = race.having("not run")
    if missing:
        ran = len(race.workloads) - len(missing)
        names = _some([_name(one) for one in missing])
        sentence = f"{ran} of {_workloads(len(race.workloads))} ran, without {names}"
        text.append(_with_reason(sentence, missing))
    return text


def _with_reason(sentence: str, workloads: Sequence[WorkloadOutcome]) -> str:
    """A sentence with the first reason why workloads say nothing, where there is room."""
    whys = (_fault(o) if o.outcome == "not counted" else o.reason or o.status for o in workloads)
    full = f"{sentence} ({why})." if (why := next(filter(None, whys), "")) else ""
    return full if 0 < len(full) <= MAX_LENGTH else f"{sentence}."


def _workloads(number: int) -> str:
    return "1 workload" if number == 1 else f"{number} workloads"


def _fault(one: WorkloadOutcome) -> str:
    """Why a workload is not counted."""
    who = one.culprit or "one of the two"
    if one.fault == "control disturbed":
        return "not judged, as the A/A control was disturbed"
    if one.fault == "unreadable":
        return f"no ratio can be formed ({one.reason})"
    if one.fault == "not checked":
        if one.reason in (UNCOMPARED, EXCUSED):
            return f"{who} was not compared with a reference"
        if one.reason == OWN_ONLY:
            return f"{who} was compared by its plugin alone"
        if one.reason == EARLIER:
            return f"of {who} the run kept no comparison with a reference"
        return f"the result of {who} was wrong in this run"
    return f"{who} {STATUS_WORDS.get(one.status, 'failed')}"


def _nothing(race: RaceAnswer) -> str:
    """A main race without a factor."""
    total = len(race.workloads)
    counts = "counts" if total == 1 else "count"
    word = "ran" if len(race.having("not run")) == total else counts
    sentence = f"There is no factor of {race.subject} over {race.rival}: "
    sentence += f"0 of {_workloads(total)} {word}"
    return _with_reason(sentence, race.workloads)


def _some(places: Sequence[str]) -> str:
    """The first places, and how many more."""
    if len(places) <= SHOWN:
        return _joined(places)
    return f"{', '.join(places[:SHOWN])} and {len(places) - SHOWN} more"


def _joined(parts: Iterable[str]) -> str:
    """`a, b and c`."""
    *head, last = parts
    return f"{', '.join(head)} and {last}" if head else last
