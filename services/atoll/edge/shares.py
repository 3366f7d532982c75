"""Splits the keys of controllers among the members: each member reconciles, and writes for, the keys that are its own.

`process` makes one where several processes share the work. A key that another member has is dropped, and added again
when it becomes this one's. Invariant: a controller's client sends a write only with the token of the key that is being
reconciled; without one, or for another's, it sends nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from atoll.edge.membership import MemberFence, Membership
from atoll.edge.roster import Roster
from atoll.machinery.client.target import Fenced
from atoll.machinery.control.queue import Requeue, WorkQueue
from atoll.machinery.control.worker import Reconcile

K = TypeVar("K", bound=Hashable)
#: The key that is being reconciled.
_SHARE: ContextVar[str] = ContextVar("share", default="")


class SplitController(Protocol):
    """A controller whose keys can be reconciled by any member that has seen everything."""

    name: str
    queue: WorkQueue[Any]

    def keys(self) -> Collection[Any]:
        """All keys for which there may be something to do."""


class Shares:
    """The keys of this member."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        membership.moved = self._moved
        self._controllers: list[SplitController] = []
        #: For the clients of the controllers.
        self.fence = MemberFence(membership, _SHARE.get)

    def split(self, controller: SplitController, reconcile: Reconcile[Any]) -> Reconcile[Any]:
        """Return the reconcile of a controller for the keys that are this member's."""
        self._controllers.append(controller)

        async def run(key: Any) -> Requeue:
            share = share_of(controller.name, key)
            if not self._membership.is_owner(share):
                return None
            before = _SHARE.set(share)
            try:
                return await reconcile(key)
            except Fenced:
                # It moved meanwhile, or will be done when the membership is renewed.
                if self._membership.is_owner(share):
                    raise
                return None
            finally:
                _SHARE.reset(before)

        return run

    def count(self) -> dict[str, int]:
        """Return the number of keys of each controller that are this member's."""
        return {each.name: sum(self._is_own(each.name, key) for key in list(each.keys())) for each in self._controllers}

    def _is_own(self, controller: str, key: Hashable) -> bool:
        return self._membership.is_owner(share_of(controller, key))

    def _moved(self, before: Roster, after: Roster) -> None:
        """Take what is this member's from now on."""
        own = self._membership.identity
        for controller in self._controllers:
            for key in list(controller.keys()):
                share = share_of(controller.name, key)
                if after.owner(share) == own != before.owner(share):
                    controller.queue.add(key)


def share_of(controller: str, key: Hashable) -> str:
    """Return the key of the roster for a key of a controller."""
    parts = key if isinstance(key, tuple) else (key,)
    return "/".join((controller, *(str(getattr(part, "plural", part)) for part in parts)))
