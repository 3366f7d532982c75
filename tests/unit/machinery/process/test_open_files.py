"""A process may have as many files as the system allows, and a server accepts no more connections than leaves some."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from typing import cast

import pytest

from atoll.machinery.process import open_files
from atoll.machinery.wire.exchange import Handler
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server


@pytest.fixture
def before() -> Iterator[tuple[int, int]]:
    """The limits of this process, which are set again."""
    found = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield found
    resource.setrlimit(resource.RLIMIT_NOFILE, found)


def test_what_the_system_allows_is_taken(before: tuple[int, int]) -> None:
    _, hard = before
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    assert open_files.limit() == 512
    open_files.take_all()
    assert open_files.limit() == min(hard if hard != resource.RLIM_INFINITY else open_files.MOST, open_files.MOST)


@pytest.mark.parametrize(("files", "connections"), [(1024, 682), (20_000, 13_333), (1 << 20, Limits().connections)])
def test_a_third_of_all_files_is_left(files: int, connections: int) -> None:
    assert Limits().within(files).connections == connections


async def test_a_server_keeps_to_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "limit", lambda: 30)
    assert Server(cast(Handler, None), Limits()).limits.connections == 20


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EMFILE, "too many"), True),
        (OSError(errno.EADDRNOTAVAIL, "no port"), True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), False),
        (TimeoutError(), False),
    ],
)
def test_a_shortage_is_what_no_other_side_caused(error: Exception, expected: bool) -> None:
    assert open_files.is_shortage(error) is expected
