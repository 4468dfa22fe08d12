"""Errors of the scheduler: a small tree. Messages name the thing, the cause and the way out."""


class SchedulerError(Exception):
    """Base of all errors of the scheduler."""


class BrokenInvariant(SchedulerError):
    """Something that must hold does not: the reader halts, the process ends; nothing is skipped or repaired silently."""


class StateLost(BrokenInvariant):
    """Data outside the journal on which a state rests cannot be read: no input is to blame, the partition is recovered anew."""


class SchedulingFailed(SchedulerError):
    """Placement itself raised, whatever the inputs were: it is journaled and placement freezes."""


class NotWritable(SchedulerError):
    """A journal record that could not be written, read back or published as it is: it is not appended."""


class RecordTooLarge(SchedulerError):
    """The brokers refuse a journal record for its size: halve the batch."""


class LogUnavailableError(SchedulerError):
    """The brokers did not answer; what was sent may or may not be in the log. Retryable."""


class FencedError(SchedulerError):
    """Another publisher with the same transactional id took over: this one must stop."""


class SnapshotMismatch(BrokenInvariant):
    """The snapshot does not belong to this journal as it is now: the owner refuses to append."""


class UnusableSnapshotError(SchedulerError):
    """One snapshot cannot be recovered from: an older one may, or the journal itself."""


class UnexpectedInput(SchedulerError):
    """An event that its machine does not take: journaled as refused, and skipped."""
