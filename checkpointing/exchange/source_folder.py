"""The folder of an import: which of its files may be read, and whether they are the ones that an export of Trainhouse wrote.

Holds: no file outside of the folder is read, whatever a link or a name in it says. Memory is bounded by BLOCK_BYTES.
"""

import hashlib
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.exchange.export import PROVENANCE
from trainhouse.checkpointing.exchange.file_writer import BLOCK_BYTES


class ExportedFile(BaseModel):
    """A file as the provenance of an export names it."""

    name: str
    size_bytes: int
    sha256: str


class ExportFacts(BaseModel):
    """Facts that an import takes from the provenance of an export."""

    step: Annotated[int, Field(ge=0, strict=True)]
    metrics: dict[str, FiniteFloat] = {}
    files: list[ExportedFile] = []


def inside(folder: Path, name: str | Path) -> Path:
    """The path of a file of the folder. Raises InvalidStateError for one that leads out of it."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise InvalidStateError(
            f"{path} leads out of {folder}; copy the folder with the files that its links name (cp -rL), and import that"
        )
    return path


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file. Raises InvalidStateError."""
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise InvalidStateError(f"{path} is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise InvalidStateError(f"{path} is no JSON object")
    return found


def export_facts(folder: Path) -> ExportFacts | None:
    """The facts that an export left, its files compared with their hashes; None for other folders. Reads all files. Raises
    InvalidStateError."""
    path = inside(folder, PROVENANCE)
    if not path.exists():
        return None
    way_out = f"export anew, or remove {PROVENANCE} to import the folder as another program's"
    try:
        facts = ExportFacts.model_validate(json_object(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidStateError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; {way_out}") from error
    for file in facts.files:
        found = inside(folder, file.name)
        if not found.is_file():
            raise InvalidStateError(f"{folder} is not whole: {PROVENANCE} names {file.name}, which is not there; {way_out}")
        if found.stat().st_size != file.size_bytes or _sha256(found) != file.sha256:
            raise InvalidStateError(f"{found} is not what was exported: its bytes differ from its hash in {PROVENANCE}; {way_out}")
    return facts


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
