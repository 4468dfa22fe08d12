"""Spending of a study: on which trials, the savings of early stopping, and the bound that comes next; from rows of the SQL contract.

Holds: pure; the gateway and the command line give the same document. Device-seconds of trials that have ended are those that the tuner
counts, those of running ones as their jobs' newest statuses have them. What was saved, and when a bound is reached, is an estimate.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trainhouse.projections.study_listing import OF_STUDY

RUNNING_DEVICE_S: Final = (
    "SELECT sum(greatest(t.device_s, ifNull(j.elapsed_s, 0) * j.world_size)) AS device_s "
    f"FROM (SELECT job_id, device_s FROM trials WHERE {OF_STUDY} AND trials.state = 'RUNNING') AS t "
    "LEFT JOIN (SELECT job_id, elapsed_s, world_size FROM jobs "
    f"WHERE job_id IN (SELECT job_id FROM trials WHERE {OF_STUDY} AND trials.state = 'RUNNING')) AS j ON j.job_id = t.job_id"
)
"""Device-seconds of running trials, by the statuses of their jobs."""
ON: Final = {
    "COMPLETE": "finished",
    "STOPPED": "stopped early",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "RUNNING": "running",
    "WAITING": "waiting",
}
Row = dict[str, Any]


def spending(study: Mapping[str, Any], cost: Sequence[Row], running_device_s: float | None, now_ms: int) -> Row:
    """The document of `study why`. `cost`: rows of `study_cost`; `running_device_s`: of running trials."""
    on = _on(study, cost, running_device_s or 0.0)
    spent_s = sum(each["device_s"] for each in on)
    costs = [each["cost"] for each in on if each["cost"] is not None]
    spent = {"device_s": spent_s, "cost": sum(costs) if costs else None, "currency": study["currency"]}
    for each in on:
        each["share"] = each["device_s"] / spent_s if spent_s > 0 else 0.0
    bounds = _bounds(study, on, spent, now_ms)
    next_one = bounds[0]["bound"] if bounds and bounds[0]["expected_at_ms"] is not None else None
    return {
        "project": study["project"],
        "study": study["study"],
        "state": study["state"],
        "reason": study["reason"] or _reason(study, on),
        "spent": spent | {"price_per_gpu_hour": study["price_per_gpu_hour"]},
        "on": on,
        "saved": _saved(cost, study["currency"]),
        "bounds": bounds,
        "next": next_one,
        "stagnation": study["stagnation"],
    }


def _on(study: Mapping[str, Any], cost: Sequence[Row], running_device_s: float) -> list[Row]:
    """Trials by state, those that ended first."""
    by_state, found = {row["state"]: row for row in cost}, []
    for state, words in ON.items():
        row = by_state.get(state)
        if row is None:
            continue
        device_s, amount = row["device_s"], row["cost"]
        if state == "RUNNING" and running_device_s > device_s:
            if amount is not None:  # what the tuner has not seen yet has the price that holds now
                amount += (running_device_s - device_s) * (study["price_per_gpu_hour"] or 0.0) / 3600
            device_s = running_device_s
        found.append({"on": words, "state": state, "trials": row["trials"], "device_s": device_s, "cost": amount})
    return found


def _reason(study: Mapping[str, Any], on: Sequence[Row]) -> str:
    """Reason of a state that no decision gave a reason for: it has begun, and nothing else happened."""
    if study["budget_cost"] is not None and study["price_per_gpu_hour"] is None:
        return "no trial begins before the tuner knows the price of its devices"
    counts = {each["state"]: each["trials"] for each in on}
    running, waiting = counts.get("RUNNING", 0), counts.get("WAITING", 0)
    return f"no bound is reached: {running} of its trials run and {waiting} wait, at most {study['parallel']} at the same time"


def _saved(cost: Sequence[Row], currency: str) -> Row:
    by_state = {row["state"]: row for row in cost}
    stopped, whole = by_state.get("STOPPED"), by_state.get("COMPLETE")
    empty = {"device_s": None, "cost": None, "currency": currency, "trials": 0, "complete_trials": 0, "mean_device_s": None}
    if stopped is None:
        return empty | {"how": "nothing: no trial was stopped early"}
    if whole is None or stopped["saved_device_s"] is None:
        return empty | {"trials": stopped["trials"], "how": "not known: no complete trial to compare with"}
    # Those that took the value of an equal trial had no devices, and say nothing of how long one takes.
    mean_s = whole["device_s"] / whole["ran_trials"]
    return {
        "device_s": stopped["saved_device_s"],
        "cost": stopped["saved_cost"],
        "currency": currency,
        "trials": stopped["trials"],
        "complete_trials": whole["ran_trials"],
        "mean_device_s": mean_s,
        "how": f"an estimate: each of {stopped['trials']} trials that were stopped early is taken to have gone on as long as the mean of "
        f"{whole['ran_trials']} complete ones, {mean_s:.4g} device-seconds; what it had itself is left out",
    }


def _bounds(study: Mapping[str, Any], on: Sequence[Row], spent: Row, now_ms: int) -> list[Row]:
    """Bounds of a study; the first is the one that it comes to next, at the pace since its creation."""
    elapsed_s = max(0.0, ((study["updated_at_ms"] if study["state"] == "ENDED" else now_ms) - study["created_at_ms"]) / 1000)
    failed = sum(each["trials"] for each in on if each["state"] == "FAILED")
    figures = study["stagnation"]
    # Name, how much is used, how much there is, and how much was used since the creation.
    known = [
        ("trials", float(sum(each["trials"] for each in on)), study["budget_trials"], None),
        ("device_s", spent["device_s"], study["budget_device_s"], None),
        ("cost", spent["cost"] or 0.0, study["budget_cost"], None),
        ("wall_s", elapsed_s, study["budget_wall_s"], None),
        ("failed", float(failed), study["max_failed"] + 1, None),
    ]
    if figures:
        used_s = figures["to_device_s"] - figures["from_device_s"]
        known.append(("stagnation", used_s, figures["within_device_s"], spent["device_s"]))
    goes_on = study["state"] in ("RUNNING", "PAUSED")
    found = []
    for name, used, most, since in known:
        if most is None:
            continue
        pace = (used if since is None else since) / elapsed_s if elapsed_s > 0 else 0.0
        after_s = max(0.0, most - used) / pace if pace > 0 else None
        at_ms = now_ms + round(1000 * after_s) if goes_on and after_s is not None and after_s < _MOST_AHEAD_S else None
        found.append({"bound": name, "used": used, "of": most, "share": used / most, "expected_at_ms": at_ms})
    return sorted(found, key=lambda each: (each["expected_at_ms"] is None, each["expected_at_ms"] or 0, -each["share"]))


_MOST_AHEAD_S: Final = 100 * 365 * 86_400
