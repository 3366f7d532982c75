"""The publisher of a shard: connects to NATS and runs both stream writers for as long as the shard lives.

The shard starts it beside its store. Nothing waits for it: without NATS, `lag` grows and no write fails. Entries go to
the writers, failures to the log and to `stats`. Invariant: one publisher a shard in a process, and one that a higher
epoch has deposed publishes nothing more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from atoll.machinery.process.backoff import Backoff
from atoll.machinery.stream.connection import Access, ApiError, Connection, Retries, TooOld, Unavailable, Unresponsive
from atoll.machinery.stream.definitions import RetentionLimits
from atoll.machinery.stream.event_keys import EventKeys
from atoll.machinery.stream.publisher.audit import StreamAudit
from atoll.machinery.stream.publisher.changes import ChangesWriter
from atoll.machinery.stream.publisher.log_source import LogSource, SourceEntry, StreamPolicy
from atoll.machinery.stream.publisher.publish_window import WindowLimits
from atoll.machinery.stream.publisher.resume import Deposed
from atoll.machinery.stream.publisher.state import StateWriter
from atoll.machinery.stream.publisher.stream_writer import LogFeed, StreamWriter, WriterStats

log = structlog.get_logger()

_BACKLOG_LIMIT = 10_000
_SILENCES = 2


class PublisherOptions(msgspec.Struct, frozen=True):
    """Bounds and paces. `audit_interval_s` 0 audits at the start of each connection only. `restart_server` is called
    when the server hangs; without it an operator must restart it."""

    limits: WindowLimits = WindowLimits()
    bounds: RetentionLimits = RetentionLimits()
    backoff: Backoff = Backoff(0.05, 5.0)
    audit_interval_s: float = 600.0
    #: Messages a second, at about 30 us of CPU each: beside other work, and while publishing waits.
    audit_pace: tuple[int, int] = (1_000, 20_000)
    restart_server: Callable[[], Awaitable[None]] | None = None


DEFAULTS = PublisherOptions()


class PublishLag(msgspec.Struct, frozen=True):
    """How far the streams are behind the log. `events` is counted no further than 10,000."""

    events: int
    seconds: float
    connected: bool


class Publisher:
    """`run` it as a task; cancel the task to stop. `deposed` is called once, from within the task.

    Raises ValueError for an access without keys to sign with.
    """

    def __init__(
        self,
        source_log: LogSource,
        policy: StreamPolicy,
        access: Access,
        deposed: Callable[[Deposed], None],
        options: PublisherOptions = DEFAULTS,
    ) -> None:
        self._log = source_log
        self._access = access
        self._deposed = deposed
        self._options = options
        feed = LogFeed(source_log, policy, EventKeys(access.signing_keys), options.limits, options.bounds)
        self.changes = ChangesWriter(feed)
        self.state = StateWriter(feed)
        self.writers: tuple[StreamWriter, StreamWriter] = (self.changes, self.state)
        for writer in self.writers:
            writer.on_saved = self._report_published
        self._audit = StreamAudit((self.changes, self.state), source_log, policy, options.audit_pace)
        self._connected = False
        self._silences = self._progress = 0

    @property
    def stats(self) -> dict[str, WriterStats]:
        return {writer.kind: writer.stats for writer in self.writers}

    @property
    def published(self) -> int:
        """The revision up to which both streams are complete. Compaction passes it only if the disk is full."""
        return min(writer.revision for writer in self.writers)

    @property
    def _done(self) -> int:
        """As `published`, and past entries that the state stream has not to look at."""
        return min(writer.passed for writer in self.writers)

    def lag(self) -> PublishLag:
        """The lag now. Cheap enough for a scrape: reads one entry and counts keys."""
        done = self._done
        waiting: Sequence[SourceEntry] = ()
        if done < self._log.last() and done >= self._log.floor():
            waiting = self._log.tail(done, 1)
        seconds = max(0.0, time.time() - waiting[0].revision / 1e6) if waiting else 0.0
        return PublishLag(self._log.backlog(done, _BACKLOG_LIMIT), seconds, self._connected)

    async def drain(self, timeout_s: float) -> bool:
        """Wait until everything committed by now is in both streams. False if that takes longer."""
        target, deadline = self._log.last(), time.monotonic() + timeout_s
        while self._done < target:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.005)
        return True

    async def run(self) -> None:
        """Publish until cancelled or deposed."""
        retries = Retries(self._options.backoff)
        while True:
            before, delay_s = self.published, 0.0
            retries.begin()
            try:
                await self._session()
            except Deposed as error:
                log.error("writer was deposed", own=error.own, other=error.other)
                self._deposed(error)
                return
            except (Unavailable, ApiError, TooOld) as error:
                delay_s = retries.delay_s(error, progress=self.published > before)
                log.warning("stream not reachable", error=str(error), failures=retries.failures)
                await self._note_silence(isinstance(error, Unresponsive))
            except Exception as error:
                # An unreadable record must not end publishing: it may be repaired.
                delay_s = retries.delay_s(error)
                log.exception("publishing failed", error=repr(error), failures=retries.failures)
            finally:
                self._connected = False
            await asyncio.sleep(delay_s)

    async def _note_silence(self, silent: bool) -> None:
        """Restart a server that hung twice in a row: it does not recover by itself."""
        stuck = self.published == self._progress
        self._progress = self.published
        self._silences = (self._silences + 1 if stuck else 1) if silent else 0
        if self._silences < _SILENCES or self._options.restart_server is None:
            return
        log.error("stream server does not answer", silences=self._silences)
        self._silences = 1
        try:
            await self._options.restart_server()
        except Exception as error:
            log.exception("stream server could not be restarted", error=repr(error))

    async def _session(self) -> None:
        shard = self._log.identity.shard
        connection = await Connection.open(self._access, f"atoll shard {shard}")
        try:
            self._connected = True
            await self._until_one_ends(connection)
        finally:
            await connection.close()

    async def _until_one_ends(self, connection: Connection) -> None:
        await self._audit.first(connection, suspicious=self._silences > 0)
        works = [asyncio.ensure_future(writer.run(connection)) for writer in self.writers]
        works.append(asyncio.ensure_future(self._audit.run(connection, self._options.audit_interval_s)))
        try:
            done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
        errors = [error for work in done if (error := work.exception()) is not None]
        raise next((error for error in errors if isinstance(error, Deposed)), errors[0])

    def _report_published(self) -> None:
        self._log.set_published(self.published)
