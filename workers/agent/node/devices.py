"""The devices of a node behind one port: accelerators by NVML, else cpu slots.

Holds: a device's id names the same device for as long as the node is; ids of a node never clash with another's.
"""

from typing import Protocol

from trainhouse.events import Device, DeviceHealth, DeviceId


class DeviceSource(Protocol):
    """Port to the node's devices."""

    @property
    def accelerators(self) -> bool:
        """True if ranks get CUDA_VISIBLE_DEVICES and nccl."""

    def devices(self) -> tuple[Device, ...]:
        """All devices, by index. The same at every call."""

    def health(self) -> tuple[DeviceHealth, ...]:
        """Returns the driver's current state of each device; does not block for long."""

    def nodes(self, device_id: str) -> tuple[str, ...]:
        """The files under /dev that who uses the device needs, those for all devices included."""


class CpuSlots:
    """`slots` places on the processors; ranks on them train with gloo."""

    accelerators = False

    def __init__(self, node_id: str, slots: int) -> None:
        self._devices = tuple(Device(device_id=DeviceId(f"{node_id}:cpu{i}"), index=i, type="cpu") for i in range(slots))

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def health(self) -> tuple[DeviceHealth, ...]:
        return tuple(DeviceHealth(device_id=d.device_id) for d in self._devices)

    def nodes(self, device_id: str) -> tuple[str, ...]:
        return ()
