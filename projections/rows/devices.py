"""Registrations and heartbeats to `devices` and `device_minutes`, decisions to the devices that are closed.

Holds: of each kind of fact the newest by time stays; a repeated heartbeat changes nothing. One heartbeat in SLOT_MS is taken. What is
closed is ordered by the time in the journal, then by the place in it: a node's pool may move to a partition whose journal is younger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainhouse.events.model.decisions import TrustChanged
from trainhouse.events.model.ids import DeviceId
from trainhouse.events.model.node import Device, DeviceHealth, NodeHeartbeat, NodeRegistered, RankState
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms, event_ms
from trainhouse.projections.rows.minutes import MINUTE_MS, first_of_slot

_MEASURED = (
    "utilization_pct",
    "memory_used_bytes",
    "temperature_c",
    "power_w",
    "sm_clock_mhz",
    "max_sm_clock_mhz",
    "ecc_corrected",
    "ecc_uncorrected",
)
_BLANK: dict[str, Any] = {
    "device_index": 0,
    "device_type": "",
    "memory_bytes": 0,
    "nvlink_peers": [],
    "ecc_enabled": None,
    "job_id": "",
    "epoch": None,
    "rank": None,
    "throttled": None,
} | dict.fromkeys(_MEASURED)
_MINUTE = ("memory_used_bytes", "temperature_c", "sm_clock_mhz", "ecc_corrected", "ecc_uncorrected")

# Of a decision's version: the lower bits of its record's seq, and its place in the record.
_SEQS, _PLACES = 2**12, 2**10

Holder = dict[str, Any]


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """Facts and minutes of the devices of one event; nothing for other events."""
    event = envelope.event
    if isinstance(event, NodeRegistered):
        for device in event.devices:
            yield _fact(event, device.device_id, "registered", event_ms(envelope, record), **_hardware(device))
    elif isinstance(event, NodeHeartbeat) and first_of_slot(event):
        at, holders = clamp_ms(event.at_ms), _holders(event)
        reported = {d.device_id: d for d in event.devices}
        for device_id in reported | holders:
            health, holder = reported.get(device_id, DeviceHealth(device_id=device_id)), holders.get(device_id, {})
            yield _fact(event, device_id, "beat", at, throttled=_flag(health.throttled), **_measured(health), **holder)
            yield _minute(event, health, at, str(holder.get("job_id", "")))
    elif isinstance(event, TrustChanged):
        yield _closed(event, envelope, event_ms(envelope, record))


def _hardware(device: Device) -> dict[str, Any]:
    return {
        "device_index": device.index,
        "device_type": device.type,
        "memory_bytes": device.memory_bytes,
        "nvlink_peers": [str(p) for p in device.nvlink_peers],
        "ecc_enabled": _flag(device.ecc_enabled),
    }


def _holders(event: NodeHeartbeat) -> dict[DeviceId, Holder]:
    """Returns the job and rank that hold each device."""
    return {
        rank.device_id: {"job_id": str(attempt.job_id), "epoch": int(attempt.epoch), "rank": rank.rank}
        for attempt in event.attempts
        for rank in attempt.ranks
        if rank.state is not RankState.EXITED
    }


def _measured(health: DeviceHealth) -> dict[str, Any]:
    return {name: _count(getattr(health, name)) for name in _MEASURED}


def _minute(event: NodeHeartbeat, health: DeviceHealth, at: int, job_id: str) -> Row:
    second = at % MINUTE_MS // 1000
    values = {
        "node_id": str(event.node_id),
        "device_id": str(health.device_id),
        "minute": at - at % MINUTE_MS,
        "pool": str(event.pool),
        "job_id": job_id,
        "utilization": {} if health.utilization_pct is None else {second: health.utilization_pct},
        "power_w": {} if health.power_w is None else {second: health.power_w},
        "throttled": _flag(health.throttled),
        "last_at": at,
    }
    return Row("device_minutes_rows", values | {name: _count(getattr(health, name)) for name in _MINUTE})


def _closed(event: TrustChanged, envelope: Envelope, at: int) -> Row:
    return Row(
        "closed_devices_rows",
        {
            "node_id": str(event.node_id),
            "version": _version(at, envelope),
            "at": at,
            "device_ids": [str(d) for d in event.trust.closed_devices],
            "reason": event.reason,
        },
    )


def _version(at: int, envelope: Envelope) -> int:
    order = envelope.order
    place = order.seq % _SEQS * _PLACES + min(order.ordinal, _PLACES - 1) if order is not None else 0
    return at * _SEQS * _PLACES + place


def _fact(event: NodeRegistered | NodeHeartbeat, device_id: DeviceId, fact: str, at: int, **values: Any) -> Row:
    common = {
        "node_id": str(event.node_id),
        "device_id": str(device_id),
        "fact": fact,
        "version": at,
        "at": at,
        "pool": str(event.pool),
        "boot_id": event.boot_id,
    }
    return Row("device_facts", common | _BLANK | values)


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


def _count(value: float | None) -> float | None:
    """A driver that tells a negative count tells nothing."""
    return None if value is None or value < 0 else value
