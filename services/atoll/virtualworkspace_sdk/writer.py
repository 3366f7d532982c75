"""Carries out writes of rows: as changes of source objects, by the caller, through the export's view.

`view_writes` plans a write as that of any object and passes it here. The author's function says which changes it needs;
each is sent to the workspace's shard with the view's credential, for the caller: the shard authorizes both, so that a
change is made only if the caller may make it in the workspace and the provider through the export's view. Then the row
is computed from what arrives back. Invariants: nothing is changed outside the row's own workspace; a row is never
written but from its source objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from urllib.parse import quote

import structlog

from atoll.machinery.apiserver.authorization.groups import RESERVED_EXTRA, RESERVED_PREFIXES, is_privileged
from atoll.machinery.apiserver.call import errors
from atoll.machinery.client.client import Client
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.names import ResourceType
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import Details, Forbidden, InternalError, ServiceUnavailable, Timeout
from atoll.machinery.meta.user import AUTHENTICATED, User
from atoll.machinery.storage.contract import Record, StoreError
from atoll.machinery.wire.exchange import Headers
from atoll.machinery.wire.pending_response import ClientError
from atoll.virtualworkspace_sdk.projection import Projection
from atoll.virtualworkspace_sdk.reviews import at_home
from atoll.virtualworkspace_sdk.rows import Rows
from atoll.virtualworkspace_sdk.view import Change, Key, View, Write, WriteRefused

log = structlog.get_logger()

#: Time limit of all changes of a write together with the row that follows from them.
WRITE_S = 30.0
STORE_ATTEMPTS = 5
Seen = Callable[[Object | None], bool]


def impersonation(user: User, cluster: str) -> Headers:
    """Return the headers that name a caller to the shard, without groups that count only where they were given.

    Raises Forbidden for a service account of another workspace, and for a name that headers cannot carry.
    """
    caller = at_home(user, cluster)
    if caller.name.startswith(RESERVED_PREFIXES):
        raise Forbidden("forbidden: this user cannot write through a view of the workspace")
    found = [("Impersonate-User", caller.name)]
    groups = [group for group in caller.groups if group == AUTHENTICATED or not is_privileged(group)]
    found += [("Impersonate-Group", group) for group in groups]
    if caller.uid:
        found.append(("Impersonate-Uid", caller.uid))
    for key, values in caller.extra.items():
        if RESERVED_EXTRA not in key:
            found += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    if not all(value and value == value.strip() and value.isprintable() for _, value in found):
        # The shard would strip its spaces, and read another name.
        raise Forbidden("forbidden: this user cannot write through a view of the workspace")
    return tuple(found)


class Writer:
    """Writes the rows of the views of one process."""

    def __init__(self, views: Sequence[tuple[View, Rows]], projection: Projection) -> None:
        self._views = {rows.kind.type: (number, view, rows) for number, (view, rows) in enumerate(views)}
        self._projection = projection

    def rows(self, type: ResourceType) -> Rows:
        """Return the rows of a kind."""
        return self._views[type][2]

    async def carry_out(self, kind: Kind, user: User, write: Write, *, dry_run: bool) -> Record | None:
        """Make the changes of a write; return the row that follows, None if there is none or nothing was to be done.

        Raises the shard's errors, Forbidden, ServiceUnavailable, and Timeout if the outcome is not known.
        """
        client = self._projection.home(write.key.cluster)
        if client is None:
            raise ServiceUnavailable("the workspace is not known yet", Details(retry_after_s=1))
        client = client.impersonating(impersonation(user, write.key.cluster), write.key.cluster)
        number, _, rows = self._views[kind.type]
        try:
            async with asyncio.timeout(WRITE_S):
                made = [(each, await _make(client, each, dry_run)) for each in self._changes(kind, write)]
                if dry_run:
                    return None
                for change, seen in made:
                    await self._projection.arrived(change.source, change.key, seen)
                await self._compute(number, write.key)
        except TimeoutError as error:
            raise Timeout("Timeout: request did not complete within requested timeout - outcome unknown") from error
        except ClientError as error:
            raise ServiceUnavailable(f"the workspace's shard cannot be reached: {error}") from error
        return rows.get(write.key)

    def _changes(self, kind: Kind, write: Write) -> list[Change]:
        """Return the author's changes. Raises Forbidden if the author refuses, InternalError for other workspaces."""
        _, view, _ = self._views[kind.type]
        assert view.write is not None, "the verbs of a read-only view are refused"
        try:
            changes = list(view.write(write, self._projection.look(view, write.key.cluster)))
        except WriteRefused as error:
            raise errors.forbidden(kind, write.key.name, str(error)) from error
        changes = [change for change in changes if change.new is not None or change.old is not None]
        for change in changes:
            if change.key.cluster != write.key.cluster or change.source not in view.sources:
                log.error("a view's write leaves its workspace or sources", view=view.name, key=str(change.key))
                raise InternalError("the view's write is not within its workspace and its sources")
        return changes

    async def _compute(self, number: int, key: Key) -> None:
        for attempt in range(STORE_ATTEMPTS):
            try:
                await self._projection.compute(number, key)
            except StoreError:
                # A worker wrote the same row.
                if attempt + 1 == STORE_ATTEMPTS:
                    raise
            else:
                return


async def _make(client: Client, change: Change, dry_run: bool) -> Seen:
    """Make one change; return the check whether its state has arrived. Raises ApiError, ClientError, TimeoutError."""
    resource, key, query = change.source.resource, change.key, {"dryRun": "All"} if dry_run else {}
    if change.old is None:
        body = _body(change, {"name": key.name})
        return _is_since(await client.request("POST", resource.path(key.namespace), query, body))
    path, old = resource.path(key.namespace, key.name, change.subresource), change.old["metadata"]
    if change.new is not None:
        body = _body(change, {**old, **(change.new.get("metadata") or {}), "resourceVersion": old["resourceVersion"]})
        return _is_since(await client.request("PUT", path, query, body))
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": old["uid"]}}
    options["preconditions"]["resourceVersion"] = old["resourceVersion"]
    if dry_run:
        # Options in the body replace those of the query.
        options["dryRun"] = ["All"]
    answer = await client.request("DELETE", path, query, options)
    return _is_since(answer) if answer.get("kind") != "Status" else _is_not(old["uid"])


def _body(change: Change, metadata: Object) -> Object:
    assert change.new is not None
    source, key, own = change.source, change.key, change.new.get("metadata") or {}
    version = f"{source.group}/{source.version}" if source.group else source.version
    metadata = {**own, **metadata, **({"namespace": key.namespace} if key.namespace else {}), "name": key.name}
    return {**change.new, "apiVersion": version, "metadata": metadata}


def _is_since(written: Object) -> Seen:
    # A dry run has no revision, and nobody waits for its object.
    revision, uid = int(written["metadata"].get("resourceVersion") or 0), written["metadata"].get("uid")

    def seen(obj: Object | None) -> bool:
        if obj is None:
            return False
        return obj["metadata"]["uid"] != uid or int(obj["metadata"]["resourceVersion"]) >= revision

    return seen


def _is_not(uid: str) -> Seen:
    return lambda obj: obj is None or obj["metadata"]["uid"] != uid


def written(kind: Kind, key: Key, record: Record | None) -> Record:
    """Return the row that a write left. Raises InternalError if the author's functions made none."""
    if record is None:
        log.error("a write left no row", key=str(key), kind=kind.group_kind)
        raise InternalError("the view shows nothing of what was written")
    return record
