"""Random UUIDs."""

from __future__ import annotations

import os
import uuid

from atoll.machinery.meta.uids import new_uid


def test_a_uid_is_a_version_4_uuid_in_its_usual_form() -> None:
    for _ in range(1000):
        text = new_uid()
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, text)


def test_no_two_uids_are_the_same() -> None:
    assert len({new_uid() for _ in range(10_000)}) == 10_000


def test_a_forked_process_draws_other_numbers_than_its_parent() -> None:
    new_uid()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, new_uid().encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 36).decode()
    os.close(reading)
    os.close(writing)
    assert uuid.UUID(theirs).version == 4
    assert theirs not in {new_uid() for _ in range(100)}
