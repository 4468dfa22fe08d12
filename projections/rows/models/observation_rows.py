"""Observations of models in service, the references that they are compared with, and their measured drift, to tables.

Holds: an event that is read twice makes the same rows; a window from the future is a dead letter, with what to do. Times are the brokers',
and of outcomes the sender's where that is earlier: one that is sent again late takes back no later value.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from trainhouse.events.model.asked import requester
from trainhouse.events.model.dataset_profile import FieldProfile
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.model.model_observations import LiveSide, ModelDriftMeasured, PredictionsObserved, ReferenceRecorded
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms, event_ms


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The rows of one event; nothing for other events. Raises InvalidEvent for a window from the future."""
    match envelope.event:
        case PredictionsObserved() as observed:
            yield from _observed(envelope, record, observed)
        case ReferenceRecorded() as reference:
            about = {"event_id": str(envelope.id), "source": reference.source, "samples": reference.count, "user": _sender(reference)}
            histograms = _histograms(reference.inputs, reference.outputs)
            yield Row("model_references_rows", _version(reference) | about | histograms | {"at": _received_ms(envelope, record)})
        case ModelDriftMeasured() as measured:
            of_window = {"window_start": clamp_ms(measured.window_start_ms), "window_end": clamp_ms(measured.window_end_ms)}
            sizes = {"observations": measured.observations, "predictions": measured.count, "reference_count": measured.reference_count}
            reference_of = {"reference_id": str(measured.reference_id), "reference": measured.reference}
            about = _version(measured) | of_window | sizes | reference_of | {"at": _received_ms(envelope, record)}
            for field in measured.fields:
                figures = {
                    name: getattr(field, name) for name in ("psi", "psi_limit", "ks", "ks_limit", "wasserstein", "wasserstein_limit")
                }
                words = {"side": field.side.value, "field": field.field, "verdict": field.verdict.value, "reason": field.reason}
                yield Row("model_drift_rows", about | words | figures)


def _observed(envelope: Envelope, record: Record, observed: PredictionsObserved) -> Iterator[Row]:
    received_ms = _received_ms(envelope, record)
    if refusal := observed.refusal(received_ms):
        raise InvalidEvent(refusal, event_id=str(envelope.id))
    of_window = {"window_start": clamp_ms(observed.window_start_ms), "window_end": clamp_ms(observed.window_end_ms), "at": received_ms}
    about = {"event_id": str(envelope.id), "predictions": observed.count, "user": _sender(observed)}
    labels = {"labels": sum(map(len, observed.outcomes.values()))}
    yield Row("model_windows_rows", _version(observed) | of_window | about | labels | _histograms(observed.inputs, observed.outputs))
    for metric, outcomes in observed.outcomes.items():
        lower = int(metric in observed.lower_is_better)
        for prediction_id, value in outcomes.items():
            outcome = {"metric": metric, "prediction_id": prediction_id, "value": value, "lower_is_better": lower}
            yield Row("model_outcomes_rows", _version(observed) | of_window | outcome | {"at": _sent_ms(envelope, record)})


def _version(event: PredictionsObserved | ReferenceRecorded | ModelDriftMeasured) -> dict[str, Any]:
    return {"project": event.project, "name": event.name, "version": event.version}


def _sender(event: PredictionsObserved | ReferenceRecorded) -> str:
    return requester(event.requested_by, event.user)


def _histograms(inputs: Mapping[str, FieldProfile], outputs: Mapping[str, FieldProfile]) -> dict[str, list[str]]:
    found = [
        (side.value, name, each) for side, of in ((LiveSide.INPUT, inputs), (LiveSide.OUTPUT, outputs)) for name, each in sorted(of.items())
    ]
    return {
        "sides": [side for side, _, _ in found],
        "fields": [name for _, name, _ in found],
        "profiles": [each.model_dump_json() for _, _, each in found],
    }


def _received_ms(envelope: Envelope, record: Record) -> int:
    """Time of the brokers; the event's own where a record has none."""
    return clamp_ms(record.timestamp_ms) or event_ms(envelope, record)


def _sent_ms(envelope: Envelope, record: Record) -> int:
    """The event's own time, and the brokers' where its sender's clock is ahead of theirs."""
    return min(event_ms(envelope, record), _received_ms(envelope, record))
