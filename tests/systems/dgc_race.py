"""A made-up race of DGC: its rows, and what the checks of the scaling claims say of them."""

from __future__ import annotations

from functools import partial

from dgc_rows import judged, row_of

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.store.row import Row
from dgbench.systems.base import Measurement
from dgbench.systems.dgc import PAPER
from dgbench.systems.dgc.claims import CHECKS
from dgbench.systems.dgc.experiments.race_runs import (
    CONTIGUOUS,
    DGC,
    EXACT,
    PHASES,
    PLAIN,
    PSS,
    PSS_TS,
    PTS,
    TWINS,
)
from dgbench.systems.dgc.experiments.settings import MODELS

OWN = (
    "abs-speedup-range", "fig12-avg-t-gcn", "fig12-avg-dysat", "fig12-avg-mpnn-lstm",
    "fig12-dgc-best", "fig12-amazon-order", "fig12-epinion-order", "fig4a-pts-best-three",
    "fig4a-epinion-pss-comm", "fig4a-movie-pts-comm", "fig4a-psst-reassign",
    "fig4-no-single-winner", "fig4b-pts-stack-balance", "fig4b-balance-order",
    "fig5c-part-order", "fig5c-trends", "s72-tgcn-movie", "s72-dysat-epinion", "s72-mpnn-movie",
    "s72-mpnn-epinion", "s731-pgc-only", "s731-amazon-pts-close", "s732-cf-speedup",
    "s732-cf-stack-best", "s733-sg-speedup", "fig18-convergence", "s5-disable-same",
)  # fmt: skip
CLAIMS = {
    claim.id: claim for claim in load_ledger(PAPER.ledger) if claim.id.removeprefix("dgc-") in OWN
}
HELD = ("sx-mathoverflow", "amazon-magazine")
USUAL = {
    PSS: 6.0, PTS: 4.0, PSS_TS: 5.0, PLAIN: 3.0, EXACT: 2.0, DGC: 1.5, CONTIGUOUS: 6.5
}  # fmt: skip
FIG4 = {
    "amazon": {PSS: 3.0, PTS: 1.0, PSS_TS: 4.0},
    "epinions": {PSS: 9.0, PTS: 1.0, PSS_TS: 2.0},
    "movie": {PSS: 1.0, PTS: 6.0, PSS_TS: 2.0},
    "stack": {PSS: 2.0, PTS: 1.0, PSS_TS: 3.0},
}


def race_row(
    experiment: str,
    raced: dict[tuple[str, str], dict[str, float]],
    *,
    twin: bool = False,
    ranks: int = 4,
    link: str = "gloo",
    noise: float = 0.01,
    work: float = 0.5,
    divergence: dict[str, float] | None = None,
    sent: dict[str, int] | None = None,
    sizes: tuple[int, int] = (1000, 2000),
    part: dict[str, int] | None = None,
    round: int = 1,
    **params,
) -> Row:
    """A row as `race` makes it: {(dataset, model): {contender: seconds}}.

    A turn is off by `noise` in turn; `work` seconds of each epoch are none of communication.
    """
    deviation, found = {}, Measurement()
    for (dataset, model), times in raced.items():
        dims = {"dataset": dataset, **(part or {}), "model": model}
        deviation[f"{dataset}/{model}"] = 1e-7
        for n, (name, seconds) in enumerate(times.items()):
            observe = partial(found.observe, setting=name, **dims)
            for turn in range(6):
                observe("epoch_time", seconds * (1 + noise * ((turn + n) % 3 - 1)), turn=turn)
            spent = dict.fromkeys(PHASES, 0.0) | {"gnn": work, "communicate": seconds - work}
            for phase, s in spent.items():
                observe("phase_time", s, phase=phase)
            observe("divergence", (divergence or {}).get(name, 1.5))
            observe("exchanged", (sent or {}).get(name, int(1e6 * seconds)))
        found.observe("vertex_steps", sizes[0], **dims)
        found.observe("edges", sizes[1], **dims)
    name = next(iter(raced))[0]
    params = {
        "part": "race", "dataset": name, "models": " ".join(m for _, m in raced), "ranks": ranks,
        "link": link, **params,
    }  # fmt: skip
    return row_of(
        experiment, params, found.observations, data={"twin": twin}, deviation=deviation,
        id=f"{experiment}-{name}-{ranks}-{twin}-{link}-{round}", round=round,
    )  # fmt: skip


def fig12_rows(times: dict[str, float] | None = None, **more) -> list[Row]:
    return [race_row("fig12", {(name, m): times or USUAL for m in MODELS}, **more) for name in HELD]


def twins(times: dict[str, dict[str, float]] | None = None, **more) -> list[Row]:
    return [
        race_row("fig12", {(n, m): (times or {}).get(n, USUAL) for m in MODELS}, twin=True, **more)
        for n in TWINS
    ]


def fig4_rows(times: dict[str, dict[str, float]] | None = None, **more) -> list[Row]:
    times = times or FIG4
    rows = []
    for name, one in times.items():
        own = {k: v[name] if isinstance(v, dict) else v for k, v in more.items()}
        rows.append(race_row("fig4", {(name, "dysat"): one}, twin=name in TWINS, **own))
    return rows


def judge(name: str, rows: list[Row]):
    claim = CLAIMS[f"dgc-{name}"]
    return judged(claim, rows)


def find(name: str, rows: list[Row]):
    claim = CLAIMS[f"dgc-{name}"]
    return CHECKS[claim.id](claim, rows)
