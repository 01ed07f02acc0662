"""Counted collective operations: what ranks tell each other, to the float and to the link.

`Communicator` is what a distributed system is written against. `LocalCommunicator` is one rank
without processes, `GroupCommunicator` lives on torch.distributed, `CountOnly` walks sizes alone.
"""

from dgbench.runtime.collectives.communicator import (
    CommunicationError,
    Communicator,
    rank_seed,
)
from dgbench.runtime.collectives.exchange import Exchange
from dgbench.runtime.collectives.group import GroupCommunicator
from dgbench.runtime.collectives.progress import RankProgress
from dgbench.runtime.collectives.silent import CountOnly, LocalCommunicator, count_ranks
from dgbench.runtime.collectives.traffic import (
    OPERATIONS,
    PHASES,
    UNITS,
    Traffic,
    TrafficMatrix,
    equal_parts,
    ring_share,
    stack,
)
from dgbench.runtime.collectives.wire import EmulatedLink, LinkEmulation, ProcessorClock

__all__ = [
    "OPERATIONS",
    "PHASES",
    "UNITS",
    "CommunicationError",
    "Communicator",
    "CountOnly",
    "EmulatedLink",
    "Exchange",
    "GroupCommunicator",
    "LinkEmulation",
    "LocalCommunicator",
    "ProcessorClock",
    "RankProgress",
    "Traffic",
    "TrafficMatrix",
    "count_ranks",
    "equal_parts",
    "rank_seed",
    "ring_share",
    "stack",
]
