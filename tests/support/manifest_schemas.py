"""JSON Schemas of the manifests in the object store, by which commands read them without models: `python -m tests.support.manifest_schemas`
writes them."""

from __future__ import annotations

from typing import Any

import orjson

from trainhouse.client.quick.plain_events import MANIFESTS
from trainhouse.events.model.artifact import ArtifactManifest
from trainhouse.events.model.dataset import Manifest


def schemas() -> bytes:
    """The file of both."""
    found = {"artifact": ArtifactManifest.model_json_schema(), "dataset": Manifest.model_json_schema()}
    for schema in found.values():
        for each in (schema, *schema.get("$defs", {}).values()):
            if "properties" in each:
                each["ordered"] = True
    return orjson.dumps(_without_texts(found), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _without_texts(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_texts(each) for each in schema]
    if isinstance(schema, dict):
        return {name: _without_texts(each) for name, each in schema.items() if name != "description" or not isinstance(each, str)}
    return schema


if __name__ == "__main__":
    MANIFESTS.write_bytes(schemas())
