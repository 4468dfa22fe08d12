"""Images, tables, histograms, texts and audio over HTTP: by key and step, shown so that nothing of them runs, each project's alone."""

from __future__ import annotations

import hashlib
import io
import itertools
from typing import Any
from urllib.parse import unquote

import orjson
import pytest
from PIL import Image as Pillow

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.gateway_world import NOW_MS, World
from trainhouse.events.model.artifact_keys import object_key
from trainhouse.events.model.media import MediaRecorded, media_path
from trainhouse.events.model.tracking import ArtifactLogged, artifact_key
from trainhouse.events.wire import topics

JOBS = (f"media-{number}" for number in itertools.count())


class Shelf:
    """A job of project vision, and what it logs."""

    def __init__(self, world: World, objects: MemoryObjectStore) -> None:
        self.world, self.objects, self.job = world, objects, next(JOBS)
        self.place = f"/v1/training-jobs/{self.job}/media"
        world.submit(self.job, "vision")

    def rank(
        self,
        folder: str,
        key: str,
        step: int,
        content: bytes,
        ending: str,
        number: int = 0,
        at_ms: int = NOW_MS,
        epoch: int = 1,
        rank: int = 0,
    ) -> str:
        """What a rank's session does."""
        sha256 = hashlib.sha256(content).hexdigest()
        self.objects.put(artifact_key(self.job, sha256), content)
        path = media_path(folder, key, step, at_ms, rank, number, ending)
        about = {"job_id": self.job, "attempt": epoch - 1, "epoch": epoch, "rank": rank, "path": path, "sha256": sha256, "at_ms": at_ms}
        event = MediaRecorded.model_validate(about | {"uri": self.objects.uri(artifact_key(self.job, sha256)), "size_bytes": len(content)})
        self.world.tables.put(topics.ENVIRONMENTS, [event], at_ms)
        return path

    def run(self, path: str, content: bytes) -> None:
        """What the gateway does when MLflow's client logs a file."""
        sha256 = hashlib.sha256(content).hexdigest()
        self.objects.put(object_key("vision", sha256), content)
        found = {"uri": self.objects.uri(object_key("vision", sha256)), "sha256": sha256, "size_bytes": len(content)}
        self.world.tables.put(
            topics.TRACKING, [ArtifactLogged.model_validate({"job_id": self.job, "path": path, "at_ms": NOW_MS} | found)], NOW_MS
        )

    def get(self, place: str = "", status: int = 200, **query: Any) -> Any:
        answer = self.world.client.get(self.place + place, params=query, headers=self.world.token(role="viewer"))
        assert answer.status_code == status, answer.text
        return answer


