"""One connection to NATS, and the JetStream API over it.

Publisher, audit and consumers open one, use it until it breaks and open another: a client that reconnects would send
its buffer again with outdated expected sequences. `nats` is imported at the first connection. Invariant: a server
below the version floor is refused, because older ones let clients evade their permissions.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.process.backoff import Backoff
from atoll.machinery.stream.contention import ONE_USER_EACH, Contention
from atoll.machinery.stream.event_keys import SigningKey

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

log = structlog.get_logger()

VERSION_FLOOR = (2, 14, 3)
_CONNECT_TIMEOUT_S = 5.0
_CLOSE_TIMEOUT_S = 2.0
_MAX_REFUSALS = 16
_REQUEST_TIMEOUT_S = 5.0
_BACKOFF = Backoff(0.05, 5.0)
#: For a JetStream that answers with an error: a missing stream is being made by its shard.
_REFUSED_BACKOFF = Backoff(0.05, 1.0)
#: Work that lasted this long did not fail at its start.
_HEALTHY_S = 10.0


class CredentialSource(Protocol):
    """Where the credential of an access is read again."""

    def renewed(self, access: Access) -> Access:
        """The access with the credential as it is now."""


class Access(msgspec.Struct, frozen=True):
    """How to reach NATS, and the credential. An empty `user`: the URL has it, or the server requires none; or a `token`
    stands for it. The authority of the server's certificate is in `ca_file`, or its PEM in `ca`.

    `api_prefix` is the subject of the JetStream API, in which `{shard}` stands for the shard whose streams are asked
    for. `reader` is the access by which a process that publishes reads the streams of others; None: this one.
    `signing_keys` sign the events that this process publishes. `event_keys` are the public keys of shards, by name,
    that their events are verified with; None: a follower takes no events of other shards. Each connection takes the
    credential that `source` has by then.
    """

    servers: list[str]
    user: str = ""
    password: str = ""
    inbox_prefix: str = "_INBOX"
    ca_file: str = ""
    api_prefix: str = "$JS.API"
    reader: Access | None = None
    signing_keys: tuple[SigningKey, ...] = ()
    event_keys: Mapping[str, Sequence[str]] | None = None
    token: str = ""
    ca: str = ""
    source: CredentialSource | None = None

    @property
    def for_reading(self) -> Access:
        """The access by which the streams of other shards are read."""
        if self.reader is None:
            return self
        return msgspec.structs.replace(self.reader, event_keys=self.event_keys)

    def at(self, shard: str) -> Access:
        """This access to the streams of one shard."""
        return msgspec.structs.replace(self, api_prefix=self.api_prefix.replace("{shard}", shard))


class Unavailable(Exception):
    """NATS or its JetStream cannot be reached, or went away. Try again later."""


class Unresponsive(Unavailable):
    """The server takes connections but does not answer: busy, or hung over a damaged file."""


class Denied(Unavailable):
    """The credential may not ask for it: its user was made with other permissions."""


class ConsumerTaken(Unavailable):
    """Another process opened the consumer anew, or took messages of it."""


class ApiError(Exception):
    """JetStream answered with an error."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} ({code})")
        self.code, self.description = code, description


class TooOld(Exception):
    """The server is below the version floor."""


def check_version(version: str) -> None:
    """Raises TooOld below the floor."""
    core = version.lstrip("v").partition("-")[0].partition("+")[0]
    numbers = tuple(int(part) if part.isdigit() else 0 for part in core.split("."))
    if numbers < VERSION_FLOOR:
        raise TooOld(f"nats-server {version} is below {'.'.join(map(str, VERSION_FLOOR))}")


def _raise_if_cancelled(task: asyncio.Task[object], before: int) -> None:
    """Raise a cancellation that the client lost: `asyncio.wait_for` of Python 3.11 drops one that comes as it ends."""
    if task.cancelling() > before:
        raise asyncio.CancelledError


def encode_publish(subject: str, payload: bytes, reply: str, headers: Sequence[str]) -> bytes:
    """Encode a message for the server (`HPUB`); each header is `<name>: <value>`. The client's own encoder checks each
    header separately, which costs more than the rest of an event. An empty `reply` asks for no answer. Raises
    ValueError if a value would break out of its line."""
    fields = "\r\n".join(headers)
    breaks = len(headers) - 1
    if fields.count("\n") != breaks or fields.count("\r") != breaks or not subject.isprintable():
        raise ValueError("line break where a message cannot have one")
    head = f"NATS/1.0\r\n{fields}\r\n\r\n".encode()
    command = f"HPUB {subject} {reply + ' ' if reply else ''}{len(head)} {len(head) + len(payload)}\r\n"
    return b"".join((command.encode(), head, payload, b"\r\n"))


