"""Errors of archives. Every message names the object or the offsets."""

from trainhouse.events.model.errors import EventError


class ArchiveError(EventError):
    """Base of all errors of the archive."""


class ArchiveCorruptError(ArchiveError):
    """An object is missing, or is not what its name or its checksum says."""


class ArchiveGapError(ArchiveError):
    """Archive and topic do not meet: records are in neither, or the topic lost what the archive has."""


class ChainBrokenError(ArchiveCorruptError):
    """An object is not the one that was written there: it does not name the one before it as it is, or the topic says otherwise."""
