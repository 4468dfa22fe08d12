"""Partitions of journals that stand still, as the figures of scheduler, intake and tuner say, for `trainhouse ps`.

Never: waits long; raises for a part that does not answer (`ps` shows its state beside).
"""

import http.client
import urllib.request
from collections.abc import Iterable, Iterator

from prometheus_client.parser import text_string_to_metric_families

from trainhouse.deploy.local.supervision.stack_parts import Part

ANSWER_S = 2.0
MOST_BYTES = 4 * 1024 * 1024
SUFFIX = "_partition_halted"
_JOURNALS = {"scheduler": "trainhouse.decisions", "intake": "trainhouse.directory", "tuner": "trainhouse.tuning"}
_OF_REGISTRY = "trainhouse_registry_"
_WHAT = {"STOPPED": "decides nothing", "PLACEMENT_FROZEN": "places nothing new"}


def halted(listed: Iterable[Part]) -> list[str]:
    """One line for each partition that stands still. Blocks for at most 2 s a part."""
    return [line for part in listed if part.name in _JOURNALS and part.metrics for line in _lines(part)]


def _lines(part: Part) -> list[str]:
    try:
        with urllib.request.urlopen(part.metrics, timeout=ANSWER_S) as answer:  # nosec B310  # an address of this stack
            return list(lines_of(answer.read(MOST_BYTES).decode("utf-8", "replace"), part.name))
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return []  # cut off in the midst of it, or another program answers there


def lines_of(text: str, part: str) -> Iterator[str]:
    """The lines of one part's figures. Pure. Raises ValueError or KeyError for text that is none."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.endswith(SUFFIX) and sample.value and sample.labels["partition"].isdecimal():
                where, fault = sample.labels["partition"], sample.labels["fault"]
                journal = "trainhouse.registry" if sample.name.startswith(_OF_REGISTRY) else _JOURNALS[part]
                yield (
                    f"partition {where} of {journal} {_WHAT.get(fault, 'stands still')}, all others go on: the log of {part} "
                    "says why"
                    f"{'; `trainhouse journal repair` shows a record that cannot be folded' if fault == 'STOPPED' else ''}"
                )
