"""The header of ClickHouse's Native format: the columns of a result without rows.

Holds: byte for byte what a server sends for an empty result without a protocol version.
"""

from collections.abc import Sequence


def header_block(columns: Sequence[tuple[str, str]]) -> bytes:
    """A block of no rows with these (name, type) columns; nothing at all where there are no columns."""
    if not columns:
        return b""
    return _count(len(columns)) + _count(0) + b"".join(_text(name) + _text(column_type) for name, column_type in columns)


def _text(text: str) -> bytes:
    raw = text.encode()
    return _count(len(raw)) + raw


def _count(number: int) -> bytes:
    """LEB128, as the format wants lengths."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
