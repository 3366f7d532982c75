"""API errors about objects, and the only mapping of the store's six errors to them."""

from __future__ import annotations

from collections.abc import Iterable

from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.kubernetes.usage.charge import Amount
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import (
    AlreadyExists,
    ApiError,
    Cause,
    Conflict,
    Details,
    Expired,
    Forbidden,
    InsufficientStorage,
    InternalError,
    MethodNotAllowed,
    NotFound,
    ServiceUnavailable,
    Timeout,
)
from atoll.machinery.meta.wellknown import FENCED_CODE, TENANCY_GROUP
from atoll.machinery.storage import contract, quota_limits
from atoll.machinery.storage.fencing import FencingToken
from atoll.machinery.storage.limits import WithinLimits

_CONFLICT = (
    'Operation cannot be fulfilled on {} "{}": the object has been modified; please apply your changes to the '
    "latest version and try again"
)


def details(kind: Kind, name: str) -> Details:
    """Return the details of an error about one object."""
    return Details(name, kind.group, kind.plural)


def not_served() -> NotFound:
    """404 for an unknown path or resource."""
    return NotFound("the server could not find the requested resource")


def needs_nodes(kind: Kind, subresource: str) -> NotFound:
    """404 for a subresource of a kind that only a server with nodes has."""
    return NotFound(
        f"the server could not find the requested resource: there are no nodes, so {kind.plural}/{subresource} is not"
        " served"
    )


def method_not_allowed() -> MethodNotAllowed:
    return MethodNotAllowed("the server does not allow this method on the requested resource")


def unavailable(group: str, resource: str) -> ServiceUnavailable:
    """503 for a bound resource whose bound CRD is missing."""
    return ServiceUnavailable(f"{resource}.{group or 'core'} is currently unavailable")


def not_found(kind: Kind, name: str) -> NotFound:
    return NotFound(f'{kind.group_resource} "{name}" not found', details(kind, name))


def already_exists(kind: Kind, name: str, stored: Object | None = None) -> AlreadyExists:
    being_deleted = stored is not None and stored["metadata"].get("deletionTimestamp")
    prefix = "object is being deleted: " if being_deleted else ""
    return AlreadyExists(f'{prefix}{kind.group_resource} "{name}" already exists', details(kind, name))


def modified(kind: Kind, name: str) -> Conflict:
    """409 for a stale resourceVersion."""
    return Conflict(_CONFLICT.format(kind.group_resource, name), details(kind, name))


def conflict(kind: Kind, name: str, text: str) -> Conflict:
    """409 for a failed precondition; `text` follows the name of the object."""
    message = f'Operation cannot be fulfilled on {kind.group_resource} "{name}": {text}'
    return Conflict(message, details(kind, name))


def forbidden(kind: Kind, name: str, text: str) -> Forbidden:
    """403 by admission: `<GR> "<name>" is forbidden: <text>`."""
    return Forbidden(f'{kind.group_resource} "{name}" is forbidden: {text}', details(kind, name))


def definition_terminating(kind: Kind, name: str) -> Forbidden:
    """403 for a creation while the CustomResourceDefinition, or the APIBinding, is being deleted."""
    return forbidden(kind, name, "create not allowed while custom resource definition is terminating")


def unknown_workspace(path: str) -> NotFound:
    """404 for a workspace path that leads nowhere."""
    group, plural = TENANCY_GROUP, "workspaces"
    return NotFound(f'{plural}.{group} "{path}" not found', Details(path, group, plural))


def mount_loop() -> ApiError:
    """508 for mounts of workspaces that lead to each other."""
    return ApiError("the mounted workspaces lead to each other, or are too many in a row", code=508, reason="")


def namespace_terminating(kind: Kind, name: str, namespace: str) -> Forbidden:
    text = f"unable to create new content in namespace {namespace} because it is being terminated"
    cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
    message = f'{kind.group_resource} "{name}" is forbidden: {text}'
    return Forbidden(message, Details(name, kind.group, kind.plural, causes=(cause,)))


def too_large_revision(requested: int, current: int) -> Timeout:
    message = f"Too large resource version: {requested}, current: {current}"
    cause = Cause("ResourceVersionTooLarge", "Too large resource version")
    return Timeout(f"Timeout: {message}", Details(causes=(cause,), retry_after_s=1))


def list_too_old() -> Expired:
    return Expired("The resourceVersion for the provided list is too old.")


def watch_too_old(error: contract.RevisionCompacted) -> Expired:
    return Expired(f"too old resource version: {error.revision} ({error.oldest})")


class OverLimit(Forbidden):
    """Only room makes such a write possible; nothing announces it."""


def over_limit(guard: WithinLimits) -> OverLimit:
    """403 for a create that a ResourceQuota, or the limit of all objects of the cluster, does not allow."""
    key, first = guard.key, guard.exceeded[0]
    if guard.missing:
        unsaid = "; ".join(f"{name} for: {','.join(containers)}" for name, containers in guard.missing)
        text = f"failed quota: {first.quota}: must specify {unsaid}"
    elif first.quota:
        requested = _amounts(zip((limit.resource for limit in guard.exceeded), guard.requested, strict=True))
        used = _amounts((limit.resource, limit.used) for limit in guard.exceeded)
        hard = _amounts((limit.resource, limit.hard) for limit in guard.exceeded)
        text = f"exceeded quota: {first.quota}, requested: {requested}, used: {used}, limited: {hard}"
    elif first.resource:
        text = f"at most {first.hard} quotas may limit {first.resource} in one namespace or cluster"
    else:
        text = (
            f'logical cluster "{key.cluster}" has reached its total object count limit '
            f"({first.used}/{first.hard} objects); delete objects to free up capacity"
        )
    message = f'{key.type.group_resource} "{key.name}" is forbidden: {text}'
    return OverLimit(message, Details(key.name, key.type.group, key.type.resource))


def _amounts(found: Iterable[tuple[str, Amount]]) -> str:
    return ",".join(f"{name}={quota_limits.text(name, amount)}" for name, amount in sorted(found))


def overtaken() -> ServiceUnavailable:
    """503 for a write that others overtook each time it was planned."""
    text = "the workspace changed while the request was served, please try again"
    return ServiceUnavailable(text, Details(retry_after_s=1))


def fenced() -> ApiError:
    """The refusal of a write with a fencing token after one with a newer token."""
    return ApiError(
        "another process of this account has written with a newer fencing token", code=FENCED_CODE, reason=""
    )


def from_store(error: contract.StoreError, call: Call, name: str) -> ApiError:
    """Return the API error for a write that the store rejected."""
    match error:
        case contract.ObjectExists():
            return already_exists(call.kind, name)
        case contract.ObjectMissing():
            return not_found(call.kind, name)
        case contract.RevisionConflict():
            return modified(call.kind, name)
        case contract.GuardFailed(guard=contract.NamespaceActive(namespace=namespace)):
            return namespace_terminating(call.kind, name, namespace)
        case contract.GuardFailed(guard=WithinLimits() as guard):
            return over_limit(guard)
        case contract.GuardFailed(guard=FencingToken()):
            return fenced()
        case contract.GuardFailed():
            return overtaken()
        case contract.RevisionCompacted():
            return list_too_old()
        case contract.StoreFull():
            return InsufficientStorage(
                "the shard's storage is full: only deletions and renewals of leases are accepted"
            )
    return InternalError(f"Internal error occurred: {error}")
