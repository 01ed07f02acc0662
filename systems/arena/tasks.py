"""Definitions of the arena's tasks. A change needs a new version: a test pins the digests."""

from __future__ import annotations

from typing import Final

from dgbench.lab.arena import ArenaCase, ArenaTask, Entrant, QualitySource

SHORT: Final = ("quick", "full", "paper")
LONG: Final = ("full", "paper")
ALL: Final = ("smoke", *SHORT)
DGBENCH = "part of dgbench"
NEWER: Final = "it is newer than this run"
REPLACED: Final = "it is raced in its published form since"

MODELS: Final = {
    "tgcn_model": "T-GCN model",
    "mpnn_lstm": "MPNN-LSTM",
    "evolvegcn": "EvolveGCN",
}


def _train(
    dataset: str,
    title: str,
    edge_life: int,
    presets: dict[str, tuple[str, ...]],
    scale: float = 1.0,
) -> list[ArenaCase]:
    """Cases of all models on one graph, each with its presets."""
    return [
        ArenaCase(
            f"{dataset}/{model}", f"{title}, {MODELS[model]}", on,
            {
                "dataset": dataset, "model": model, "edge_life": edge_life, "scale": scale,
                # The weights of EvolveGCN evolve without looking at features: with a loss on the
                # last snapshot alone the other fifteen would be dead work.
                "loss_on": "every" if model == "evolvegcn" else "last",
            },
        )
        for model, on in presets.items()
    ]  # fmt: skip


_QUICK_ONE: Final = {"tgcn_model": LONG, "mpnn_lstm": SHORT, "evolvegcn": LONG}
_FULL: Final = dict.fromkeys(MODELS, LONG)

SNAPSHOTS: Final = ArenaTask(
    name="snapshot-training",
    version=1,
    title="Training on frames of 16 snapshots",
    what=(
        "One optimiser step (Adam) of node regression with mean squared error on a frame of 16 "
        "snapshots, frames in time order at stride 1, in float32 and one process. Timed is the "
        "median steady step; preparation stands beside it. The rate is vertices times snapshots of "
        "a frame over that time."
    ),
    quality="losses, outputs and gradients of the trainer that was timed against float64",
    unit="vertex-steps",
    settings={
        "frame": 16, "stride": 1, "feature_dim": 16, "hidden_dim": 32, "task": "node", "lr": 1e-3,
        "seed": 1, "norm": "sym", "cell": "gru", "source": "auto",
        "snapshots": {"smoke": 20, "quick": 24, "full": 64, "paper": None},
    },
    cases=(
        *_train("covid19-england", "England-Covid", 8,
                {"tgcn_model": ALL, "mpnn_lstm": SHORT, "evolvegcn": SHORT}),
        *_train("pems08", "PEMS08", 1, _QUICK_ONE),
        *_train("bitcoin-otc", "Bitcoin OTC", 10, _FULL),
        *_train("hepth", "HepTh", 7, _FULL, 0.25),
        *_train("sx-mathoverflow", "sx-mathoverflow", 5, _FULL),
    ),
    reads="snapshots",
    stand_ins={"pems08": "montevideo-bus"},  # sensors on a static network, too
    entrants={
        "pipad, all off": Entrant(
            "PiPAD, all off", "its engine without any technique", form_of="pipad"
        ),
        "pipad, as published": Entrant(
            "PiPAD", "re-implemented from the paper (PPoPP 2023)", form_of="pipad"
        ),
        "pipad, the paper's": Entrant(
            "PiPAD, an earlier form", "merged by a CPU's caches, without Algorithm 1",
            adds_to="pipad, as published", absent="PiPAD as published took its place",
        ),
        "pipad": Entrant(
            "PiPAD + dgbench", "with our compiled steps and fused recurrences",
            adds_to="pipad, as published",
        ),
    },
    rate=("throughput", {"of": "vertex_steps"}),
    factors={
        "re-implementation": ("pygt", "pipad, all off"),
        "the paper's techniques": ("pipad, all off", "pipad, as published"),
        "ours": ("pipad, as published", "pipad"),
    },
    trained=QualitySource("pipad", "quality", "mean_squared_error", "loss"),
    batch="a step is on a frame of 16 snapshots; with others it would be another training",
)  # fmt: skip


