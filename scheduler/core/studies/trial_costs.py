"""Cost of trials: the price of an hour of a device by a pool's policy, and what device-seconds come to by it. Pure.

Holds: a price is the dearest that the job's devices may have, so that a budget is never exceeded by a cheaper guess; of a gang of several
kinds of devices it is the mean over its ranks. It counts for device-seconds that are observed after it; what they cost before stays.
"""

from dataclasses import dataclass

from trainhouse.events import JobSpec
from trainhouse.events.model.policy import Price, Prices

ANY = "any"


@dataclass(frozen=True, slots=True)
class DevicePrice:
    """Price of a device's hour, and the number of the pool's policy that named it."""

    per_hour: float
    currency: str
    version: int

    def of(self, device_s: float) -> float:
        """Cost of so many device-seconds."""
        return max(0.0, device_s) * self.per_hour / 3600


def price_per_hour(prices: Prices, job: JobSpec) -> float | None:
    """Returns the price of an hour of the mean device of a job; None where the policy names none for some of them."""
    parts = [(role.ranks, (role.resources or job.resources).device_type) for role in job.gang.roles]
    parts = parts or [(job.gang.ranks, job.resources.device_type)]
    found = [(ranks, _dearest(prices, device_type, spot=job.placement.spot)) for ranks, device_type in parts]
    known = [(ranks, price) for ranks, price in found if price is not None]
    if len(known) < len(found):
        return None
    return sum(ranks * price for ranks, price in known) / sum(ranks for ranks, _ in known)


def _dearest(prices: Prices, device_type: str, *, spot: bool) -> float | None:
    if device_type == ANY:
        return max(_hour(each, spot=spot) for each in prices.devices.values())
    named = prices.devices.get(device_type) or prices.devices.get(ANY)
    return None if named is None else _hour(named, spot=spot)


def _hour(price: Price, *, spot: bool) -> float:
    return max(price.reserved, price.spot) if spot and price.spot is not None else price.reserved