@pytest.fixture
def shelf(gateway_world: World, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    objects = MemoryObjectStore()
    monkeypatch.setattr(gateway_world.client.app.state, "code_store", objects, raising=False)  # type: ignore[attr-defined]
    return Shelf(gateway_world, objects)


def png(grey: int) -> bytes:
    out = io.BytesIO()
    Pillow.new("L", (2, 2), grey).save(out, format="PNG")
    return out.getvalue()


def test_media_are_listed_by_key_and_step_and_an_attempt_that_began_anew_replaces_its_steps(shelf: Shelf) -> None:
    for step in (10, 20):
        for number in range(3):
            shelf.rank("images", "eval/samples", step, png(step + number), "png", number)
    anew = shelf.rank("images", "eval/samples", 20, png(200), "png", 0, NOW_MS + 5, epoch=2)
    other_rank = shelf.rank("images", "eval/samples", 20, png(201), "png", 0, rank=3)
    shelf.rank("texts", "said", 10, "hé <script>".encode(), "txt")
    (image, text) = shelf.get().json()["items"]
    assert (image["kind"], image["key"], image["steps"], image["count"]) == ("image", "eval/samples", [10, 20], 8)
    assert (text["kind"], text["key"], text["first_step"], text["stepless"]) == ("text", "said", 10, 0)
    found = shelf.get("/items", kind="image", key="eval/samples", step=25).json()["items"]
    assert [(one["rank"], one["number"], one["step"]) for one in found] == [(0, 0, 20), (0, 1, 20), (0, 2, 20), (3, 0, 20)]
    assert found[0]["path"] == anew and found[3]["path"] == other_rank
    assert {one["step"] for one in shelf.get("/items", kind="image", key="eval/samples", step=19).json()["items"]} == {10}
    assert shelf.get("/items", kind="image", key="eval/samples", step=9).json()["items"] == []
    assert shelf.get("/content", path=anew).content == png(200)


def test_files_of_mlflows_client_are_media_with_its_names(shelf: Shelf) -> None:
    for step in (1, 2):
        for between in "+%":
            name = between.join(
                ["images/a~b" if between == "+" else "images/a#b", "step", str(step), "timestamp", "1795251600000", f"u-{step}"]
            )
            shelf.run(f"{name}.png", png(step))
            shelf.run(f"{name}{between}compressed.webp", b"small")
    shelf.run("plots/roc.png", png(3))
    shelf.run("plots/page.html", b"<script>alert(1)</script>")
    shelf.run("plots/drawn.svg", b"<svg onload='alert(1)'/>")
    shelf.run("eval.json", b'{"columns":["q"],"data":[["a"]]}')
    shelf.run("notes.txt", b"words")
    found = [(one["kind"], one["key"], one["steps"]) for one in shelf.get().json()["items"]]
    assert found == [("image", "a/b", [1, 2]), ("image", "plots/roc.png", []), ("table", "eval.json", []), ("text", "notes.txt", [])]
    assert len(shelf.get("/items", kind="image", key="a/b").json()["items"]) == 2
    assert shelf.get("/table", path="eval.json").json() == {"columns": ["q"], "rows": [["a"]], "total_rows": 1, "total_columns": 1}
    for running in ("plots/page.html", "plots/drawn.svg", "eval.json", "notes.txt"):
        shelf.get("/content", 404, path=running)


def test_what_is_shown_cannot_run(shelf: Shelf) -> None:
    path = shelf.rank("images", "x", 1, b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "png")
    shown = shelf.get("/content", path=path)
    assert shown.headers["content-type"] == "image/png" and shown.headers["x-content-type-options"] == "nosniff"
    assert shown.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'"
    said = shelf.rank("texts", "x", 1, b"<script>alert(1)</script>", "txt")
    answer = shelf.get("/text", path=said)
    assert answer.headers["content-type"] == "application/json" and answer.json()["text"] == "<script>alert(1)</script>"


def test_texts_and_tables_are_bounded(shelf: Shelf) -> None:
    said = shelf.rank("texts", "long", 1, ("é" * 50_000).encode(), "txt")
    part = shelf.get("/text", path=said, limit=1000).json()
    assert (part["text"], part["total_bytes"], part["is_cut"]) == ("é" * 1000, 100_000, True)
    wide = orjson.dumps({"columns": [f"c{n}" for n in range(10_000)], "data": [["y" * 5000] * 10_000], "left_out_rows": 7})
    shelf.run("wide.json", wide[: 2 << 20])
    shelf.run("large.json", wide[: (2 << 20) + 1])
    huge = {"columns": ["a"], "data": [[{"b": "z" * 5000}]] * 300}
    shelf.run("huge.json", orjson.dumps(huge))
    shelf.run("other.json", b"[1, 2]")
    part = shelf.get("/table", path="huge.json", limit=10).json()
    assert (len(part["rows"]), part["total_rows"], len(part["rows"][0][0])) == (10, 300, 1000)
    assert "needs columns and data" in shelf.get("/table", 422, path="other.json").json()["detail"]
    shelf.get("/table", 422, path="wide.json")
    refused = shelf.get("/table", 413, path="large.json").json()["detail"]
    assert str((2 << 20) + 1) in refused and str(2 << 20) in refused
    assert shelf.get("/text", path="large.json", limit=10).json()["text"] == '{"columns"'


def test_texts_and_tables_are_those_kinds_of_media_and_no_other_files(shelf: Shelf) -> None:
    image = shelf.rank("images", "x", 1, png(1), "png")
    said = shelf.rank("texts", "x", 1, b"words", "txt")
    bins = shelf.rank("histograms", "w", 1, orjson.dumps({"edges": [0, 1], "counts": [1]}), "json")
    shelf.run("model/weights.bin", b"secret")
    for path in (image, bins, "model/weights.bin"):
        shelf.get("/text", 404, path=path)
        shelf.get("/table", 404, path=path)
    shelf.get("/table", 404, path=said)


def test_a_session_of_a_link_reads_what_was_logged_at_a_step_alone(shelf: Shelf) -> None:
    said = shelf.rank("texts", "x", 1, b"words", "txt")
    shelf.run("notes.txt", b"private")
    shelf.run("roc.png", png(3))
    client, world = shelf.world.client, shelf.world
    made = client.post(f"/v1/training-jobs/{shelf.job}/links", json={}, headers=world.token())
    client.post("/v1/link-session", json={"link": unquote(made.json()["url"].partition("#")[2])})
    try:
        assert client.get(shelf.place + "/text", params={"path": said}).json()["text"] == "words"
        assert client.get(shelf.place + "/text", params={"path": "notes.txt"}).status_code == 404
        assert client.get(shelf.place + "/content", params={"path": "roc.png"}).status_code == 404
        assert {one["key"] for one in client.get(shelf.place).json()["items"]} == {"x"}
    finally:
        client.cookies.clear()
    assert shelf.get("/text", path="notes.txt").json()["text"] == "private"


def test_histograms_over_steps_are_thinned_and_what_is_none_is_left_out(shelf: Shelf) -> None:
    for step in range(0, 60, 2):
        shelf.rank("histograms", "w", step, orjson.dumps({"edges": [0, 1, 2], "counts": [step, 1], "not_finite": 3}), "json")
    shelf.rank("histograms", "w", 60, orjson.dumps({"edges": [0, 1], "counts": [1, 2]}), "json")
    shelf.rank("histograms", "w", 61, b"no json", "json")
    shelf.rank("histograms", "w", 63, orjson.dumps({"edges": list(range(4099)), "counts": [1] * 4098}), "json")
    shelf.rank("histograms", "w", 64, orjson.dumps({"edges": [0, 1], "counts": [1]}) + b" " * (256 << 10), "json")
    shelf.rank("histograms", "w", 65, orjson.dumps({"edges": 3, "counts": "1"}), "json")
    shelf.rank("histograms", "w", 62, orjson.dumps({"edges": [2, 1], "counts": [1]}), "json")
    found = shelf.get("/histograms", key="w", columns=200).json()["items"]
    assert [one["step"] for one in found] == list(range(0, 60, 2)) and found[3] == {
        "step": 6,
        "edges": [0, 1, 2],
        "counts": [6, 1],
        "not_finite": 3,
    }
    assert 5 <= len(shelf.get("/histograms", key="w", columns=10).json()["items"]) <= 10


def test_files_of_others_and_elsewhere_do_not_exist(shelf: Shelf) -> None:
    path = shelf.rank("images", "x", 1, png(1), "png")
    client, world = shelf.world.client, shelf.world
    for place in ("", "/items?kind=image&key=x", "/histograms?key=x", f"/content?path={path}", f"/text?path={path}", f"/table?path={path}"):
        assert client.get(shelf.place + place.replace("+", "%2B"), headers=world.token(projects=["speech"])).status_code == 404
        assert client.get(shelf.place + place.replace("+", "%2B")).status_code == 401
    sha256 = hashlib.sha256(b"secret").hexdigest()
    shelf.objects.put(object_key("speech", sha256), b"secret")
    stolen = {"uri": shelf.objects.uri(object_key("speech", sha256)), "sha256": sha256, "size_bytes": 6}
    world.tables.put(
        topics.TRACKING, [ArtifactLogged.model_validate({"job_id": shelf.job, "path": "s.txt", "at_ms": NOW_MS} | stolen)], NOW_MS
    )
    shelf.get("/text", 404, path="s.txt")
    for climbing in ("../../etc/passwd", "images/../x.png", "s.png"):
        shelf.get("/content", 404, path=climbing)
    shelf.objects.put(artifact_key(shelf.job, hashlib.sha256(png(1)).hexdigest()), b"x" * len(png(1)))
    with pytest.raises(Exception, match="other contents"):
        shelf.get("/content", path=path)
    shelf.run("giant.png", png(9))
    giant = {"uri": shelf.objects.uri("x"), "sha256": sha256, "size_bytes": 33 << 20}
    world.tables.put(
        topics.TRACKING, [ArtifactLogged.model_validate({"job_id": shelf.job, "path": "giant.png", "at_ms": NOW_MS} | giant)], NOW_MS
    )
    shelf.get("/content", 413, path="giant.png")


def test_a_key_of_200_characters_and_one_that_climbs_are_words_alone(shelf: Shelf) -> None:
    key = "k" * 200
    shelf.rank("texts", key, 1, b"x", "txt")
    (one,) = shelf.get().json()["items"]
    assert one["key"] == key and shelf.get("/items", kind="text", key=key).json()["items"]
    with pytest.raises(ValueError, match="path"):
        shelf.rank("images", "../../etc", 1, b"x", "exe")
    shelf.rank("images", "../../etc", 1, b"x", "png")
    assert "../../etc" in [item["key"] for item in shelf.get().json()["items"]]