TIMELINE_MODELS: Final = {
    "cd_gcn": ("CD-GCN", {"smoothing": "none"}),
    "tm_gcn": ("TM-GCN", {"smoothing": "m_transform", "window": 10}),
    "evolvegcn_o": ("EvolveGCN", {"smoothing": "edge_life", "edge_life": 10}),
}
SEQUENCE_MODELS: Final = {"mpnn_lstm_bare": "MPNN-LSTM", "dysat": "DySAT"}


def _timeline(
    host: str, dataset: str, title: str, model: str, ranks: int, presets: tuple[str, ...]
) -> ArenaCase:
    """A model over a whole timeline on ranks of one machine, as one system deals it out."""
    said, fields = TIMELINE_MODELS.get(model) or (SEQUENCE_MODELS[model], {"hidden_dim": 32})
    words = f"{title}, {said}, {ranks} rank{'s' * (ranks > 1)}"
    settings = {"host": host, "dataset": dataset, "model": model, "ranks": ranks, "fields": fields}
    return ArenaCase(f"{dataset}/{model}/{ranks}", words, presets, settings)


TIMELINES: Final = ArenaTask(
    name="timeline-training",
    version=1,
    title="Training on a whole timeline",
    what=(
        "One optimiser step (Adam) on the last snapshots of a graph at once, in float32, dealt out "
        "over processes of one machine with one thread each. CD-GCN, TM-GCN and EvolveGCN predict "
        "links; MPNN-LSTM and DySAT, which run over vertices while they exist, predict whether a "
        "vertex is active next. Timed is the slowest rank's epoch, in turns on one group of ranks. "
        "The rate is vertices in a snapshot, summed over snapshots, over that time. Bytes that "
        "ranks send in an epoch, and the fullest rank's memory, stand beside it."
    ),
    quality="losses, outputs and gradients of every contender against float64",
    unit="vertex-steps",
    settings={
        "feature_dim": 2, "norm": "sym", "lr": 1e-3, "seed": 1, "source": "auto",
        "snapshots": {"smoke": 4, "quick": 9, "full": 24, "paper": None},
    },
    cases=(
        _timeline("esdg", "wikipedia", "Wikipedia", "cd_gcn", 2, ("smoke", *LONG)),
        _timeline("dgc", "wikipedia", "Wikipedia", "mpnn_lstm_bare", 2, ("smoke", *LONG)),
        *(
            _timeline("esdg", "sx-mathoverflow", "sx-mathoverflow", model, ranks,
                      SHORT if ranks == 2 or (model, ranks) == ("cd_gcn", 1) else LONG)
            for model in TIMELINE_MODELS for ranks in (1, 2, 4)
        ),
        *(
            _timeline("dgc", "sx-mathoverflow", "sx-mathoverflow", model, ranks,
                      SHORT if (model, ranks) == ("mpnn_lstm_bare", 2) else LONG)
            for model in SEQUENCE_MODELS for ranks in (2, 4)
        ),
        *(
            _timeline("esdg", dataset, title, model, 2, LONG)
            for dataset, title in (
                ("epinions-2011-ratings", "Epinions 2011"), ("email-eu-core", "email-Eu"),
            ) for model in TIMELINE_MODELS
        ),
        *(
            _timeline("dgc", dataset, title, "mpnn_lstm_bare", 2, LONG)
            for dataset, title in (
                ("epinions-2011-ratings", "Epinions 2011"), ("email-eu-core", "email-Eu"),
            )
        ),
    ),
    reads="snapshots",
    entrants={
        "plain": Entrant("Snapshot partition", "whole snapshots on each rank, no technique"),
        "vertex": Entrant("Vertex partition", "re-implemented (ESDG's baseline)"),
        "esdg, the paper's": Entrant(
            "ESDG", "re-implemented from the paper (SC 2021)", form_of="esdg"
        ),
        "esdg": Entrant(
            "ESDG + dgbench", "with our compiled scans and spared exchanges",
            adds_to="esdg, the paper's",
        ),
        "pss": Entrant("PSS", "snapshots in turn, re-implemented (DGC's baseline)"),
        "pss, contiguous": Entrant(
            "PSS, contiguous", "runs of snapshots, re-implemented (DGC's baseline)", form_of="pss"
        ),
        "pts": Entrant("PTS", "partition by sequence, re-implemented (DGC's baseline)"),
        "pss-ts": Entrant("PSS-TS", "both partitions, re-implemented (DGC's baseline)"),
        "dgc, exact, the paper's": Entrant(
            "DGC, exact", "chunks and fusion, every row sent", form_of="dgc", absent=NEWER
        ),
        "dgc, the paper's": Entrant(
            "DGC", "re-implemented from the paper (PACMMOD 2023)", exact=False, form_of="dgc",
            absent=NEWER,
        ),
        "dgc": Entrant(
            "DGC + dgbench", "with our refined partition", exact=False, adds_to="dgc, the paper's"
        ),
        "chunks": Entrant(
            "DGC + dgbench, chunks", "our refined partition alone", form_of="dgc",
            adds_to="dgc, the paper's", absent=REPLACED,
        ),
        "dgc, exact": Entrant(
            "DGC + dgbench, exact", "our refined partition and fusion", form_of="dgc",
            adds_to="dgc, exact, the paper's", absent=REPLACED,
        ),
    },
    contender="setting",
    time="epoch_time",
    rate=("throughput", {"of": "vertex_steps"}),
    factors={
        "the paper's techniques": ("plain", "esdg, the paper's"),
        "ours": ("esdg, the paper's", "esdg"),
        "chunks and fusion": ("pss", "dgc, exact, the paper's"),
        "stale rows": ("dgc, exact, the paper's", "dgc, the paper's"),
        "our refinement": ("dgc, the paper's", "dgc"),
    },
    untrained="no quality study has this task",
    untuned="each rank has one thread, and its contenders are settings of switches already",
)  # fmt: skip


