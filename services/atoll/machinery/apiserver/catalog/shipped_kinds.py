"""The kinds of root's export `kubernetes` for catalogues: their modules and tables are loaded with the first use.

That takes up to a third of a second, so it is done beside the event loop before a catalogue asks: at the start of a
shard with such a binding, by the controller that binds the export first, and in an API worker for the first request or
plan of a write, which waits. Views may serve them too, under an identity of their own. Invariant: a process that serves
neither loads nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.missing_answer import MissingAnswer


class KindsPending(MissingAnswer):
    """A request or a plan needs kinds that are not loaded: fetch them, then begin again."""

    def __init__(self, load: Callable[[], Awaitable[None]]) -> None:
        super().__init__("Kubernetes' kinds are not loaded")
        self._load = load

    async def fetch(self) -> None:
        """Load the kinds beside the event loop."""
        await self._load()


class _Caller(threading.local):
    """Whether the code of this thread can wait for kinds: a plan in slices has a thread of its own."""

    can_wait = False


class ShippedKinds:
    """Kubernetes' kinds under the identity of root's export, empty without one."""

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._is_loaded = False
        self._loading = asyncio.Lock()
        self.caller = _Caller()

    def lacks(self, identity: str) -> bool:
        """Return whether an identity is that of Kubernetes' kinds, and they are not loaded."""
        return not self._is_loaded and bool(identity) and identity == self._identity

    def of(self, schema: str, identity: str) -> tuple[Kind, ...]:
        """Return the kinds of a schema that root ships, which are more than it says; none for any other schema.

        Raises KindsPending for who can wait; for others it loads them at once.
        """
        if identity != self._identity or not identity:
            return ()
        if self.caller.can_wait and not self._is_loaded:
            raise KindsPending(self.load)
        from atoll.machinery.kinds.kubernetes.served_kinds import kinds_of_schema

        return kinds_of_schema(schema, identity)

    def of_row(self, row: str, identity: str) -> tuple[Kind, ...]:
        """Return the kinds of a row, such as `limitranges.core`, under another identity than the export's.

        Raises KindsPending for who can wait; for others it loads them at once.
        """
        if self.caller.can_wait and not self._is_loaded:
            raise KindsPending(self.load)
        from atoll.machinery.kinds.kubernetes.schema_names import schema_names
        from atoll.machinery.kinds.kubernetes.served_kinds import kinds_of_schema

        return kinds_of_schema(schema_names()[row], identity)

    async def load(self) -> None:
        """Load all kinds beside the event loop, once."""
        async with self._loading:
            if not self._is_loaded:
                await asyncio.to_thread(self._load)
                self._is_loaded = True

    def _load(self) -> None:
        from atoll.machinery.kinds.kubernetes.schema_names import schema_names
        from atoll.machinery.kinds.kubernetes.served_kinds import kinds_of_schema

        for schema in schema_names().values():
            kinds_of_schema(schema, self._identity)
