"""A client of raw bytes, for requests that well-behaved clients never send, and a wait for a condition."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import NamedTuple

DEADLINE_S = 30.0


class Raw(NamedTuple):
    """One response as received; header names are lower-case."""

    status: int
    headers: dict[str, str]
    body: bytes


class RawClient:
    """One connection: sends given bytes and reads the answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext | None = None, *, limit: int = 1 << 24) -> RawClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=limit)
        return cls(reader, writer)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, target: str, method: str = "GET", body: bytes = b"", headers: str = "") -> Raw:
        """Send one well-formed request and read its answer."""
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        await self.send(f"{method} {target} HTTP/1.1\r\nHost: a\r\n{headers}{length}\r\n".encode() + body)
        return await self.answer(head_only=method == "HEAD")

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(DEADLINE_S):
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        status, *fields = text.rstrip("\r\n").split("\r\n")
        assert status.startswith("HTTP/1.1 "), f"not a response: {status}"
        headers = {}
        for field in fields:
            name, _, value = field.partition(": ")
            headers[name.lower()] = value
        return int(status.split()[1]), headers

    async def answer(self, *, head_only: bool = False) -> Raw:
        status, headers = await self.head()
        body = b""
        if not head_only and headers.get("transfer-encoding") == "chunked":
            while chunk := await self.chunk():
                body += chunk
        elif not head_only:
            async with asyncio.timeout(DEADLINE_S):
                body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Raw(status, headers, body)

    async def chunk(self) -> bytes:
        """One chunk of a body, b"" for the last."""
        async with asyncio.timeout(DEADLINE_S):
            size = int(await self.reader.readline(), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def rest(self) -> bytes:
        """All bytes until the server closes; a reset counts as closing."""
        data = b""
        async with asyncio.timeout(DEADLINE_S):
            try:
                while piece := await self.reader.read(65536):
                    data += piece
            except ConnectionResetError:
                pass
        return data

    def close(self) -> None:
        self.writer.transport.abort()


async def until(condition: Callable[[], object], what: str = "condition") -> None:
    """Wait until `condition()` holds; fails after 10 seconds."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 - anything may be the condition
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"never came: {what}") from None