def _rounds(dataset: str, title: str, presets: tuple[str, ...], model: str = "tgn") -> ArenaCase:
    """Continuous training on a real stream."""
    settings = {
        "race": "gnnflow/fig8", "dataset": dataset, "model": model, "workload": "whole training",
    }  # fmt: skip
    return ArenaCase(f"{dataset}/{model}", f"{title}, {model.upper()}", presets, settings)


STREAMS: Final = ArenaTask(
    name="stream-training",
    version=2,
    title="Continuous training on a stream of events",
    what=(
        "A round is a day of new edges (an hour on Wikipedia), where 65 % of the stream is there: "
        "the graph takes them in and the model is trained on them for three epochs. Model, batch, "
        "widths and data are those of the whole trainings (preset quality) that say how well the "
        "model predicts: the streams have no features, so that there is nothing to cache. All "
        "contenders train the same model on the same samples in the same batches. Timed is the "
        "round, in turns in one process; the rate counts the events of all epochs."
    ),
    quality="losses of every epoch against one another and against the plain reference",
    unit="events",
    settings={
        "batch": 200,
        "hidden_dim": 100,
        "memory_dim": 100,
        "time_dim": 100,
        "node_dim": 0,
        "edge_dim": 0,
        "lr": 1e-3,
        "epochs": 3,
    },
    cases=(
        _rounds("enron", "Enron", ALL),
        _rounds("wikipedia", "Wikipedia", SHORT),
        _rounds("sx-mathoverflow", "sx-mathoverflow", SHORT),
        _rounds("college-msg", "CollegeMsg", LONG),
        _rounds("email-eu-core", "email-Eu", LONG),
        _rounds("college-msg", "CollegeMsg", LONG, "tgat"),
        _rounds("wikipedia", "Wikipedia", LONG, "tgat"),
        _rounds("enron", "Enron", LONG, "tgat"),
    ),
    reads="events",
    stand_ins={"enron": "flights-2001-01"},  # few vertices that meet many times, too
    entrants={
        "gnnflow, the paper's": Entrant(
            "GNNFlow", "re-implemented from the paper (PVLDB 17)", form_of="gnnflow", absent=NEWER
        ),
        "gnnflow": Entrant(
            "GNNFlow + dgbench",
            "with our blocks that grow and our search over fences",
            adds_to="gnnflow, the paper's",
        ),
        "rebuilt, the paper's": Entrant(
            "GNNFlow, rebuilt",
            "its sampler on a graph that is built anew",
            form_of="gnnflow",
            absent=NEWER,
        ),
        "rebuilt": Entrant(
            "GNNFlow + dgbench, rebuilt",
            "the same with our search over fences",
            form_of="gnnflow",
            adds_to="rebuilt, the paper's",
            absent=REPLACED,
        ),
        "recorded": Entrant(
            "GNNFlow, recorded",
            "its batches as one CUDA graph each",
            form_of="gnnflow",
            adds_to="gnnflow, the paper's",
            absent="it is newer than this run, or this is no CUDA device",
        ),
        "tgl": Entrant("TGL", "re-implemented (TGL, VLDB 2022)"),
    },
    contender="setting",
    time="round_time",
    rate=("throughput", {"of": "events"}),
    factors={
        "sampler": ("tgl", "rebuilt, the paper's"),
        "growing in place": ("rebuilt, the paper's", "gnnflow, the paper's"),
        "ours": ("gnnflow, the paper's", "gnnflow"),
        "one CUDA graph a batch": ("gnnflow", "recorded"),
    },
    trained=QualitySource("gnnflow", "quality", "mrr", floor=True),
    batch="all train on the same batches of 200 events; with others it would be another training",
)