class Connection:
    """An open connection. `closed` is set as soon as it is lost; then open another."""

    def __init__(self, client: Client, api_prefix: str = "$JS.API") -> None:
        self.client, self.api_prefix = client, api_prefix
        self.closed = asyncio.Event()
        self._listeners: list[Callable[[Exception], None]] = []
        #: What the server last refused to pass on, in its words.
        self._refusals: deque[str] = deque(maxlen=_MAX_REFUSALS)

    @classmethod
    async def open(cls, access: Access, name: str) -> Connection:
        """Connect to one of the servers, in an order drawn anew each time. Raises Unavailable, TooOld."""
        access = access.source.renewed(access) if access.source is not None else access
        *others, last = random.sample(access.servers, len(access.servers))
        for server in others:
            try:
                return await cls._open(msgspec.structs.replace(access, servers=[server]), name)
            except Unavailable as error:
                log.debug("nats server passed over", server=server, error=str(error))
        return await cls._open(msgspec.structs.replace(access, servers=[last]), name)

    @classmethod
    async def _open(cls, access: Access, name: str) -> Connection:
        connection = cls(await asyncio.to_thread(_new_client), access.api_prefix)
        task = asyncio.current_task()
        assert task is not None
        cancellations = task.cancelling()
        try:
            await connection._connect(access, name)
            _raise_if_cancelled(task, cancellations)
        except BaseException as error:
            # The client leaves the socket open.
            await connection.close()
            _raise_if_cancelled(task, cancellations)
            if isinstance(error, TooOld) or not isinstance(error, Exception):
                raise
            raise Unavailable(f"connecting failed: {error!r}") from error
        return connection

    async def _connect(self, access: Access, name: str) -> None:
        async def on_close() -> None:
            self._lose()

        async def on_error(error: Exception) -> None:
            log.debug("nats client error", error=repr(error))
            self._refusals.append(str(error).lower())

        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            await self.client.connect(
                servers=access.servers,
                name=name,
                user=access.user or None,
                password=access.password or None,
                token=access.token or None,
                inbox_prefix=access.inbox_prefix,
                tls=_tls(access),
                allow_reconnect=False,
                reconnect_time_wait=0,
                max_reconnect_attempts=1,
                closed_cb=on_close,
                error_cb=on_error,
                ping_interval=20,
            )
        check_version(str(self.client._server_info.get("version", "")))

    async def close(self) -> None:
        """Close it, by force if the client takes too long. Never raises."""
        transport = self.client._transport
        try:
            # The client waits for a TLS close_notify that never arrives if the handshake failed.
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self.client.close()
        except Exception as error:
            log.debug("nats close failed", error=repr(error))
        writer = getattr(transport, "_io_writer", None)
        if writer is not None:
            # The client does not close the socket of a half-open connection, and closing TLS waits for the other side.
            writer.transport.abort()
        self._lose()

    def on_lost(self, listener: Callable[[Exception], None]) -> None:
        """Call back with Unavailable when the connection is lost; at once if it already is."""
        self._listeners.append(listener)
        if self.closed.is_set():
            listener(Unavailable("connection lost"))

    def forget(self, listener: Callable[[Exception], None]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def _lose(self) -> None:
        self.closed.set()
        for listener in tuple(self._listeners):
            listener(Unavailable("connection lost"))

    async def publish(
        self, subject: str, payload: bytes, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send without waiting for an answer. The subject is taken as it is. Raises Unavailable."""
        if headers is not None:
            lines = [f"{name}: {value}" for name, value in headers.items()]
            await self.send([encode_publish(subject, payload, reply, lines)])
            return
        try:
            await self.client.publish(subject, payload, reply)
        except Exception as error:
            raise Unavailable(f"publishing failed: {error!r}") from error

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send encoded messages at once, without waiting for an answer. Raises Unavailable."""
        client = self.client
        try:
            if not client.is_connected or max(map(len, frames)) > client.max_payload:
                raise ConnectionError("not connected, or too long a message")
            await client._send_command(b"".join(frames))
            if client._flush_queue is not None and client._flush_queue.empty():
                await client._flush_pending()
        except Exception as error:
            raise Unavailable(f"publishing failed: {error!r}") from error

    async def subscribe(
        self, subject: str, callback: Callable[[Msg], Awaitable[None]], queue: str = ""
    ) -> Subscription:
        """Call back for each message, one at a time, in order; those of a `queue` share them. Raises Unavailable."""
        try:
            return await self.client.subscribe(subject, queue, cb=callback)
        except Exception as error:
            raise Unavailable(f"subscribing failed: {error!r}") from error

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Stop a subscription; buffered messages are not delivered any more. Never raises."""
        if self.closed.is_set():
            return
        try:
            await subscription.unsubscribe()
        except Exception as error:
            log.debug("nats unsubscribe failed", error=repr(error))

    async def drain(self, subscription: Subscription) -> None:
        """Stop a subscription once all that the server had sent was delivered; it sends no more. Never raises."""
        if self.closed.is_set():
            return
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await subscription.drain()  # type: ignore[no-untyped-call]
        except Exception as error:
            log.debug("nats drain failed", error=repr(error))

    def inbox(self) -> str:
        """A new subject of this connection that others cannot guess."""
        return self.client.new_inbox()

    async def api(self, subject: str, body: Object | None = None) -> Object:
        """A request to the JetStream API. Raises ApiError, Unavailable; Denied for a subject that is not permitted."""
        try:
            reply = await self.client.request(
                f"{self.api_prefix}.{subject}",
                encode_json(body) if body is not None else b"",
                timeout=_REQUEST_TIMEOUT_S,
            )
        except TimeoutError as error:
            # The server says which subject it refused, not to whom it owes the answer.
            if any(f'"{self.api_prefix}.{subject}"'.lower() in text for text in self._refusals):
                raise Denied(f"{subject} is not permitted") from error
            raise Unresponsive(f"{subject} was not answered") from error
        except Exception as error:
            raise Unavailable(f"{subject} failed: {error!r}") from error
        _check_cancelled()
        answer: Object = msgspec.json.decode(reply.data)
        if "error" in answer:
            raise ApiError(answer["error"].get("err_code", 0), answer["error"].get("description", ""))
        return answer


class Retries:
    """When to open the next connection after one failed: later each time that one fails soon and brought nothing."""

    def __init__(self, backoff: Backoff = _BACKOFF, clock: Callable[[], float] = time.monotonic) -> None:
        self.failures = 0
        self._backoff, self._clock, self._since = backoff, clock, 0.0

    def begin(self) -> None:
        """A connection is about to be opened."""
        self._since = self._clock()

    def delay_s(self, error: Exception, progress: bool = False) -> float:
        """Seconds to wait after it ended with an error. `progress`: it was of use, however short it was."""
        healthy = progress or self._clock() - self._since >= _HEALTHY_S
        self.failures = 1 if healthy else self.failures + 1
        backoff = _REFUSED_BACKOFF if isinstance(error, ApiError) else self._backoff
        return backoff.delay_s(self.failures)


class Reconnection:
    """The retries of a reader, which are logged."""

    def __init__(self, reader: str) -> None:
        self.reader, self._retries = reader, Retries()
        self._contention = Contention()

    @property
    def is_contended(self) -> bool:
        """Whether another process that stays reads with the same consumer."""
        return self._contention.lasts

    def begin(self) -> None:
        """A connection is about to be opened."""
        self._retries.begin()

    async def failed(self, error: Unavailable | ApiError | TooOld) -> None:
        """Log the failure, at powers of two as a warning, and wait.

        Raises CancelledError if the task was cancelled and ended with the failure of what it cleaned up instead.
        """
        _check_cancelled()
        delay_s = self._retries.delay_s(error)
        failures = self._retries.failures
        if isinstance(error, ConsumerTaken):
            self._contention.note()
            if self.is_contended:
                log.error("another process reads as the same NATS user", reader=self.reader, remedy=ONE_USER_EACH)
        write = log.debug if failures & (failures - 1) else log.warning
        write("stream not readable", reader=self.reader, error=str(error), failures=failures)
        await asyncio.sleep(delay_s)


async def keep_connected(
    access: Access, name: str, work: Callable[[Connection], Awaitable[None]], retries: Reconnection | None = None
) -> None:
    """Run `work` on one connection after the other until cancelled. Errors that are not the stream's end it."""
    retries = retries or Reconnection(name)
    while True:
        retries.begin()
        try:
            connection = await Connection.open(access, name)
            try:
                await work(connection)
            finally:
                await connection.close()
        except (Unavailable, ApiError, TooOld) as error:
            await retries.failed(error)


def _check_cancelled() -> None:
    """Raise a lost cancellation: Python 3.11's `wait_for`, which the client uses, drops one that coincides with
    the answer, and an error while cleaning up takes its place."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _new_client() -> Client:
    from atoll.machinery.stream.nats_client import NatsClient

    return NatsClient()


def _tls(access: Access) -> ssl.SSLContext | None:
    if access.ca_file:
        return ssl.create_default_context(cafile=Path(access.ca_file))
    return ssl.create_default_context(cadata=access.ca) if access.ca else None
