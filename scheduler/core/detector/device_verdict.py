"""Verdicts on degraded devices, one for each fault.

Holds: a verdict on another boot is over; ECC is over when no error came for a whole window; throttling and a slow clock when they were
seen to be over for one.
"""

from trainhouse.events import DeviceHealth
from trainhouse.events.model.verdict import DeviceDegraded, DeviceFault
from trainhouse.scheduler.core.detector.device import DeviceWatch, error_free, new_errors, watch_device
from trainhouse.scheduler.core.detector.formatting import seconds
from trainhouse.scheduler.core.detector.observation import Look
from trainhouse.scheduler.core.detector.open_verdicts import thing


def look_at_device(look: Look, watch: DeviceWatch, health: DeviceHealth) -> None:
    """All rules on one device."""
    watch_device(watch, health, look.limits, look.at_ms, look.seen_ms)
    window_s = look.limits.device_window_s
    errors, throttled, slow = new_errors(watch), watch.throttled.verdict(window_s), watch.slow.verdict(window_s)
    if not (look.node.stands or errors or throttled or slow):
        return
    if errors >= look.limits.ecc_errors:
        words = f"{errors} new uncorrected memory errors within {seconds(window_s)}, {watch.uncorrected} in all"
        _say(look, health, DeviceFault.ECC, errors, watch.rises[0][0], words)
    elif error_free(watch, look.limits, look.at_ms):
        _lift(look, health, DeviceFault.ECC, f"no new uncorrected memory error for {seconds(window_s)}")
    if throttled:
        words = f"throttled for {seconds(watch.throttled.held_ms / 1000)}{_heat(health)}"
        _say(look, health, DeviceFault.THROTTLED, 1.0, watch.throttled.since_ms, words)
    elif throttled is False:
        _lift(look, health, DeviceFault.THROTTLED, f"not throttled for {seconds(window_s)}{_heat(health)}")
    words = f"its clock is at {watch.clock_share:.0%} of its best under load (limit {look.limits.clock_share:.0%})"
    if slow:
        _say(look, health, DeviceFault.SLOW_CLOCK, watch.clock_share, watch.slow.since_ms, f"{words}{_heat(health)}")
    elif slow is False:
        _lift(look, health, DeviceFault.SLOW_CLOCK, words)


def end_other_boots(look: Look) -> None:
    """Devices are set up anew when a machine boots: their faults are reported anew, or are gone."""
    for about, stood in list(look.node.stands.items()):
        if stood.device_id is not None and stood.boot_id not in (None, look.node.boot_id):
            look.lifts(about, f"{look.node.node_id} was booted since")


def _heat(health: DeviceHealth) -> str:
    found = [f"{v:.0f} {unit}" for v, unit in ((health.temperature_c, "°C"), (health.power_w, "W")) if v is not None]
    return f", at {', '.join(found)}" if found else ""


def _say(look: Look, health: DeviceHealth, fault: DeviceFault, value: float, since_ms: int, words: str) -> None:
    event = DeviceDegraded(
        pool=look.node.pool,
        node_id=look.node.node_id,
        boot_id=look.node.boot_id,
        device_id=health.device_id,
        fault=fault,
        value=value,
        since_ms=since_ms,
        at_ms=look.now_ms,
        evidence=f"{health.device_id} of {look.node.node_id}: {words}",
    )
    look.issue(event, look.node.node_id, look.node.boot_id, health.device_id, fault, since_ms)


def _lift(look: Look, health: DeviceHealth, fault: DeviceFault, words: str) -> None:
    about = thing(DeviceDegraded.event_type, None, None, None, health.device_id, fault)
    if about in look.node.stands:
        look.lifts(about, f"{health.device_id} of {look.node.node_id}: {words}")