STORES: Final = {
    "blocks": Entrant("block store", DGBENCH, "dgbench"),
    "tcsr": Entrant("T-CSR", "re-implemented (TGL, VLDB 2022)"),
    "tglite": Entrant("tglite", "released", "released"),
    "dgl": Entrant("DGL", "released", "released"),
    "pyg-last": Entrant("PyG LastNeighborLoader", "released", "released"),
    "cugraph": Entrant("pylibcugraph", "released", "released"),
    "cugraph-window": Entrant("pylibcugraph, window", "released", "released"),
}
"""Contenders of `gnnflow/contenders` by their names there."""


def _stream(name: str, title: str, presets: tuple[str, ...], part: str) -> ArenaCase:
    """A case on a real stream of events."""
    settings = {
        "race": "gnnflow/contenders", "dataset": name, "part": part,
        "contenders": "all that are here",
    }  # fmt: skip
    return ArenaCase(name, title, presets, settings)


SAMPLING: Final = ArenaTask(
    name="temporal-sampling",
    version=1,
    title="Sampling temporal neighbours",
    what=(
        "Ten neighbours of each root before the root's own time, recent or uniform, over one hop "
        "of 4,000 edges' roots and two hops of 600; an edge has three roots: its ends and a vertex "
        "at random. Timed is the call, arrays in and arrays out, in turns in one process."
    ),
    quality="recall, leaks and duplicates against a scan of all events",
    unit="roots",
    cases=(
        _stream("college-msg", "CollegeMsg", ("smoke", *LONG), "sampling"),
        _stream("wikipedia", "Wikipedia", SHORT, "sampling"),
        _stream("sx-mathoverflow", "sx-mathoverflow", LONG, "sampling"),
        ArenaCase(
            "power-law", "power law, 10 M edges", LONG,
            {**_stream("power law", "", (), "sampling").settings, "twin": True},
        ),
    ),
    reads="events",
    stand_ins={"college-msg": "flights-2001-01"},
    entrants=STORES,
    contender="setting",
    time="operation_time",
    rate=("throughput", {"of": "roots"}),
    words={"layers": "{} hops", "batch": "{:,} events"},
    batch="how many roots a call has is the task's",
)  # fmt: skip

