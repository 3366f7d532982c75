"""The admission chain: an ordered list of plug-ins, mutating ones first.

`rest.write` calls it for every create and update, `rest.delete` for deletions. Invariant: no write of any caller
bypasses it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from atoll.machinery.apiserver.admission.configured.questions import Question
from atoll.machinery.apiserver.admission.configured.registry import Acting
from atoll.machinery.apiserver.call.call import Call, View
from atoll.machinery.apiserver.call.options import DeleteOptions
from atoll.machinery.edge.denaturing import IDENTITY as DENATURED
from atoll.machinery.kinds.kind import DeferredValidator, Kind
from atoll.machinery.meta.missing_answer import MissingAnswer
from atoll.machinery.meta.names import CORE, ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.storage.contract import GateState, Guard, Mutation

GroupResource = tuple[str, str]


class Review(msgspec.Struct, kw_only=True):
    """One write under review. `obj` is None for deletions, `old` for creations.

    `operation` is create, update or delete. Plug-ins may change `obj` in place (mutate only), append guards, append
    `deferred_validators` (mutate only): checks that may take long, run with the kind's own before the others here, and
    append `writes` (validate only): objects of the system that are written in the same transaction, without admission.
    A deletion that finalizers delay writes none.
    """

    call: Call
    operation: str
    obj: Object | None
    old: Object | None
    view: View
    subresource: str = ""
    dry_run: bool = False
    #: Of a deletion.
    delete_options: DeleteOptions | None = None
    #: The name of a new object is the server's: mutating webhooks and policies do not see it.
    has_generated_name: bool = False
    guards: list[Guard] = []
    writes: list[Mutation] = []
    deferred_validators: list[DeferredValidator] = []
    #: Of the kind of the call: every plug-in reads it.
    group_resource: GroupResource
    #: What is configured to act on it, from mutating admission on.
    acting: Acting | None = None
    #: Prunes, defaults and resets a changed object, given the one before.
    settler: Callable[[Object, Object], Object] | None = None
    #: What configured admission observed where there is no attempt.
    observed: dict[Any, Any] = {}
    #: Configured mutation that waits for a webhook; `Admission.go_on` goes on with it.
    pending: Iterator[MissingAnswer | None] | None = None
    #: What validating webhooks were asked after policies had accepted the object.
    questions: Sequence[Question] = ()

    def settle(self, changed: Object) -> None:
        """Take an object that configured mutating admission changed, as far as a client may write it.

        On /scale it is a Scale; otherwise it is in the version of the request. `changed` is the caller's no more.
        """
        assert self.settler is not None
        self.obj = self.settler(changed, self.result)

    @property
    def result(self) -> Object:
        """The object of a creation or an update."""
        assert self.obj is not None
        return self.obj

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
    #: Whether it validates writes of built-in kinds that are no dry runs.
    validates_plain_writes = True
    #: Whether objects of the kinds in `resources` are deleted one by one, so that it sees each deletion.
    reviews_deletions = False

    def mutate(self, review: Review) -> None:
        """Change the object in place."""

    def validate(self, review: Review) -> None:
        """Reject or accept."""


class _Steps(NamedTuple):
    """What a write of one kind goes through."""

    mutate: tuple[Callable[[Review], None], ...]
    validate: tuple[Callable[[Review], None], ...]
    #: The part of `validate` for writes of built-in kinds that are no dry runs.
    validate_plain: tuple[Callable[[Review], None], ...]

    @staticmethod
    def of(plugins: Sequence[Plugin], resource: GroupResource | None) -> _Steps:
        """Return the steps for a kind; None: for each kind that no plug-in names."""
        found = [plugin for plugin in plugins if plugin.resources is None or resource in plugin.resources]
        validating = [plugin for plugin in found if type(plugin).validate is not Plugin.validate]
        return _Steps(
            tuple(plugin.mutate for plugin in found if type(plugin).mutate is not Plugin.mutate),
            tuple(plugin.validate for plugin in validating),
            tuple(plugin.validate for plugin in validating if plugin.validates_plain_writes),
        )


class Configured(Protocol):
    """Admission as users configured it: policies and webhooks."""

    #: Whether nothing was configured in any cluster when a write was last looked up.
    is_empty: bool

    def mutate(self, review: Review, own: Callable[[Review], None]) -> None:
        """Change the object through `review.settle`; `own` runs the plug-ins again, after changes."""

    def go_on(self, review: Review) -> None:
        """Go on with a mutation that raised a MissingAnswer, where that left `review.pending`."""

    def validate(self, review: Review) -> None:
        """Reject or accept."""

    def leave(self, review: Review) -> None:
        """End with a review that fails between the two."""

    def may_cover(self, view: View, cluster: str, types: Iterable[ResourceType]) -> bool:
        """Whether something may act on some types in a cluster; False is certain, True is not."""

    def covers(self, view: View, cluster: str, kind: Kind, operation: str) -> bool:
        """Whether something may act on an operation (CREATE, UPDATE, DELETE) of a kind in a cluster."""


class Admission:
    """The chain. Order matters: earlier plug-ins do not see the changes of later ones.

    Plug-ins mutate first, then what is configured, after which plug-ins see and limit each change. What is configured
    validates first. Objects that are data pass the plug-ins of every kind alone.
    """

    def __init__(self, plugins: Sequence[Plugin], configured: Configured | None = None) -> None:
        self.configured = configured
        named = {resource for plugin in plugins for resource in plugin.resources or ()}
        self._steps = {resource: _Steps.of(plugins, resource) for resource in named}
        self._others = _Steps.of(plugins, None)
        self._one_by_one = {
            resource for plugin in plugins if plugin.reviews_deletions for resource in plugin.resources or ()
        }

    def mutate(self, review: Review) -> None:
        self._mutate(review)
        if self.configured is not None and review.call.kind.identity != DENATURED:
            self.configured.mutate(review, self._mutate_again)

    def go_on(self, review: Review) -> None:
        """Go on with a mutation that lacked an answer and left `review.pending`."""
        assert self.configured is not None
        self.configured.go_on(review)

    def may_review_deletions(self, view: View, cluster: str, types: Collection[ResourceType]) -> bool:
        """Whether `reviews_deletions` may be true of some types; False is certain, and found without their kinds."""
        if any(type.identity != CORE and (type.group, type.resource) in self._one_by_one for type in types):
            return True
        return self.configured is not None and self.configured.may_cover(view, cluster, types)

    def reviews_deletions(self, view: View, cluster: str, kind: Kind) -> bool:
        """Whether a plug-in, or something configured, may act on deletions of a kind, which are then made one by one.

        What plug-ins keep beside an object of a terminating cluster goes with that cluster.
        """
        is_kept = kind.identity != CORE and (kind.group, kind.plural) in self._one_by_one
        if is_kept and view.gate(cluster).state is not GateState.DELETING:
            return True
        if self.configured is None or kind.identity == DENATURED:
            return False
        return self.configured.covers(view, cluster, kind, "DELETE")

    def review_unstored(self, review: Review) -> None:
        """Let what is configured mutate and validate a request that stores no object, which no plug-in concerns."""
        if self.configured is not None:
            self.configured.mutate(review, lambda review: None)
            if review.acting is not None:
                self.configured.validate(review)

    def leave(self, review: Review) -> None:
        """End with a review whose object is invalid: it is not validated."""
        if self.configured is not None and review.acting is not None:
            self.configured.leave(review)

    def _mutate_again(self, review: Review) -> None:
        review.guards.clear()
        review.deferred_validators.clear()
        self._mutate(review)

    def _mutate(self, review: Review) -> None:
        call, resource = review.call, review.group_resource
        restrictions = call.restrictions
        if restrictions.write_rule is not None:
            review.guards.extend(restrictions.write_rule(review.view, review.obj, review.old))
        may_be_data = restrictions.is_data or call.kind.identity == DENATURED
        steps = self._others if may_be_data and _is_data(call) else self._steps.get(resource, self._others)
        for mutate in steps.mutate:
            mutate(review)

    def validate(self, review: Review) -> None:
        check = review.call.restrictions.check
        if check is not None:
            check(review.obj, review.old)
        if self.configured is not None and review.acting is not None:
            self.configured.validate(review)
        steps = self._steps.get(review.group_resource, self._others)
        if review.call.restrictions.is_data or review.call.kind.identity == DENATURED:
            # What is kept beside an object follows each change of it.
            is_kept = review.old is not None and review.group_resource in self._one_by_one
            steps = self._others if _is_data(review.call) and not is_kept else steps
        is_plain = review.call.kind.identity == CORE and not review.dry_run
        for validate in steps.validate_plain if is_plain else steps.validate:
            validate(review)


def _is_data(call: Call) -> bool:
    """Whether the plug-ins of its kind do not concern an object: it is stored apart, or its view holds data alone."""
    kind = call.kind
    return kind.identity == DENATURED or (call.restrictions.is_data and kind.builtin and kind.identity != CORE)
