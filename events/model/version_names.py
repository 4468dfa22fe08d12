"""Names of versions of datasets, `NAME@sha256:…` by content, `NAME@1.2.0` by a semver tag. Pure, without models.

Holds: the version id of equal contents is equal on every machine; a tag, once taken, names one version for ever.
"""

import re
from dataclasses import dataclass
from typing import Final

NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
SEMVER_PATTERN: Final = r"(?:0|[1-9][0-9]{0,8})\.(?:0|[1-9][0-9]{0,8})\.(?:0|[1-9][0-9]{0,8})(?:-[0-9A-Za-z.-]{1,32})?"
SHA256_PATTERN: Final = r"[0-9a-f]{64}"
SPLIT_PATTERN: Final = r"[A-Za-z0-9_.-]{1,64}"
REFERENCE_PATTERN: Final = rf"{NAME_PATTERN}@(?:sha256:{SHA256_PATTERN}|{SEMVER_PATTERN})"
MOST_REFERENCE_CHARS: Final = 256


class DatasetNameError(ValueError):
    """A text names no version of a dataset."""


@dataclass(frozen=True, order=True)
class VersionName:
    """One version of a dataset, by the hash of its manifest or by a semver tag; exactly one of the two is set."""

    dataset: str
    sha256: str = ""
    semver: str = ""

    @classmethod
    def parse(cls, text: str) -> "VersionName":
        """Reads `NAME@sha256:…` or `NAME@1.2.0`. Raises DatasetNameError."""
        if not re.fullmatch(REFERENCE_PATTERN, text):
            raise DatasetNameError(
                f"{text[:MOST_REFERENCE_CHARS]!r} names no version of a dataset: write NAME@sha256:<64 hexadecimal digits> or NAME@1.2.0, "
                "NAME of letters, digits, '.', '_' and '-'"
            )
        dataset, _, version = text.partition("@")
        return cls(dataset, sha256=version[7:]) if version.startswith("sha256:") else cls(dataset, semver=version)

    def __str__(self) -> str:
        return f"{self.dataset}@sha256:{self.sha256}" if self.sha256 else f"{self.dataset}@{self.semver}"


def is_by_content(text: str) -> bool:
    """Whether a reference names a version by its content, and no tag that is still to be looked up."""
    return "@sha256:" in text


def is_dataset_name(text: str) -> bool:
    """Whether a dataset may be called so."""
    return re.fullmatch(NAME_PATTERN, text) is not None
