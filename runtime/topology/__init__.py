"""Named machines and how long counted traffic would take on them: projections, labelled as such.

from dgbench.runtime.topology import topology
topology("esdg-cluster").time(traffic.matrix("bytes"), traffic.matrix("messages"))
"""

from dgbench.runtime.topology.fit import AlphaBeta, MeasuredExchange, fit, measure_exchange
from dgbench.runtime.topology.matrix import LinkMatrix, parse_link_matrix, read_link_matrix
from dgbench.runtime.topology.model import Projection, Topology, TopologyLink
from dgbench.runtime.topology.named import (
    TOPOLOGIES,
    dgx1_v100,
    esdg_cluster,
    h200_node,
    pcie_switch_pair,
    topology,
)

__all__ = [
    "TOPOLOGIES",
    "AlphaBeta",
    "LinkMatrix",
    "MeasuredExchange",
    "Projection",
    "Topology",
    "TopologyLink",
    "dgx1_v100",
    "esdg_cluster",
    "fit",
    "h200_node",
    "measure_exchange",
    "parse_link_matrix",
    "pcie_switch_pair",
    "read_link_matrix",
    "topology",
]
