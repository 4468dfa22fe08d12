"""Room of projects in the object store: uploads at one moment, and a listing that takes long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trainhouse.events.model.project import ProjectApplied
from trainhouse.gateway.auth.memberships import ProjectBook
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.limits.storage_room import Storage

GIB = 1 << 30


class Rows:
    """The projections: nobody has stored anything."""

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        return []


def storage() -> Storage:
    """Projects a and b, of one GiB each."""
    book = ProjectBook()
    for name in ("a", "b"):
        about = {"name": name, "limits": {"storage_gib": 1.0}}
        book.put(ProjectApplied.model_validate({"project": about, "version": 1, "user": "ops", "applied_at_ms": 1}))
    return Storage(Rows(), book)  # type: ignore[arg-type]


async def nothing() -> int:
    return 0


def test_a_listing_of_one_project_holds_up_no_other() -> None:
    async def tale() -> None:
        room, listing, listed = storage(), asyncio.Event(), asyncio.Event()

        async def slow() -> int:
            listing.set()
            await listed.wait()
            return 0

        async def upload() -> None:
            async with room.room_for_file("a", 1, slow):
                pass

        slowly = asyncio.create_task(upload())
        await listing.wait()
        async with asyncio.timeout(10):
            async with room.room_for_file("b", 1, nothing):
                await room.needs_room("b")
            await room.needs_room("a")
        assert not slowly.done()
        listed.set()
        await slowly

    asyncio.run(tale())


def test_uploads_at_one_moment_share_the_room() -> None:
    async def tale() -> None:
        room = storage()
        async with room.room_for_file("a", GIB * 2 // 3, nothing) as holds:
            await holds(GIB * 2 // 3)
            with pytest.raises(ProblemError, match="being sent"):
                async with room.room_for_file("a", GIB // 2, nothing):
                    pass
            async with room.room_for_file("a", 0, nothing) as undeclared:
                with pytest.raises(ProblemError):
                    await undeclared(GIB // 2)
                await undeclared(GIB // 4)
        async with room.room_for_file("a", GIB // 2, nothing):
            pass
        assert not room._reserved, "what ended holds no room"

    asyncio.run(tale())


def test_what_is_stored_during_a_listing_counts_after_it() -> None:
    async def tale() -> None:
        room = storage()

        async def meanwhile() -> int:
            room.stored_unnamed("a", GIB * 2 // 3)
            return 0

        async with room.room_for_file("a", 1, meanwhile):
            pass
        with pytest.raises(ProblemError, match="nothing names yet"):
            async with room.room_for_file("a", GIB // 2, nothing):
                pass

    asyncio.run(tale())
