"""A signature holds for the bytes and the topic that were signed, and for one header alone."""

import pytest

from trainhouse.events.security.signing import HEADER, SigningKey, signature_of

TOPIC, VALUE = "trainhouse.jobs", b'{"id":"1"}'


def test_a_signature_holds_for_its_bytes_on_its_topic_alone() -> None:
    signature = signature_of([SigningKey.made().header(TOPIC, VALUE)])
    assert signature is not None and signature.holds(TOPIC, VALUE)
    assert not signature.holds("trainhouse.fleet", VALUE)
    assert not signature.holds(TOPIC, VALUE + b" ")


def test_the_end_of_a_topics_name_is_no_beginning_of_the_value() -> None:
    signature = signature_of([SigningKey.made().header("jobs", b"x" + VALUE)])
    assert signature is not None and not signature.holds("jobsx", VALUE)


def test_a_key_does_not_hold_for_what_another_signed() -> None:
    _, own = SigningKey.made().header(TOPIC, VALUE)
    _, others = SigningKey.made().header(TOPIC, VALUE)
    mixed = signature_of([(HEADER, b" ".join([*own.split()[:2], others.split()[2]]))])
    assert mixed is not None and not mixed.holds(TOPIC, VALUE)


@pytest.mark.parametrize("harm", ["none", "two", "type in a header", "other kind", "cut", "not ascii"])
def test_headers_that_leave_open_what_was_signed_count_as_unsigned(harm: str) -> None:
    name, value = SigningKey.made().header(TOPIC, VALUE)
    headers: dict[str, list[tuple[str, bytes]]] = {
        "none": [],
        "two": [(name, value), SigningKey.made().header(TOPIC, VALUE)],
        "type in a header": [(name, value), ("CE_type", b"JobCancelled")],
        "other kind": [(name, value.replace(b"ed25519", b"hs256"))],
        "cut": [(name, value[:-8])],
        "not ascii": [(name, b"ed25519 k\xff s")],
    }
    assert signature_of([(name, value)]) is not None
    assert signature_of(headers[harm]) is None
