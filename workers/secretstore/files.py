"""Folders that their owner alone enters, and names of files for names of projects."""

from pathlib import Path
from urllib.parse import quote, unquote


def private_folder(folder: Path) -> Path:
    """The folder, made 0700 where it is not there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def folder_name(project: str) -> str:
    """A project's name as one part of a path."""
    return quote(project, safe="").replace(".", "%2E")


def project_of(folder: str) -> str:
    """The project of a folder."""
    return unquote(folder)
