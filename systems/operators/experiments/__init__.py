"""All races, by operator family."""

from dgbench.lab.grid import Grid
from dgbench.systems.operators.experiments.aggregate import (
    Aggregate,
    Merged,
    MergedBackward,
    Variants,
)
from dgbench.systems.operators.experiments.attention import Attention, PackedAttention
from dgbench.systems.operators.experiments.billion import Billion
from dgbench.systems.operators.experiments.cache import Cache
from dgbench.systems.operators.experiments.ceilings import Ceilings
from dgbench.systems.operators.experiments.device_draws import (
    DeviceEdges,
    DeviceSubgraphs,
    Partners,
    TreeDraws,
)
from dgbench.systems.operators.experiments.difference import Encode, Rebuild
from dgbench.systems.operators.experiments.edge_sampling import EdgeSampling, SubgraphSampling
from dgbench.systems.operators.experiments.ingest import Ingest
from dgbench.systems.operators.experiments.labels import Labels
from dgbench.systems.operators.experiments.loading import LoadingRace
from dgbench.systems.operators.experiments.placements import (
    PlacedRows,
    PlacedSampling,
    PlacedUpdates,
)
from dgbench.systems.operators.experiments.sampling import Insert, Sampling, SamplingBetweenSteps
from dgbench.systems.operators.experiments.scan import PackedScan, Scan
from dgbench.systems.operators.experiments.twins import Twins
from dgbench.systems.operators.experiments.weighted import Weighted

EXPERIMENTS: tuple[Grid, ...] = (
    Aggregate(),
    Merged(),
    MergedBackward(),
    Variants(),
    Scan(),
    PackedScan(),
    Attention(),
    PackedAttention(),
    Encode(),
    Rebuild(),
    Labels(),
    Weighted(),
    TreeDraws(),
    EdgeSampling(),
    DeviceEdges(),
    SubgraphSampling(),
    DeviceSubgraphs(),
    Partners(),
    Sampling(),
    SamplingBetweenSteps(),
    PlacedSampling(),
    Insert(),
    PlacedUpdates(),
    Ingest(),
    Cache(),
    PlacedRows(),
    LoadingRace(),
    Twins(),
    Billion(),
    Ceilings(),
)
