"""Machines by name: what is linked to what, with peak figures where nothing was measured.

Bandwidths are published peaks in one direction (PCIe: what a large copy reaches), latencies are
assumptions of the order that collective libraries show. Fitted values (`fit`) should replace them
where there is such a machine; each topology says in `assumed` what it rests on.

Where the figures come from: a V100 has six NVLink 2 bricks of 25 GB/s each way, in a DGX-1 as a
hybrid cube mesh (NVIDIA, "DGX-1 With Tesla V100 System Architecture", 2017; pages of cloud vendors
print the same table of links). PCIe 3.0 x16 has 15.75 GB/s, of which large copies see about 12. EDR
InfiniBand carries 100 Gb/s of data, so two adapters 25 GB/s. QPI at 9.6 GT/s has 19.2 GB/s a link.
An H200 has 900 GB/s of NVLink, half of it each way (NVIDIA, H200 data sheet).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.runtime.topology.matrix import LinkMatrix, bricks, read_link_matrix
from dgbench.runtime.topology.model import Topology, TopologyLink

GB: Final = 1e9
NVLINK2_BRICK: Final = 25 * GB
NVSWITCH_H200: Final = 450 * GB
PCIE3: Final = 12 * GB
QPI: Final = 19.2 * GB
EDR: Final = 12.5 * GB

ALPHA_GPU_S: Final = 5e-6
ALPHA_NET_S: Final = 10e-6

DGX1_FILE: Final = Path(__file__).with_name("dgx1_v100.txt")

Ends = dict[tuple[int, int], tuple[int, ...]]


class _Maker:
    """Collects links by name and routes by pair."""

    def __init__(self, alpha_s: float) -> None:
        self.alpha_s = alpha_s
        self.links: list[TopologyLink] = []
        self.routes: Ends = {}

    def link(self, name: str, bandwidth: float, alpha_s: float | None = None) -> int:
        self.links.append(
            TopologyLink(name, self.alpha_s if alpha_s is None else alpha_s, bandwidth)
        )
        return len(self.links) - 1

    def both(self, name: str, bandwidth: float, alpha_s: float | None = None) -> tuple[int, int]:
        """(out, in) of a port."""
        out = self.link(f"{name} out", bandwidth, alpha_s)
        return out, self.link(f"{name} in", bandwidth, alpha_s)


def dgx1_v100(
    matrix: LinkMatrix | None = None,
    *,
    unlinked: Literal["relay", "host"] = "relay",
    brick: float = NVLINK2_BRICK,
    pcie: float = PCIE3,
    alpha_s: float = ALPHA_GPU_S,
) -> Topology:
    """A DGX-1 with V100s: NVLink between neighbours of a hybrid cube mesh, PCIe beside it.

    Args:
        matrix: links of your machine; None: the usual table (`dgx1_v100.txt`).
        unlinked: how pairs without NVLink talk: `relay` through a third GPU (the widest one, the
            least used among equals), or `host`: over PCIe switches of two GPUs each.
        brick, pcie: bytes per second and direction of one NVLink brick, of a PCIe x16 port.

    Raises:
        InvalidInputError: a pair has no NVLink neighbour in common.
        UnknownKeyError: another `unlinked`.
    """
    if unlinked not in ("relay", "host"):
        raise unknown_key("unlinked", unlinked, ("relay", "host"))
    matrix = matrix or read_link_matrix(DGX1_FILE)
    size = len(matrix)
    make = _Maker(alpha_s)
    wide = {(i, j): bricks(matrix[i][j]) for i in range(size) for j in range(size) if i != j}
    direct = {
        (i, j): make.link(f"gpu{i} > gpu{j}", count * brick)
        for (i, j), count in wide.items()
        if count
    }
    make.routes = {pair: (link,) for pair, link in direct.items()}
    missing = [pair for pair, count in wide.items() if not count]
    if unlinked == "relay":
        used = dict.fromkeys(direct, 0)
        for i, j in missing:
            over = [k for k in range(size) if (i, k) in direct and (k, j) in direct]
            if not over:
                raise InvalidInputError(
                    f"GPU {i} and GPU {j} have no NVLink neighbour in common",
                    hint="unlinked='host'",
                )

            def cost(k: int, i: int = i, j: int = j) -> tuple[int, int, int]:
                legs = ((i, k), (k, j))
                return -min(wide[leg] for leg in legs), max(used[leg] for leg in legs), k

            k = min(over, key=cost)
            used[i, k] += 1
            used[k, j] += 1
            make.routes[i, j] = (direct[i, k], direct[k, j])
    elif missing:
        _pcie_tree(make, size, missing, per_switch=2, switches_per_socket=2, pcie=pcie)
    return Topology(
        "dgx1-v100" if unlinked == "relay" else "dgx1-v100-host",
        size,
        make.links,
        make.routes,
        assumed=f"{brick / GB:g} GB/s per NVLink brick, {pcie / GB:g} GB/s PCIe, "
        f"{alpha_s * 1e6:g} us a message; published peaks and an assumed latency",
    )


def pcie_switch_pair(
    per_switch: int = 4, *, pcie: float = PCIE3, alpha_s: float = ALPHA_GPU_S
) -> Topology:
    """Two PCIe switches with `per_switch` GPUs each; each switch has one port to the host.

    Traffic below a switch uses the ports of its GPUs only, traffic between the switches shares
    their two ports.
    """
    if per_switch < 1:
        raise InvalidInputError(f"'per_switch' is {per_switch}, needed: at least 1")
    make = _Maker(alpha_s)
    size = 2 * per_switch
    pairs = [(i, j) for i in range(size) for j in range(size) if i != j]
    _pcie_tree(make, size, pairs, per_switch=per_switch, switches_per_socket=2, pcie=pcie)
    return Topology(
        "pcie-switch-pair",
        size,
        make.links,
        make.routes,
        assumed=f"{pcie / GB:g} GB/s a port, {alpha_s * 1e6:g} us a message; a large copy's rate "
        "and an assumed latency",
    )


def esdg_cluster(
    nodes: int = 16,
    *,
    inside: Literal["nvlink", "pcie"] = "nvlink",
    network: float = 2 * EDR,
    alpha_s: float = ALPHA_GPU_S,
    alpha_net_s: float = ALPHA_NET_S,
) -> Topology:
    """The cluster of ESDG (SC 2021, section 6.1): 16 nodes of 8 V100, dual 100 Gb InfiniBand.

    Ranks fill node after node. The eight GPUs of a node share its two adapters, which are taken
    to be used evenly and at their peak; the network between nodes has no bottleneck of its own. How
    GPUs are linked inside is not printed: `nvlink` takes the hybrid cube mesh, `pcie` two switches
    of four. Held against Table 2 of the paper (epochs of TM-GCN and CD-GCN less those of EvolveGCN,
    which sends nothing), its exchanges took 1.6 to 2.2 times as long as this model says.

    Raises:
        InvalidInputError: no node. UnknownKeyError: another `inside`.
    """
    if nodes < 1:
        raise InvalidInputError(f"'nodes' is {nodes}, needed: at least 1")
    if inside not in ("nvlink", "pcie"):
        raise unknown_key("inside", inside, ("nvlink", "pcie"))
    node = dgx1_v100(alpha_s=alpha_s) if inside == "nvlink" else pcie_switch_pair(alpha_s=alpha_s)
    per = node.size
    make = _Maker(alpha_s)
    ports = []
    for n in range(nodes):
        first = len(make.links)
        for link in node.links:
            make.link(f"node{n} {link.name}", link.bandwidth, link.alpha_s)
        for (i, j), route in node.routes.items():
            make.routes[n * per + i, n * per + j] = tuple(first + k for k in route)
        ports.append(make.both(f"node{n} network", network, alpha_net_s))
    gpus = [make.both(f"gpu{g} to network", PCIE3) for g in range(nodes * per)]
    for i in range(nodes * per):
        for j in range(nodes * per):
            a, b = i // per, j // per
            if a != b:
                make.routes[i, j] = (gpus[i][0], ports[a][0], ports[b][1], gpus[j][1])
    return Topology(
        f"esdg-cluster-{nodes}x{per}-{inside}",
        nodes * per,
        make.links,
        make.routes,
        assumed=f"{network / GB:g} GB/s a node (dual EDR, printed), {inside} inside (not printed), "
        f"{alpha_net_s * 1e6:g} us a message over the network (assumed)",
    )


def h200_node(
    size: int = 8, *, bandwidth: float = NVSWITCH_H200, alpha_s: float = ALPHA_GPU_S
) -> Topology:
    """GPUs on NVSwitch: every pair at full rate, each limited by its own port."""
    make = _Maker(alpha_s)
    ports = [make.both(f"gpu{i}", bandwidth) for i in range(size)]
    make.routes = {
        (i, j): (ports[i][0], ports[j][1]) for i in range(size) for j in range(size) if i != j
    }
    return Topology(
        "h200-node",
        size,
        make.links,
        make.routes,
        assumed=f"{bandwidth / GB:g} GB/s a port, {alpha_s * 1e6:g} us a message; a published peak "
        "and an assumed latency",
    )


TOPOLOGIES: Final[dict[str, Callable[[], Topology]]] = {
    "dgx1-v100": dgx1_v100,
    "dgx1-v100-host": lambda: dgx1_v100(unlinked="host"),
    "pcie-switch-pair": pcie_switch_pair,
    "esdg-cluster": esdg_cluster,
    "esdg-cluster-pcie": lambda: esdg_cluster(inside="pcie"),
    "h200-node": h200_node,
}


def topology(name: str) -> Topology:
    """A topology by name.

    Raises:
        UnknownKeyError: another name.
    """
    if name not in TOPOLOGIES:
        raise unknown_key("topology", name, TOPOLOGIES)
    return TOPOLOGIES[name]()


def _pcie_tree(
    make: _Maker,
    size: int,
    pairs: list[tuple[int, int]],
    *,
    per_switch: int,
    switches_per_socket: int,
    pcie: float,
) -> None:
    """Route `pairs` over PCIe: GPU, its switch, and the sockets' link where they lie apart."""
    gpus = [make.both(f"gpu{i} pcie", pcie) for i in range(size)]
    count = -(-size // per_switch)
    switches = [make.both(f"switch{s}", pcie) for s in range(count)]
    sockets = -(-count // switches_per_socket)
    between = [make.both(f"socket{s}", QPI) for s in range(sockets)] if sockets > 1 else []
    for i, j in pairs:
        a, b = i // per_switch, j // per_switch
        route = [gpus[i][0]]
        if a != b:
            route.append(switches[a][0])
            left, right = a // switches_per_socket, b // switches_per_socket
            if left != right:
                route += [between[left][0], between[right][1]]
            route.append(switches[b][1])
        make.routes[i, j] = (*route, gpus[j][1])
