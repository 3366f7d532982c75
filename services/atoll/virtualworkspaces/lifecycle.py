"""The initializing and terminating views: workspaces in those phases, for the controllers that work on them.

    clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters          those waiting for this initializer: list, watch
    clusters/<name>/apis/core.kcp.io/v1alpha1/logicalclusters     one of them: get; its status: get, update, patch
    clusters/<name>/...                                           the workspace's content, while it waits

`framework` brings requests here. The view needs the verb `initialize` or `terminate` on the WorkspaceType. Content is
authorized by the type's own rules if it has any, each request on its own, and otherwise by the rights of the
workspace's owner. Invariant: once a cluster no longer waits, nothing in it is reachable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from atoll.machinery.apiserver.authorization.attributes import Attributes, Decision, attributes_of, with_verb
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.authorization.effective_users import SCOPES, effective_users, global_name_of
from atoll.machinery.apiserver.authorization.groups import without_lifecycle
from atoll.machinery.apiserver.authorization.rbac import Rule
from atoll.machinery.apiserver.authorization.rbac_objects import rules_of_objects
from atoll.machinery.apiserver.authorization.refusal import forbidden
from atoll.machinery.apiserver.call import errors
from atoll.machinery.apiserver.call.call import Restrictions, View
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.apiserver.request import Request, RequestScope, ScopeAuthorizer
from atoll.machinery.kcp.workspaces.lifecycle import INITIALIZATION, Lifecycle
from atoll.machinery.kcp.workspaces.workspacetypes import WorkspaceType
from atoll.machinery.kinds.kind import Kind, Subresource
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.names import ObjectKey
from atoll.machinery.meta.objects import Object, decode, spec_of
from atoll.machinery.meta.status import ServiceUnavailable, invalid
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.user import AUTHENTICATED, MASTERS, User
from atoll.machinery.storage.contract import Snapshot
from atoll.virtualworkspaces.framework import Own, selected, view_kind

#: Find a WorkspaceType by its logical cluster and its name.
FindType = Callable[[View, str, str], WorkspaceType | None]


class LifecycleView:
    """One of the two views. `kind` is that of LogicalClusters."""

    #: The initializer.
    own_segments = 1

    def __init__(self, lifecycle: Lifecycle, kind: Kind, authorizer: Authorizer, find_type: FindType) -> None:
        self._lifecycle, self._authorizer, self._find_type = lifecycle, authorizer, find_type
        status = Subresource("status", kind.kind, kind.group, kind.version, ("get", "patch", "update"))
        self._kind = view_kind(kind, subresources=(status,))
        self._catalog = Catalog([self._kind])
        # kcp lists the status subresource in the view of all clusters, without verbs.
        listed = view_kind(kind, subresources=(replace(status, verbs=()),))
        self._of_all_clusters = Catalog([listed], legacy_discovery=True)

    def opens(self, view: View, user: User, own: Own) -> bool:
        """Return whether the user holds the view's verb on the WorkspaceType."""
        cluster, _, type = own[0].rpartition(":")
        if not cluster or not type:
            # No type can have this URL. Only system:masters get 404 for it.
            path_only = Attributes(user=user, verb=self._lifecycle.verb, path=f"/services/{self._lifecycle.service}")
            return self._authorizer.authorize(view, path_only).allowed
        attributes = Attributes(
            user=user,
            verb=self._lifecycle.verb,
            cluster=cluster,
            group=wellknown.TENANCY_GROUP,
            version="v1alpha1",
            resource="workspacetypes",
            name=type,
        )
        return self._authorizer.authorize(view, attributes, anywhere=True).allowed

    def show(self, request: Request, snapshot: Snapshot, own: Own) -> RequestScope:
        """Return the waiting LogicalClusters, or the content of one.

        Raises Forbidden, NotFound, and ServiceUnavailable if the type was deleted.
        """
        info = request.info
        if info.is_wildcard or (info.group, info.resource) == (wellknown.CORE_GROUP, self._kind.plural):
            return self._clusters(request, snapshot, own[0])
        return self._content(request, snapshot, own[0])

    # --- waiting LogicalClusters ---

    def _clusters(self, request: Request, snapshot: Snapshot, name: str) -> RequestScope:
        caller, info = request.user, request.info
        if not info.name:
            info = selected(info, self._lifecycle.selector(name))
        elif self._waiting(snapshot, request.cluster, name) is None:
            raise errors.not_found(self._kind, wellknown.SINGLETON)
        return RequestScope(
            authorize=lambda view, verb: Decision(self.opens(view, caller, (name,))),
            catalog=self._of_all_clusters if info.is_wildcard else self._catalog,
            restrictions=Restrictions(check=lambda new, old: self._check(new, old, name)),
            info=info,
        )

    def _waiting(self, view: View, cluster: str, name: str) -> Object | None:
        """Return the LogicalCluster if it waits for this initializer."""
        record = view.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", wellknown.SINGLETON))
        found = decode(record.value) if record is not None else None
        return found if found is not None and self._lifecycle.waits(found, name) else None

    def _check(self, new: Object | None, old: Object | None, name: str) -> None:
        if new is None or old is None or not self._lifecycle.waits(old, name):
            raise errors.not_found(self._kind, wellknown.SINGLETON)
        if found := self._lifecycle.refused(new, old, name):
            raise invalid(self._kind.group_kind, wellknown.SINGLETON, found)

    # --- their content ---

    def _content(self, request: Request, snapshot: Snapshot, name: str) -> RequestScope:
        cluster, caller, info = request.cluster, request.user, request.info
        found = self._waiting(snapshot, cluster, name)
        if found is None:
            raise forbidden(attributes_of(info, caller, cluster), f"the workspace does not wait for {name}")
        if self._rules(snapshot, name):
            acting = _with_group(caller, cluster, self._lifecycle.group_prefix + name)
        else:
            acting = _owner(found, cluster)
        if acting is None:
            raise forbidden(attributes_of(info, caller, cluster), "nobody to act as in the workspace")
        return RequestScope(
            authorize=self._content_authorizer(request, caller, name),
            keeps_watches=False,
            user=acting,
            impersonator=request.impersonator or caller,
        )

    def _content_authorizer(self, request: Request, caller: User, name: str) -> ScopeAuthorizer:
        """Check every condition for each request, and again when a write is planned again."""

        def authorize(view: View, verb: str) -> Decision:
            if self._waiting(view, request.cluster, name) is None or not self.opens(view, caller, (name,)):
                return Decision(False)
            attributes = with_verb(attributes_of(request.info, request.user, request.cluster), verb)
            rules = self._rules(view, name)
            if rules and not any(_allows(rule, attributes) for rule in rules):
                return Decision(False, reason=f"no rule of {name} allows it")
            return self._authorizer.authorize(view, attributes)

        return authorize

    def _rules(self, view: View, name: str) -> tuple[Rule, ...]:
        """The type's own rules, never those of what it extends. Raises ServiceUnavailable."""
        cluster, _, type = name.rpartition(":")
        found = self._find_type(view, cluster, type)
        if found is None:
            raise ServiceUnavailable(f'workspace type "{name}" is not available')
        spec = found.spec
        initializes = self._lifecycle is INITIALIZATION
        return rules_of_objects(spec.initializer_permissions if initializes else spec.terminator_permissions)


