"""What a call that got no usable response counts as."""

from __future__ import annotations

import errno

import pytest

from atoll.machinery.egress.breakers import EAGER, PATIENT
from atoll.machinery.egress.errors import of_client
from atoll.machinery.wire.client import Unreachable


@pytest.mark.parametrize(
    ("code", "result", "text"),
    [
        (errno.ECONNREFUSED, "unreachable", "connection refused"),
        (errno.EMFILE, "busy", "too many open files"),
        (errno.ENFILE, "busy", "too many open files in system"),
    ],
)
def test_a_want_of_files_is_no_failure_of_the_peer(code: int, result: str, text: str) -> None:
    error = Unreachable("no connection")
    error.__cause__ = OSError(code, "from the system")
    found = of_client(error, "10.0.0.1:443")
    assert (found.result, str(found)) == (result, f"dial tcp 10.0.0.1:443: connect: {text}")
    for breaking in (EAGER, PATIENT):
        assert ("unreachable" in breaking.results, "busy" in breaking.results) == (True, False)
