"""The AssociatedStates of one mailbox: how what its edge cluster makes of placed objects fares there.

`rows` keeps one for each mailbox and reads it. Invariant: a state that was to be read and could not be is read again.
"""

from __future__ import annotations

from collections.abc import Iterator

from atoll.edge.kinds import ASSOCIATED_STATES
from atoll.machinery.client.client import Client
from atoll.machinery.edge.associated_states import State, decoded, state_key, subject_of
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound

PAGE = 500


class States:
    """What is known, and what to read."""

    def __init__(self) -> None:
        self._states: dict[ObjectRef, State] = {}
        self._subjects: dict[tuple[str, str], ObjectRef] = {}
        self._due: set[tuple[str, str]] = set()
        self._is_read = False

    def get(self, ref: ObjectRef) -> State | None:
        """Return the state of what belongs to an object."""
        return self._states.get(ref)

    def look(self, namespace: str, name: str) -> None:
        """A state changed or went."""
        self._due.add((namespace, name))

    def look_at_all(self) -> None:
        """Any state may have changed."""
        self._is_read = False

    async def read(self, client: Client) -> set[ObjectRef]:
        """Read what is due; return the objects of which it says something else. Raises ApiError, ClientError."""
        due, self._due = self._due, set()
        try:
            if self._is_read:
                return {ref for key in due for ref in await self._read_one(client, *key)}
            found = await self._read_all(client)
            self._is_read = True
            return found
        except BaseException:
            self._due |= due
            raise

    async def _read_one(self, client: Client, namespace: str, name: str) -> Iterator[ObjectRef]:
        try:
            return self._put((namespace, name), await client.get(ASSOCIATED_STATES, name, namespace))
        except NotFound:
            return self._put((namespace, name), None)

    async def _read_all(self, client: Client) -> set[ObjectRef]:
        changed, left = set[ObjectRef](), set(self._subjects)
        try:
            async for page in client.pages(ASSOCIATED_STATES, limit=str(PAGE)):
                for each in page["items"]:
                    key = each["metadata"]["namespace"], each["metadata"]["name"]
                    left.discard(key)
                    changed.update(self._put(key, each))
        except NotFound:
            # A mailbox of an older service has none.
            pass
        for key in left:
            changed.update(self._put(key, None))
        return changed

    def _put(self, key: tuple[str, str], obj: Object | None) -> Iterator[ObjectRef]:
        before = self._subjects.pop(key, None)
        if before is not None and obj is None:
            del self._states[before]
            return iter((before,))
        # A name that is not that of its subject is nobody's.
        if obj is None or state_key(subject := subject_of(obj)) != key:
            return iter(())
        self._subjects[key], found = subject, decoded(obj)
        is_same = self._states.get(subject) == found
        self._states[subject] = found
        return iter(() if is_same else (subject,))