def _allows(rule: Rule, attributes: Attributes) -> bool:
    return rule.matches_kind(attributes) and (not rule.names or bool(attributes.path) or attributes.name in rule.names)


def _with_group(caller: User, cluster: str, group: str) -> User | None:
    """The caller in the foreign workspace, which it enters by this group alone; None if its scopes forbid that."""
    if effective_users(caller, cluster).in_scope:
        return replace(caller, groups=(*caller.groups, group))
    # A service account of another workspace is known by its global name.
    name = global_name_of(caller)
    if name is None or SCOPES in caller.extra:
        return None
    plain = tuple(each for each in caller.groups if each == AUTHENTICATED)
    return User(name, (*plain, group), caller.uid)


class _CreatedBy(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


def _owner(cluster: Object, name: str) -> User | None:
    """Return the creator of the workspace, scoped to it; None if the system created it."""
    created = spec_of(cluster).get("createdBy")
    if not created or not created.get("username"):
        return None
    found = msgspec.convert(created, _CreatedBy)
    extra = {**found.extra, SCOPES: (*found.extra.get(SCOPES, ()), f"cluster:{name}")}
    # Lifecycle groups belong to a view of another workspace. system:masters pass admission whatever their scopes, so
    # nothing may act as one through a view.
    groups = tuple(group for group in without_lifecycle(found.groups) if group != MASTERS)
    return User(found.username, groups, found.uid, extra)