UPDATE: Final = ArenaTask(
    name="graph-update",
    version=1,
    title="Adding edges to a graph that is sampled",
    what=(
        "A graph that holds 99 % of a stream's edges takes in the last 1 %, until it can be "
        "sampled again; what cannot grow is built anew from arrays at hand. Timed is the update, "
        "in turns in one process, each into a graph made anew."
    ),
    quality="the edges that a grown graph holds against all that were added",
    unit="edges",
    cases=(
        _stream("college-msg", "CollegeMsg", ("smoke", *LONG), "adding"),
        _stream("wikipedia", "Wikipedia", SHORT, "adding"),
        _stream("sx-mathoverflow", "sx-mathoverflow", LONG, "adding"),
        ArenaCase(
            "power-law", "power law, 100 k into 10 M edges", LONG,
            {**_stream("power law", "", (), "adding").settings, "twin": True},
        ),
    ),
    reads="events",
    stand_ins={"college-msg": "flights-2001-01"},
    entrants=STORES,
    contender="setting",
    time="operation_time",
    rate=("throughput", {"of": "edges"}),
    words={"phase": ""},
    batch="how many edges an update has is the task's",
)  # fmt: skip


def _draw(exponent: int, presets: tuple[str, ...]) -> ArenaCase:
    """Half of 10 ** exponent items, with weights by a power law."""
    settings = {"race": "operators/weighted", "items": 10**exponent, "weights": "power"}
    return ArenaCase(f"1e{exponent}", f"{10**exponent:,} items", presets, settings)


WEIGHTED: Final = ArenaTask(
    name="weighted-draw",
    version=1,
    title="Drawing half of n items by weight, without replacement",
    what=(
        "Half of n items in one call, weights by a power law as degrees have it (Pareto, shape "
        "1.2). Timed is the call in processor time of one thread, in turns in one process; weights "
        "are at hand in the type that a contender likes best."
    ),
    quality="k different items, and the share of heavy ones against draws by numpy in float64",
    unit="items",
    cases=(
        _draw(4, ALL),
        _draw(5, SHORT),
        _draw(6, SHORT),
        _draw(7, LONG),
        _draw(8, ("paper",)),
    ),
    entrants={
        "dgbench": Entrant("Exponential keys", DGBENCH, "dgbench"),
        "dgbench, float32": Entrant(
            "Exponential keys, float32", DGBENCH, "dgbench", form_of="dgbench"
        ),
        "dgbench, sis": Entrant("SIS", "re-implemented from the paper of T-GCN"),
        "dgbench, its_bitmap": Entrant("ITS with a bitmap", "re-implemented"),
        "dgbench, alias": Entrant("Alias tables", "re-implemented"),
        "numpy choice": Entrant("numpy.random.choice", "released", "released"),
        "numpy keys": Entrant("Exponential keys in NumPy", "numpy's own functions", "released"),
        "torch exponential, topk": Entrant(
            "Exponential and topk in torch", "torch's own functions", "released"
        ),
        "torch log, topk": Entrant("Log and topk in torch", "torch's own functions", "released"),
        "torch multinomial": Entrant("torch.multinomial", "released", "released"),
    },
    contender="method",
    time="operation_time",
    rate=("throughput", {"of": "items"}),
    untuned="it times one thread, and its contenders have no switches",
)
