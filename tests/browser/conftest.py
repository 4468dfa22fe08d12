"""A world of 10,000 jobs, 10,000 devices and a curve of a million points, and a signed-in page of a real Chromium before it.

These tests are a run of their own: a process can have one embedded engine at a time, and Playwright's loop stays its own.
Holds: a page may talk to its gateway alone: any request to another host fails the test, and so does an error on its console.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.browser.chromium import executable
from tests.browser.crowd import Size
from tests.browser.world import World, world_in
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.settings import KafkaSettings

WAIT_MS = 60_000
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all tests; a test that changes it says so."""
    with world_in(tmp_path_factory.mktemp("world"), Size(nodes=1250, jobs=10_000, long_curve=1_000_000)) as made:
        yield made


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        yield started
        started.close()


@dataclass
class Watched:
    """What pages of a context did that they must not."""

    hosts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    def heard(self, message: ConsoleMessage) -> None:
        """An error on the console; a refused request is the network's, and what a page makes of it is what tests look at."""
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def context(browser: Browser, world: World, watched: Watched) -> Iterator[BrowserContext]:
    """A fresh profile without a session."""
    made = browser.new_context(base_url=world.gateway.url, viewport=WIDE)
    made.set_default_timeout(WAIT_MS)
    made.on("request", lambda request: watched.hosts.add(urlsplit(request.url).netloc or urlsplit(request.url).scheme))
    made.on("console", watched.heard)
    made.on("weberror", lambda error: watched.errors.append(str(error.error)))
    yield made
    made.close()
    assert watched.hosts <= {urlsplit(world.gateway.url).netloc, "data", "blob"}, watched.hosts
    assert not watched.errors, watched.errors


@pytest.fixture
def page(context: BrowserContext, world: World) -> Page:
    """A page whose browser has an admin's session."""
    sign_in(context, world.gateway.token())
    return context.new_page()


@pytest.fixture(scope="module")
def looked_at(browser: Browser, world: World) -> Iterator[Page]:
    """A page into which axe may come as a script, which the pages' own policy would refuse."""
    made = browser.new_context(base_url=world.gateway.url, viewport=WIDE, bypass_csp=True)
    made.set_default_timeout(WAIT_MS)
    sign_in(made, world.gateway.token())
    yield made.new_page()
    made.close()


@pytest.fixture
def bus(world: World, tmp_path: Path) -> Iterator[KafkaSettings]:
    """Kafka, where the gateway looks for it."""
    with KafkaServer(tmp_path / "kafka", port=world.gateway.kafka_port) as server:
        settings = KafkaSettings(bootstrap=server.bootstrap)
        create_topics(settings)
        yield settings


def sign_in(context: BrowserContext, token: str) -> None:
    """A session, as the sign-in page makes it."""
    answer = context.request.post("/v1/session", data={"token": token}, headers={"X-Trainhouse-Page": "1"})
    assert answer.ok, answer.text()
