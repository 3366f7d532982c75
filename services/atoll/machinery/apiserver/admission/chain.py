"""The admission chain: an ordered list of plug-ins, mutating ones first.

`rest.write` calls it for every create and update, `rest.delete` for deletions. Invariant: no write of any caller
bypasses it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import msgspec

from atoll.machinery.apiserver.call.call import Call, View
from atoll.machinery.kinds.kind import DeferredValidator
from atoll.machinery.meta.objects import Object
from atoll.machinery.storage.contract import Guard

GroupResource = tuple[str, str]


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
    #: Of the kind of the call: every plug-in reads it.
    group_resource: GroupResource

    @property
    def name(self) -> str:
        """The name of a created or updated object; empty without one."""
        return str(self.obj["metadata"].get("name", "")) if self.obj else ""


class Plugin:
    """One admission plug-in, of the kinds in `resources` (None: every kind). Methods raise ApiError to reject.

    A plug-in that changes nothing, or accepts everything, does not have that method.
    """

    #: By group and plural.
    resources: Collection[GroupResource] | None = None

    def mutate(self, review: Review) -> None:
        """Change the object in place."""

    def validate(self, review: Review) -> None:
        """Reject or accept."""


class _Steps(NamedTuple):
    """What a write of one kind goes through."""

    mutate: tuple[Callable[[Review], None], ...]
    validate: tuple[Callable[[Review], None], ...]

    @staticmethod
    def of(plugins: Sequence[Plugin], resource: GroupResource | None) -> _Steps:
        """Return the steps for a kind; None: for each kind that no plug-in names."""
        found = [plugin for plugin in plugins if plugin.resources is None or resource in plugin.resources]
        return _Steps(
            tuple(plugin.mutate for plugin in found if type(plugin).mutate is not Plugin.mutate),
            tuple(plugin.validate for plugin in found if type(plugin).validate is not Plugin.validate),
        )


class Admission:
    """The chain. Order matters: earlier plug-ins do not see the changes of later ones."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        named = {resource for plugin in plugins for resource in plugin.resources or ()}
        self._steps = {resource: _Steps.of(plugins, resource) for resource in named}
        self._others = _Steps.of(plugins, None)

    def mutate(self, review: Review) -> None:
        rule = review.call.restrictions.write_rule
        if rule is not None:
            review.guards.extend(rule(review.view, review.obj, review.old))
        for mutate in self._steps.get(review.group_resource, self._others).mutate:
            mutate(review)

    def validate(self, review: Review) -> None:
        check = review.call.restrictions.check
        if check is not None:
            check(review.obj, review.old)
        for validate in self._steps.get(review.group_resource, self._others).validate:
            validate(review)
