"""One input of a journal record: decoded when it is first asked for, since most readers need no more of it than its offset and type.

Holds: an input that counts already stops no reader: a type that this program does not know, or a value that its models refuse by now, is an
InvalidEvent for who asks for the envelope, and nothing for anybody else.
Never: says whether an input was refused (the record's decisions do).
"""

import base64
from typing import Any, Final

import orjson

from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.wire.codec import decode_parts, encode
from trainhouse.events.wire.envelope import Envelope, Order
from trainhouse.events.wire.upcast import UPCASTERS

_NOTHING: Final = object()


class JournaledInput:
    """An envelope, or the raw bytes of what could not be read. `offset` None: made by the owner."""

    __slots__ = ("_envelope", "_stored", "offset", "raw")

    def __init__(self, offset: int | None, envelope: Envelope | None, raw: bytes | None = None) -> None:
        self.offset = offset
        self.raw = raw
        self._envelope = envelope
        self._stored: Any = _NOTHING

    @classmethod
    def stored(cls, item: dict[str, Any]) -> "JournaledInput":
        """From the JSON of a record. Raises KeyError or ValueError for what is none."""
        if "event" not in item:
            return cls(item["offset"], None, base64.b64decode(item["raw"]))
        found = cls(item["offset"], None)
        found._stored = item["event"]
        return found

    @property
    def is_event(self) -> bool:
        """Whether it came as an event that could be read then."""
        return self._envelope is not None or self._stored is not _NOTHING

    @property
    def envelope(self) -> Envelope | None:
        """The event in its envelope, None for raw bytes. Raises InvalidEvent where this program cannot read it."""
        if self._envelope is None and self._stored is not _NOTHING:
            attributes = dict(self._attributes())
            data = attributes.pop("data", None)
            self._envelope = decode_parts(attributes, data, stored=True)
        return self._envelope

    @property
    def type(self) -> str:
        """The newest type string of its event, empty for raw bytes; it may be one that this program does not know."""
        if self._envelope is not None:
            return self._envelope.type
        return UPCASTERS.newest(str(self._text("type")))

    @property
    def event_id(self) -> str:
        """The event's id, empty for raw bytes."""
        return str(self._envelope.id) if self._envelope is not None else self._text("id")

    @property
    def order(self) -> Order | None:
        """The place of the effect that it is, in the journal where it was decided; None of what no journal decided, and of raw bytes."""
        if self._envelope is not None:
            return self._envelope.order
        try:
            return Order.parse(self._text("order"))
        except ValueError:
            return None

    @property
    def job_id(self) -> str:
        """The job that the event names, empty where it names none."""
        if self._envelope is not None:
            return str(getattr(self._envelope.event, "job_id", None) or "")
        data = self._stored.get("data") if isinstance(self._stored, dict) else None
        found = data.get("job_id") if isinstance(data, dict) else None
        return found if isinstance(found, str) else ""

    def as_came(self) -> bytes:
        """Its bytes for a dead letter; of an event that cannot be read any more, the JSON as it stands in the journal."""
        if not self.is_event:
            return self.raw or b""
        try:
            envelope = self.envelope
        except InvalidEvent:
            return orjson.dumps(self._stored)
        assert envelope is not None  # nosec B101  # it is an event
        return encode(envelope)

    def as_json(self) -> dict[str, Any]:
        """As a record holds it. Raises InvalidEvent."""
        if self.is_event:
            return {"offset": self.offset, "event": orjson.Fragment(encode(self.envelope))}  # type: ignore[arg-type]
        return {"offset": self.offset, "raw": base64.b64encode(self.raw or b"").decode()}

    def _attributes(self) -> dict[str, Any]:
        if not isinstance(self._stored, dict):
            raise InvalidEvent(f"the journal holds an event that is a JSON {type(self._stored).__name__}, not an object")
        return self._stored

    def _text(self, name: str) -> str:
        found = self._stored.get(name) if isinstance(self._stored, dict) else None
        return found if isinstance(found, str) else ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JournaledInput):
            return NotImplemented
        return (self.offset, self.raw, self.envelope) == (other.offset, other.raw, other.envelope)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"JournaledInput(offset={self.offset}, {self._stored if self._envelope is None else self._envelope!r}, raw={self.raw!r})"
