"""The admission chain: an ordered list of plug-ins, mutating ones first.

`rest.write` calls it for every create and update, `rest.delete` for deletions. Invariant: no write of any caller
bypasses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from atoll.machinery.apiserver.call.call import Call, View
from atoll.machinery.kinds.kind import DeferredValidator
from atoll.machinery.meta.objects import Object
from atoll.machinery.storage.contract import Guard


class Review(msgspec.Struct, kw_only=True):
    """One write under review. `obj` is None for deletions, `old` for creations.

    `operation` is create, update or delete. Plug-ins may change `obj` in place (mutate only), append guards, and append
    `deferred_validators` (mutate only): checks that may take long, run with the kind's own before the others here.
    """

    call: Call
    operation: str
    obj: Object | None
    old: Object | None
    view: View
    subresource: str = ""
    dry_run: bool = False
    guards: list[Guard] = []
    deferred_validators: list[DeferredValidator] = []
    #: Every plug-in reads it.
    group_resource: tuple[str, str] = ("", "")

    def __post_init__(self) -> None:
        self.group_resource = self.call.kind.group, self.call.kind.plural

    @property
    def name(self) -> str:
        """The name of a created or updated object; empty without one."""
        return str(self.obj["metadata"].get("name", "")) if self.obj else ""


class Plugin(Protocol):
    """One admission plug-in. Methods raise ApiError to reject."""

    def mutate(self, review: Review) -> None: ...

    def validate(self, review: Review) -> None: ...


class Admission:
    """The chain. Order matters: earlier plug-ins do not see the changes of later ones."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = tuple(plugins)

    def mutate(self, review: Review) -> None:
        review.guards.extend(review.call.restrictions.write_rule(review.view, review.obj, review.old))
        for plugin in self._plugins:
            plugin.mutate(review)

    def validate(self, review: Review) -> None:
        review.call.restrictions.check(review.obj, review.old)
        for plugin in self._plugins:
            plugin.validate(review)


class Validator:
    """Base of plug-ins that only validate."""

    def mutate(self, review: Review) -> None:
        """Do nothing."""
