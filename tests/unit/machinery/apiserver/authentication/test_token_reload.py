"""Static tokens that are read again when their files change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from atoll.machinery.apiserver.authentication import token_reload
from atoll.machinery.apiserver.authentication.admin_tokens import load_admin_tokens, rotate_admin_tokens
from atoll.machinery.apiserver.authentication.token_reload import reload_admin_tokens, reload_token_file
from atoll.machinery.apiserver.authentication.tokens import StaticTokens, parse_token_file, token_digest
from atoll.machinery.process import file_watch
from atoll.machinery.wire.exchange import HttpRequest, Peer
from harness.waits import until

FILE = "a-token,alice,1\nb-token,bob,2,devs\nc-token,carol,3\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "CHECK_EVERY_S", 0.01)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Server:
    """Keeps which requests it is told to cut."""

    def __init__(self) -> None:
        self.refused: list[Callable[[HttpRequest], bool]] = []

    def cuts(self, token: str) -> bool:
        asked = HttpRequest("GET", b"/", {"authorization": [f"Bearer {token}"]}, b"", Peer("::1", 1, None))
        return any(refused(asked) for refused in self.refused)


def names(tokens: StaticTokens) -> dict[str, str]:
    return {user.name: ",".join(user.groups) for user in tokens.users.values()}


async def test_a_removed_token_and_one_of_another_user_end_and_the_others_go_on(tmp_path: Path) -> None:
    file, server = tmp_path / "tokens.csv", Server()
    file.write_text(FILE)
    tokens = StaticTokens(parse_token_file(FILE), ("api",))
    async with running(reload_token_file(str(file), tokens, server.refused.append)):
        file.write_text("b-token,bob,2\nc-token,carol,3\nd-token,dora,4\n")

        async def taken() -> bool:
            return set(names(tokens)) == {"bob", "carol", "dora"}

        await until(taken, "the new table")
        assert [server.cuts(f"{each}-token") for each in "abcd"] == [True, True, False, False]
        with capture_logs() as logs:
            file.write_text("nonsense\n")

            async def refused() -> bool:
                return any(each["event"] == "token file not reloaded" for each in logs)

            await until(refused, "the unusable file")
        assert set(names(tokens)) == {"bob", "carol", "dora"}


async def test_tokens_of_administrators_before_are_accepted_for_a_while_beside_the_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, server = load_admin_tokens(tmp_path, with_user=True), Server()
    tokens = StaticTokens(first.users, ("api",))
    monkeypatch.setattr(token_reload, "OVERLAP_S", 0.0)
    rotated = rotate_admin_tokens(tmp_path)
    async with running(reload_admin_tokens(tmp_path, tokens, server.refused.append)):

        async def over() -> bool:
            return token_digest(first.kcp_admin) not in tokens.users

        await until(over, "the end of the overlap")
        assert {*map(token_digest, rotated.values()), token_digest(first.user)} == tokens.users.keys()
        assert server.cuts(first.kcp_admin) and server.cuts(first.shard_admin)
        assert not server.cuts(first.user) and not any(map(server.cuts, rotated.values()))
