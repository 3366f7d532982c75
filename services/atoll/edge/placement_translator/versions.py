"""The version at which a copy is written: the first of its workspace's that its mailbox serves.

`copies` asks here. A mailbox counts as serving what a workspace prefers until it answers that it does not; then what it
serves is read, and remembered until its definitions change. Memory: kinds that mailboxes serve otherwise, and no
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atoll.edge.placement_translator.content import Kind
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import served_kinds
from atoll.machinery.meta.status import ApiError


class Unserved(ApiError):
    """No version of a kind is served by a workspace and by a mailbox."""

    code, reason = 404, "VersionNotServed"


class Versions:
    """Versions of kinds in all mailboxes."""

    def __init__(self, base: Client) -> None:
        self._base = base
        self._served: dict[str, dict[Kind, tuple[str, ...]]] = {}

    def choose(self, mailbox: str, kind: Kind, offered: Sequence[str]) -> str:
        """Return the version for the copies of a kind that a workspace serves at these. Raises Unserved."""
        served = self._served.get(mailbox, {}).get(kind)
        for version in offered:
            if served is None or version in served:
                return version
        name = f"{kind[1]}.{kind[0]}".removesuffix(".")
        here, there = ", ".join(offered), ", ".join(served or ())
        raise Unserved(f"the workspace serves {name} at {here}, the mailbox at {there}")

    async def read(self, mailbox: str, kind: Kind, version: str) -> bool:
        """Look up a kind of a mailbox that answered "not found"; return whether it serves other versions than this one.

        Raises ApiError, ClientError, TimeoutError.
        """
        found = (await served_kinds(self._base.cluster(mailbox))).get(kind)
        if found is None or version in found.versions:
            return False
        self._served.setdefault(mailbox, {})[kind] = found.versions
        return True

    def served(self, mailbox: str, kind: Kind) -> Sequence[str]:
        """Return the versions of a kind that a mailbox serves otherwise than a workspace; none of another kind."""
        return self._served.get(mailbox, {}).get(kind, ())

    async def refresh(self, mailbox: str, offered: Mapping[Kind, Sequence[str]]) -> bool:
        """Look up what a mailbox serves of the kinds that workspaces offer; return whether it is something else.

        Raises ApiError, ClientError, TimeoutError.
        """
        kinds = await served_kinds(self._base.cluster(mailbox))
        found = {kind: kinds[kind].versions for kind in offered if kind in kinds}
        found = {kind: versions for kind, versions in found.items() if offered[kind][0] not in versions}
        before = self._served.pop(mailbox, {})
        if found:
            self._served[mailbox] = found
        return found != before

    def forget(self, mailbox: str) -> None:
        """A mailbox is gone."""
        self._served.pop(mailbox, None)
