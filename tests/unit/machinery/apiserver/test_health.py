"""Health endpoints: responses when checks fail, are excluded, or do not exist."""

from __future__ import annotations

import pytest

from atoll.machinery.apiserver.serving.health import Check, Notice, all_of, one, ping
from atoll.machinery.meta.status import NotFound


def broken() -> str | None:
    raise RuntimeError("a secret of the disk")


CHECKS: dict[str, Check] = {"ping": ping, "store": broken, "poststarthook/x": lambda: "a secret of the hook"}
FAILED = (
    "[+]ping ok\n[-]store failed: reason withheld\n[-]poststarthook/x failed: reason withheld\nreadyz check failed\n"
)


@pytest.mark.parametrize(
    ("query", "code", "text"),
    [
        ("", 500, FAILED),
        ("verbose", 500, FAILED),
        ("exclude=store&exclude=poststarthook/x", 200, "ok"),
        (
            "exclude=store&exclude=poststarthook%2Fx&verbose",
            200,
            "[+]ping ok\n[+]store excluded: ok\n[+]poststarthook/x excluded: ok\nreadyz check passed\n",
        ),
        (
            "exclude=store&exclude=poststarthook/x&exclude=b&exclude=a&verbose=1",
            200,
            "[+]ping ok\n[+]store excluded: ok\n[+]poststarthook/x excluded: ok\n"
            'warn: some health checks cannot be excluded: no matches for "a","b"\nreadyz check passed\n',
        ),
        (
            "exclude=store",
            500,
            "[+]ping ok\n[+]store excluded: ok\n[-]poststarthook/x failed: reason withheld\nreadyz check failed\n",
        ),
    ],
)
def test_checks_are_told_in_order_and_reasons_withheld(query: str, code: int, text: str) -> None:
    answer = all_of("readyz", CHECKS, query)
    assert (answer.status, answer.body.decode() if isinstance(answer.body, bytes) else "") == (code, text)
    assert answer.content_type == "text/plain; charset=utf-8"


def test_one_check_is_asked_alone() -> None:
    assert (one("livez", CHECKS, "ping").status, one("livez", CHECKS, "ping").body) == (200, b"ok")
    failed = one("livez", CHECKS, "poststarthook/x")
    assert (failed.status, failed.body) == (500, b"internal server error: reason withheld\n")
    with pytest.raises(NotFound):
        one("livez", CHECKS, "nothing")


def test_a_notice_is_listed_and_fails_alone_but_not_the_whole() -> None:
    notices: list[str] = ["full"]
    checks: dict[str, Check] = {"ping": ping, "store-space": Notice(lambda: notices[0] if notices else None)}
    answer = all_of("readyz", checks, "")
    listed = b"[+]ping ok\n[-]store-space failed (not counted): reason withheld\nreadyz check passed\n"
    assert (answer.status, answer.body) == (200, listed)
    assert one("readyz", checks, "store-space").status == 500
    assert all_of("readyz", {**checks, "store": broken}, "").status == 500
    notices.clear()
    assert all_of("readyz", checks, "").body == b"ok"
