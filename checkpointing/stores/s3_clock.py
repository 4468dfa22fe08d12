"""The store's clock, by which ages of what it holds are counted."""

import time
from email.utils import parsedate_to_datetime
from typing import Any


def asked_s(answer: Any) -> float:
    """The time at which the store gave boto3's answer, in seconds since 1970; by this machine's clock where it does not say."""
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    return parsedate_to_datetime(date).timestamp() if date else time.time()
