"""Search for the version of a model that a file or a folder is: compared with the store, byte for byte.

Holds: what a file says of itself only chooses what it is compared with. A version is named where the store's chain has it, and every byte
is one that a fetch of it writes.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson

from trainhouse.checkpointing.errors import InvalidStateError, NoModelError
from trainhouse.checkpointing.exchange.export import PROVENANCE, Format
from trainhouse.checkpointing.models.fetch import FACT, VersionFiles, digest_of_file, files_of_version, version_provenance
from trainhouse.checkpointing.models.named_version import NamedVersion, find_version, parse_reference, versions_with
from trainhouse.checkpointing.stores.object_store import ObjectStore

MOST_HEADER_BYTES: Final = 100_000_000
"""Bytes of a safetensors file's header, as Hugging Face's reader has it."""
MOST_PROVENANCE_BYTES: Final = 64 << 20
MOST_SHARD_BYTES: Final = 2**62
_NEEDED: Final = ("model", "project", "name", "version", "content", "format", "shard_bytes")


@dataclass(frozen=True)
class Verdict:
    """Result of a check. `version`: None where the file or folder is none. `problems`: why. `others`: files of a folder that are not of the
    version."""

    version: NamedVersion | None
    problems: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


class _NoVersionError(Exception):
    """It is no version; the message says why."""


def identify(objects: ObjectStore, path: Path) -> Verdict:
    """Finds the version that a file or a folder is. Reads all of it, and of the store what it does not have whole; blocks. Raises OSError,
    DamagedError where the store's own copy is damaged, and what the store raises."""
    try:
        if path.is_dir():
            return _folder(objects, path)
        version, files = _claimed(objects, _facts_of_file(path), path.name)
        return Verdict(*_checked(version, _file_problems(objects, files, path)))
    except (_NoVersionError, NoModelError) as error:
        return Verdict(None, (str(error),))


def _folder(objects: ObjectStore, folder: Path) -> Verdict:
    described = folder / PROVENANCE
    if not described.is_file():
        raise _NoVersionError(f"{folder} has no {PROVENANCE}, which says what it is; check the .safetensors file in it instead")
    version, files = _claimed(objects, _facts_of_folder(described), PROVENANCE)
    problems = list[str]()
    for plan in files.plans:
        is_there = (folder / plan.name).is_file()
        problems += files.differences(objects, folder / plan.name, plan) if is_there else [f"{plan.name} is missing"]
    for file in files.files:
        if not (folder / file.path).is_file():
            problems.append(f"{file.path} is missing")
        elif digest_of_file(folder / file.path) != file.sha256:
            problems.append(f"{file.path} has other contents")
    if not problems and _without_program(described.read_bytes()) != _without_program(version_provenance(version, files)):
        problems.append(f"{PROVENANCE} says something else than the store")
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if not file.is_dir()}
    others = sorted(names - {file.name for file in files.written} - {PROVENANCE})
    found, reasons = _checked(version, problems)
    return Verdict(found, reasons, tuple(others))


def _checked(version: NamedVersion, problems: list[str]) -> tuple[NamedVersion | None, tuple[str, ...]]:
    if not problems:
        return version, ()
    return None, (f"it says that it is {version.lineage_id}, and is not", *problems)


def _file_problems(objects: ObjectStore, files: VersionFiles, path: Path) -> list[str]:
    """Differences from the file of the version that has this name, or, renamed, from the one that it can be."""
    size_bytes = path.stat().st_size
    plans = [plan for plan in files.plans if plan.name.endswith(".safetensors")]
    fitting = [plan for plan in plans if plan.name == path.name] or [plan for plan in plans if plan.size_bytes == size_bytes]
    found = [files.differences(objects, path, plan) for plan in fitting]
    return min(found, key=len) if found else [f"the version has no file of {size_bytes} bytes"]


def _claimed(objects: ObjectStore, facts: Mapping[str, str], where: str) -> tuple[NamedVersion, VersionFiles]:
    """The version that facts name, and its files; both by the store alone. Raises _NoVersionError where the facts are not the store's."""
    if missing := [name for name in _NEEDED if f"{FACT}{name}" not in facts]:
        raise _NoVersionError(f"{where} does not name a version of a model: it says nothing of {', '.join(missing)}")
    claim = {name.removeprefix(FACT): text for name, text in facts.items()}
    try:
        kind, shard_bytes = Format(claim["format"]), int(claim["shard_bytes"])
        reference = parse_reference(f"{claim['project']}/{claim['name']}@{claim['version']}")
        if not claim["version"].isdigit() or not 0 < shard_bytes < MOST_SHARD_BYTES:
            raise ValueError("numbers")
    except (ValueError, InvalidStateError) as error:
        raise _NoVersionError(f"{where} does not name a version of a model: {error}") from error
    version = find_version(objects, reference)
    if version.staged.content != claim["content"]:
        raise _NoVersionError(f"{where} says that it is {claim['model'][:200]}, and that version has another content")
    evaluations = {text for text in claim.get("evaluations", "").split(",") if text}
    known = versions_with(objects, version.project, version.name, version.staged.content).get(version.staged.version, set())
    if not evaluations <= known:
        raise _NoVersionError(f"{where} names evaluations that {version.lineage_id} never had")
    # Of the moment in which it was fetched.
    version = replace(version, staged=version.staged.model_copy(update={"evaluations": tuple(sorted(evaluations))}))
    files = files_of_version(objects, version, kind, shard_bytes)
    if different := sorted(name for name in facts.keys() | files.facts.keys() if facts.get(name) != files.facts.get(name)):
        raise _NoVersionError(f"{where} says something else of {version.lineage_id} than the store: {', '.join(different)[:500]}")
    return version, files


def _facts_of_file(path: Path) -> dict[str, str]:
    """Facts in the metadata of a safetensors file. Raises _NoVersionError where it is none."""
    with path.open("rb") as file:
        head = file.read(8)
        size_bytes = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        header = file.read(size_bytes) if 2 <= size_bytes <= MOST_HEADER_BYTES else b""
    try:
        metadata = json.loads(header).get("__metadata__", {})
    except (ValueError, AttributeError, RecursionError):
        raise _NoVersionError(
            f"{path.name} is no safetensors file, and nothing in it says what it is; check the folder that it was in"
        ) from None
    return _texts(metadata)


def _facts_of_folder(described: Path) -> dict[str, str]:
    if described.stat().st_size > MOST_PROVENANCE_BYTES:
        raise _NoVersionError(f"{PROVENANCE} has {described.stat().st_size} bytes, more than a fetch writes")
    try:
        return _texts(orjson.loads(described.read_bytes()).get("facts", {}))
    except (ValueError, AttributeError):
        raise _NoVersionError(f"{PROVENANCE} is no JSON of a fetch") from None


def _texts(found: Any) -> dict[str, str]:
    items = found.items() if isinstance(found, dict) else ()
    return {name: text for name, text in items if name.startswith(FACT) and isinstance(text, str)}


def _without_program(described: bytes) -> Any:
    facts = orjson.loads(described)
    facts.pop("trainhouse", None)
    return facts
