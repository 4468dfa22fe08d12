"""Documents of a project that people write: reports (Markdown with live panels) and views (an arrangement of curves by name).

Holds: versions of a document count from 1, and each save names its own: the first record of a version counts, a later one of the same
version was made from what is no longer newest. All saves of one document are on one partition, so every reader finds the same first one.
Never: more than 64 Ki characters; a picture, a file or a secret.
"""

import unicodedata
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import LongText, SmallCount, TimestampMs
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.labels import Label

MOST_NAME_CHARS: Final = 120
MOST_NOTE_CHARS: Final = 512


class DocumentKind(StrEnum):
    """Kinds of documents."""

    REPORT = "report"
    VIEW = "view"


def name_problem(name: str) -> str:
    """Returns the reason that a document cannot have a name; empty where it can."""
    if not name or len(name) > MOST_NAME_CHARS:
        return f"a name has 1 to {MOST_NAME_CHARS} characters"
    if not name.isprintable() or "/" in name or "\\" in name:
        return "a name has no slash, no backslash, and no control or invisible character"
    if name != name.strip() or name in (".", ".."):
        return 'a name neither begins nor ends with a blank, and is not "." or ".."'
    if unicodedata.normalize("NFC", name) != name:
        return "a name is written in Unicode's composed form (NFC)"
    return ""


def _named(name: str) -> str:
    if problem := name_problem(name):
        raise ValueError(problem)
    return name


DocumentName = Annotated[str, Field(min_length=1, max_length=MOST_NAME_CHARS), AfterValidator(_named)]


class DocumentSaved(Event, type="trainhouse.document.saved.v1"):
    """A version of a document was saved, or the document was deleted: a deletion is a version too, without content."""

    project: Label = Field(DEFAULT_PROJECT, description="project that it belongs to")
    kind: DocumentKind = Field(description="report, or view")
    name: DocumentName = Field(description="name of the document, one of its kind in its project")
    version: SmallCount = Field(ge=1, description="number of its saves, from 1; the first event of a version counts, later ones do not")
    content: LongText = Field("", description="Markdown of a report; JSON of a view")
    note: str = Field("", max_length=MOST_NOTE_CHARS, description="what changed, for people")
    deleted: bool = Field(False, description="whether it was deleted")
    user: str = Field("", max_length=256, description="person who saved or deleted it")
    at_ms: TimestampMs

    def subject(self) -> str:
        return f"{self.project}/{self.kind}/{self.name}"
