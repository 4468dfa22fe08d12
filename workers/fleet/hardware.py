"""Hardware of the emulated machines: names, devices, topology.

Holds: node `i` is the same machine in every run of the same plan; racks fill up in order, pods of racks likewise; NVLink spans one node.
"""

from dataclasses import dataclass

from trainhouse.events import Device, DeviceHealth, DeviceId
from trainhouse.workers.agent.node.registration import NodeFacts
from trainhouse.workers.fleet.seeded_random import draw

GIB = 1024**3
DEVICE_MEMORY_GIB = {"H200": 141, "H100": 80, "A100": 80, "A10": 24, "L40S": 48, "V100": 32, "T4": 16}
CPUS_PER_DEVICE = 16
MEMORY_GIB_PER_DEVICE = 128
FIRST_PORT = 30_000


@dataclass(frozen=True)
class Hardware:
    """The machines of one pool. `spot_share` of them, 0 to 1, are labelled `spot`.

    `public_key`: what all of them sign their reports with, being one process; empty: they sign nothing.
    """

    pool: str
    nodes: int
    gpus_per_node: int
    device_type: str = "H100"
    nodes_per_rack: int = 16
    racks_per_pod: int = 8
    spot_share: float = 0.0
    seed: int = 0
    public_key: str = ""

    def node_id(self, index: int) -> str:
        return f"{self.pool}-{index:05d}"

    def labels(self, index: int) -> dict[str, str]:
        """Labels of a node: its NVLink domain, rack, pod, and whether it is a spot node."""
        rack = index // self.nodes_per_rack
        labels = {"nvlink": f"{self.node_id(index)}/0", "rack": f"r{rack}", "pod": f"p{rack // self.racks_per_pod}"}
        if draw(self.seed, "spot", index) < self.spot_share:
            labels["spot"] = "true"
        return labels

    def facts(self, index: int) -> NodeFacts:
        """Returns the facts of the node's registration."""
        return NodeFacts(
            address=f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}",
            ports=tuple(range(FIRST_PORT, FIRST_PORT + self.gpus_per_node)),
            labels=self.labels(index),
            devices=EmulatedDevices(self.node_id(index), self.gpus_per_node, self.device_type),
            cpus=float(CPUS_PER_DEVICE * self.gpus_per_node),
            memory_bytes=MEMORY_GIB_PER_DEVICE * GIB * self.gpus_per_node,
            public_key=self.public_key,
        )


class EmulatedDevices:
    """A node's devices, every one linked with all others; a DeviceSource of the agent."""

    accelerators = True

    def __init__(self, node_id: str, count: int, device_type: str) -> None:
        ids = tuple(DeviceId(f"{node_id}:gpu{i}") for i in range(count))
        memory_bytes = DEVICE_MEMORY_GIB.get(device_type, 0) * GIB
        self._devices = tuple(
            Device(device_id=own, index=i, type=device_type, memory_bytes=memory_bytes, nvlink_peers=tuple(d for d in ids if d != own))
            for i, own in enumerate(ids)
        )
        self._health = tuple(DeviceHealth(device_id=d) for d in ids)

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def health(self) -> tuple[DeviceHealth, ...]:
        return self._health

    def nodes(self, device_id: str) -> tuple[str, ...]:
        return ()
