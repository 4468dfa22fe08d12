"""Names of files for names of projects."""

from urllib.parse import quote, unquote


def folder_name(project: str) -> str:
    """A project's name as one part of a path."""
    return quote(project, safe="").replace(".", "%2E")


def project_of(folder: str) -> str:
    """The project of a folder."""
    return unquote(folder)
