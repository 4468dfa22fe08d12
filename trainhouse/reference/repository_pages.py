"""Documents of the repository that are pages as they are: their links are those of the documentation.

Holds: every link leads to a page. They are made in a checkout only: an installed package has no such documents.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Page -> document of the repository.
DOCUMENTS = {
    "reference/sql.md": "projections/CONTRACT.md",
    "operate/runbooks.md": "projections/alerts/runbooks.md",
    "operate/security.md": "SECURITY.md",
    "internals/architecture.md": "ARCHITECTURE.md",
    "internals/contributing.md": "CONTRIBUTING.md",
}
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")


def document(page: str) -> str:
    """A page of the repository, with its links rewritten. Raises ValueError for a link to something that is no page."""
    path = ROOT / DOCUMENTS[page]
    return _LINK.sub(partial(_link, page, path), path.read_text())


def _link(page: str, path: Path, match: re.Match[str]) -> str:
    target = (path.parent / match[1]).resolve().relative_to(ROOT).as_posix()
    pages = {source: made for made, source in DOCUMENTS.items()}
    inside = pages.get(target) or target.removeprefix("docs/")
    if inside == target:
        raise ValueError(f"{path.name} links to {target}, which is no page of the documentation: name it without a link")
    return f"]({'../' * page.count('/')}{inside}{match[2] or ''})"


PAGES: dict[str, Callable[[], str]] = {page: partial(document, page) for page in DOCUMENTS}
