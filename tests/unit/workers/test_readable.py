"""File descriptors of any number are waited for."""

import os
import resource

import pytest

from trainhouse.workers.readable import readable


@pytest.mark.parametrize("number", [0, 2_000])
def test_something_to_read_and_an_end_are_seen_and_silence_is_waited_for(number: int) -> None:
    """Beyond 1,024 as well: an agent of many ranks has that many open."""
    if number > resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
        pytest.skip(f"this process may not have a descriptor {number}")
    reader, writer = os.pipe()
    fd = os.dup2(reader, number) if number else reader
    try:
        assert not readable(fd, 0.01) and not readable(fd, -1)
        os.write(writer, b"x")
        assert readable(fd, 0)
        os.read(fd, 1)
        os.close(writer)
        assert readable(fd, 5)
    finally:
        for each in {fd, reader}:
            os.close(each)
