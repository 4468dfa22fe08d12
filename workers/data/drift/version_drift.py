"""Drift of one version of a dataset against another: a verdict on each field of either. Pure.

Holds: more samples alone, or fewer, are no drift; an undrifted pair of versions has a drifted field with a chance of about `alpha`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trainhouse.events.model.dataset import Manifest
from trainhouse.events.model.dataset_drift import (
    CHANGES,
    MOST_DRIFT_FIELDS,
    MOST_NEW_VALUES,
    DatasetDriftMeasured,
    DriftVerdict,
    FieldDrift,
)
from trainhouse.events.model.dataset_profile import (
    MOST_DISTINCT,
    MOST_PROFILES,
    MOST_TOP_VALUES,
    FieldProfile,
    NumberSketch,
    ProfiledVersion,
    SplitProfiles,
    ValueCounts,
)
from trainhouse.workers.data.drift.distributions import (
    LEAST_VALUES,
    Difference,
    DriftLimits,
    Unlisted,
    few_numbers,
    numbers_differ,
    shares_differ,
    values_differ,
    values_without,
)
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.publishing.sample_fields import JSON

_TESTS_OF_FIELD: Final = 9
"""PSI and KS of numbers and of lengths, PSI of values, new and lost values, two shares."""
_ALARMING: Final = (DriftVerdict.DRIFTED, DriftVerdict.REMOVED)
"""Come first in an event, which has room for so many fields: alerts count them."""
_ORDER: Final = {verdict: n for n, verdict in enumerate((*_ALARMING, *(v for v in DriftVerdict if v not in _ALARMING)))}


@dataclass(frozen=True)
class VersionDrift:
    """Samples of both versions, and the verdicts, on the fields that changed most first."""

    row_count_before: int
    row_count: int
    fields: tuple[FieldDrift, ...]

    def count(self, *verdicts: DriftVerdict) -> int:
        """Fields with one of these verdicts."""
        return sum(field.verdict in verdicts for field in self.fields)

    def event(
        self, *, dataset: str, project: str, sha256: str, against: str, predecessor: bool, user: str, at_ms: int
    ) -> DatasetDriftMeasured:
        """The event that records it."""
        return DatasetDriftMeasured(
            dataset=dataset,
            project=project,
            sha256=sha256,
            against_sha256=against,
            predecessor=predecessor,
            row_count=self.row_count,
            row_count_before=self.row_count_before,
            fields=self.fields[:MOST_DRIFT_FIELDS],
            fields_compared=len(self.fields),
            fields_drifted=self.count(DriftVerdict.DRIFTED),
            fields_changed=self.count(*CHANGES),
            user=user,
            at_ms=at_ms,
        )


def drift_of(before: ProfiledVersion, after: ProfiledVersion, limits: DriftLimits | None = None, split: str | None = None) -> VersionDrift:
    """Compares `after` with `before`, over all splits or one that both have. Raises InvalidDataError."""
    limits = limits or DriftLimits()
    if split is not None:
        _require(split, before.manifest, after.manifest)
    old, new = _Side.of(before, split), _Side.of(after, split)
    names = sorted(old.types.keys() | new.types.keys())
    alpha = limits.alpha / (_TESTS_OF_FIELD * max(1, len(names)))
    fields = [_FieldComparison(name, old, new, limits, alpha).result() for name in names]
    fields.sort(key=lambda f: (_ORDER[f.verdict], -_excess(f), f.field))
    return VersionDrift(old.rows, new.rows, tuple(fields))


def _require(split: str, *manifests: Manifest) -> None:
    """Raises InvalidDataError unless all of the versions have the split."""
    if not all(split in manifest.splits for manifest in manifests):
        shared = set.intersection(*(set(manifest.splits) for manifest in manifests))
        raise InvalidDataError(f"no split {split!r} is in both versions; both have: {', '.join(sorted(shared)) or 'none'}")


@dataclass(frozen=True)
class _Side:
    """A version that is compared: types and profiles by field, over the splits that are compared."""

    rows: int
    types: dict[str, str]
    splits: tuple[SplitProfiles, ...]
    cut: bool

    @classmethod
    def of(cls, version: ProfiledVersion, split: str | None) -> "_Side":
        manifest, profiles = version.manifest, version.profiles
        names = [name for name in sorted(manifest.splits) if split in (None, name)]
        rows = sum(manifest.splits[name].samples for name in names)
        splits = tuple(profiles.splits.get(name, {}) if profiles else {} for name in names)
        return cls(rows, {f.name: f.type for f in manifest.fields}, splits, profiles is not None and profiles.cut)

    @property
    def has_columns(self) -> bool:
        """Whether its samples have a `json` with columns."""
        return any(name.startswith(f"{JSON}.") for name in self.types)

    def profile(self, field: str) -> FieldProfile | None:
        """The profile over all splits; None: there is none, as of versions of before there were any, and of fields beyond the most."""
        if any(not s or (field not in s and (self.cut or len(s) == MOST_PROFILES)) for s in self.splits):
            return None
        return merged_profile([s[field] for s in self.splits if field in s])

    def most_unlisted(self, field: str, listed: ValueCounts) -> int:
        """The most that any value has which `listed`, the counts over all splits, leaves out."""
        parts = [values for s in self.splits if field in s and (values := s[field].values)]
        least = [0 if part.complete or not part.top else min(part.top.values()) for part in parts]
        names = {value for part in parts for value in part.top if value not in listed.top}
        named = (sum(part.top.get(value, most) for part, most in zip(parts, least, strict=True)) for value in names)
        return max(sum(least), *named, 0)


class _FieldComparison:
    """Comparison of one field."""

    def __init__(self, name: str, old: _Side, new: _Side, limits: DriftLimits, alpha: float) -> None:
        self._name, self._old, self._new, self._limits, self._alpha = name, old, new, limits, alpha
        self._reasons: list[str] = []
        self._psi: Difference | None = None
        self._ks: Difference | None = None
        self._compared = False

    def result(self) -> FieldDrift:
        was, is_now = self._old.types.get(self._name), self._new.types.get(self._name)
        old, new = self._old.profile(self._name), self._new.profile(self._name)
        if was is None or is_now is None:
            verdict, self._reasons = (DriftVerdict.ADDED, [f"new: {is_now}"]) if was is None else (DriftVerdict.REMOVED, [f"it was {was}"])
        else:
            verdict = DriftVerdict.UNKNOWN
            if old is not None and new is not None:
                verdict = self._verdict(old, new)
            if was != is_now:
                self._reasons.append(f"{was} became {is_now}")
                verdict = verdict if verdict == DriftVerdict.DRIFTED else DriftVerdict.RETYPED
        return FieldDrift(
            field=self._name,
            verdict=verdict,
            reason="; ".join(self._reasons),
            psi=self._psi.value if self._psi else None,
            psi_limit=self._psi.limit if self._psi else None,
            ks=self._ks.value if self._ks else None,
            ks_limit=self._ks.limit if self._ks else None,
            missing=_missing(new, self._new.rows),
            missing_before=_missing(old, self._old.rows),
        )

    def _verdict(self, old: FieldProfile, new: FieldProfile) -> DriftVerdict:
        """Compares the two profiles."""
        self._share("missing", self._old.rows - old.samples, self._old.rows, self._new.rows - new.samples, self._new.rows)
        if old.numbers or new.numbers:
            self._share("numbers", _count(old.numbers), old.samples, _count(new.numbers), new.samples)
        self._distribution("", old.numbers, new.numbers)
        if self._name == JSON and self._old.has_columns and self._new.has_columns:
            # Its length follows from its columns, which are fields of their own.
            self._compared = min(old.samples, new.samples) >= LEAST_VALUES
        else:
            self._distribution(" of lengths", old.lengths, new.lengths)
        self._values(old, new)
        if self._reasons:
            return DriftVerdict.DRIFTED
        return DriftVerdict.STABLE if self._compared else DriftVerdict.TOO_FEW

    def _share(self, label: str, part: int, before: int, part_after: int, after: int) -> None:
        if min(before, after) >= LEAST_VALUES and shares_differ(part, before, part_after, after, self._limits, self._alpha):
            self._reasons.append(f"{label} {100 * part / before:.1f} % → {100 * part_after / after:.1f} %")

    def _distribution(self, label: str, old: NumberSketch | None, new: NumberSketch | None) -> None:
        if old is None or new is None or min(old.count, new.count) < LEAST_VALUES:
            return
        index, statistic = numbers_differ(old, new, self._limits, self._alpha)
        self._measured(f"PSI{label}", index)
        self._compared = True
        if statistic.exceeded:
            self._reasons.append(f"KS{label} {statistic.value:.2f} (limit {statistic.limit:.2f})")
        self._ks = _larger(self._ks, statistic)

    def _values(self, old: FieldProfile, new: FieldProfile) -> None:
        before, after = old.values or few_numbers(old.numbers), new.values or few_numbers(new.numbers)
        sizes = (old.samples, new.samples)
        if before is None or after is None or min(sizes) < LEAST_VALUES:
            return
        unlisted = Unlisted(self._old.most_unlisted(self._name, before), self._new.most_unlisted(self._name, after))
        if old.values and new.values and (index := values_differ(before, after, sizes, unlisted, self._limits, self._alpha)):
            self._measured("PSI of values", index)
            self._compared = True
        if added := values_without(after, before, sizes[::-1], self._limits, self._alpha):
            self._reasons.append(f"new values: {_listed(added)}")
        if lost := values_without(before, after, sizes, self._limits, self._alpha):
            self._reasons.append(f"lost values: {_listed(lost)}")

    def _measured(self, label: str, index: Difference) -> None:
        if index.exceeded:
            self._reasons.append(f"{label} {index.value:.2f} (limit {index.limit:.2f})")
        self._psi = _larger(self._psi, index)


def _larger(known: Difference | None, other: Difference) -> Difference:
    return other if known is None or other.value / other.limit > known.value / known.limit else known


def _count(sketch: NumberSketch | None) -> int:
    return sketch.count if sketch else 0


def _missing(profile: FieldProfile | None, rows: int) -> float:
    return 1 - profile.samples / rows if profile is not None and rows else 0.0


def _listed(values: list[str]) -> str:
    more = f" and {len(values) - MOST_NEW_VALUES} more" if len(values) > MOST_NEW_VALUES else ""
    return ", ".join(repr(value) for value in values[:MOST_NEW_VALUES]) + more


def _excess(field: FieldDrift) -> float:
    """Returns the largest ratio of a figure to its limit."""
    pairs = ((field.psi, field.psi_limit), (field.ks, field.ks_limit))
    return max((value / limit for value, limit in pairs if value is not None and limit), default=0.0)


def merged_profile(parts: Sequence[FieldProfile]) -> FieldProfile:
    """The profile of the samples of all parts."""
    return FieldProfile(
        samples=sum(part.samples for part in parts),
        numbers=_merged([part.numbers for part in parts]),
        lengths=_merged([part.lengths for part in parts]),
        values=_merged_values([part.values for part in parts]),
    )


def _merged(parts: list[NumberSketch | None]) -> NumberSketch | None:
    present = [part for part in parts if part is not None]
    return NumberSketch.merged(present) if present else None


def _merged_values(parts: list[ValueCounts | None]) -> ValueCounts | None:
    """Counts over splits. Where a split lists only its most frequent values, those that each split lists, or is known not to have."""
    present = [part for part in parts if part is not None]
    if len(present) < 2:
        return present[0] if present else None
    names = {value for part in present for value in part.top}
    if any(part.distinct > MOST_DISTINCT for part in present):
        return ValueCounts(distinct=MOST_DISTINCT + 1)
    exact = {v: sum(p.top.get(v, 0) for p in present) for v in names if all(v in p.top or p.complete for p in present)}
    distinct = max(len(names), *(part.distinct for part in present))
    if distinct == len(exact) and not all(part.complete for part in present):
        distinct += 1  # which it is at least: some values are listed by no split
    top = sorted(exact.items(), key=lambda each: (-each[1], each[0]))[:MOST_TOP_VALUES]
    return ValueCounts(distinct=min(distinct, MOST_DISTINCT), top=dict(top))
