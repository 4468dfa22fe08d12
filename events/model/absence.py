"""Fields that came later: when one says nothing, it is left out."""


def is_no(value: object) -> bool:
    """As `is_absent`, of a flag that came later."""
    return value is False


def is_absent(value: object) -> bool:
    """Whether a field that came later says nothing: it is then written as if it did not exist, and old journals replay byte for byte."""
    return value is None or value == "" or value == () or value == {}


def is_yes(value: object) -> bool:
    """As `is_no`, of a flag that is set unless it is named."""
    return value is True
