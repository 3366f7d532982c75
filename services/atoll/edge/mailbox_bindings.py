"""Bindings of mailboxes to the exports whose resources every mailbox is to have.

The mailbox controller calls `ensure`. What placed kinds need beside it comes as copies of the workspaces' own bindings.
Invariants: only a binding with the mark of this controller is deleted, and only once nothing of its kinds is left in
the mailbox. Where no export is configured, a mailbox is looked at once by all processes that work in turn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

import structlog

from atoll.edge.kinds import BINDINGS
from atoll.edge.store import EdgeStore
from atoll.machinery.client.client import Client
from atoll.machinery.client.discovery import served_kinds
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.categories import ExportName
from atoll.machinery.edge.names import GROUP, ObjectRef
from atoll.machinery.edge.system_objects import is_system_object
from atoll.machinery.edge.what import export_of
from atoll.machinery.meta.objects import Object, labels_of, status_of
from atoll.machinery.meta.status import Conflict, NotFound

log = structlog.get_logger()

#: Label of a binding that this controller made.
MARK, MARKED = f"{GROUP}/configured", "yes"
PAGE = 100


class MailboxBindings:
    """`client` has all rights in mailboxes, and may bind the exports. `store` knows in which there is nothing to do."""

    def __init__(self, client: Client, exports: Collection[ExportName], store: EdgeStore) -> None:
        self._client, self.exports, self._store = client, sorted(exports), store
        #: Mailboxes whose bindings are as they should be.
        self._done: set[str] = set()

    def changed(self, mailbox: str) -> None:
        """Bindings of a mailbox may have changed, or it is gone."""
        self._done.discard(mailbox)

    async def ensure(self, mailbox: str) -> bool:
        """Create what is missing, delete what is not wanted; return whether all is done.

        Raises ApiError, ClientError, TimeoutError.
        """
        if mailbox in self._done:
            return True
        # What changes meanwhile takes the mark off again.
        self._done.add(mailbox)
        is_done = False
        try:
            is_done = await self._is_done(mailbox)
        finally:
            if not is_done:
                self._done.discard(mailbox)
        return is_done

    async def _is_done(self, mailbox: str) -> bool:
        is_bare = self._store.is_bare(mailbox)
        if is_bare and not self.exports:
            return True
        if is_bare:
            await self._store.put_bare(mailbox, is_bare=False)
        is_done = await self._ensure(mailbox)
        if is_done and not self.exports:
            await self._store.put_bare(mailbox, is_bare=True)
        return is_done

    async def _ensure(self, mailbox: str) -> bool:
        client = self._client.cluster(mailbox)
        create, delete = planned(self.exports, (await client.list(BINDINGS))["items"])
        for binding in create:
            await client.create(BINDINGS, binding)
            log.info("mailbox bound", mailbox=mailbox, binding=binding["metadata"]["name"])
        return all([await _removed(client, each) for each in delete])


def planned(exports: Iterable[ExportName], found: Iterable[Object]) -> tuple[list[Object], list[Object]]:
    """Return the bindings to create and those to delete. An export that somebody bound is bound."""
    wanted = {each: _binding(each) for each in exports}
    kept = [each for each in found if "deletionTimestamp" not in each["metadata"]]
    bound = {export_of(each) for each in kept}
    names = {each["metadata"]["name"] for each in wanted.values()}
    unwanted = [each for each in kept if labels_of(each).get(MARK) == MARKED and each["metadata"]["name"] not in names]
    taken = {each["metadata"]["name"] for each in found}
    missing = [each for name, each in wanted.items() if name not in bound and each["metadata"]["name"] not in taken]
    return missing, unwanted


def _binding(export: ExportName) -> Object:
    path, name = export
    digest = hashlib.sha256(f"{path}:{name}".encode()).hexdigest()[:8]
    metadata = {"name": f"mailbox-{digest}", "labels": {MARK: MARKED}}
    spec = {"reference": {"export": {"path": path, "name": name}}}
    return {
        "apiVersion": f"{BINDINGS.group}/{BINDINGS.version}",
        "kind": "APIBinding",
        "metadata": metadata,
        "spec": spec,
    }


async def _removed(client: Client, binding: Object) -> bool:
    """Delete a binding unless the mailbox has objects of its kinds, which would go with it; return whether it goes."""
    kinds, metadata = await served_kinds(client), binding["metadata"]
    for row in status_of(binding).get("boundResources") or ():
        kind = kinds.get((str(row.get("group") or ""), row["resource"]))
        if kind is not None and "list" in kind.verbs and await _has_objects(client, kind.resource):
            return False
    body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": metadata["uid"]}}
    try:
        await client.request("DELETE", BINDINGS.path(name=metadata["name"]), body=body)
    except (NotFound, Conflict):
        return False
    log.info("mailbox unbound", binding=metadata["name"])
    return True


async def _has_objects(client: Client, resource: Resource) -> bool:
    """Whether there is any object of a kind beside those that the system makes in every workspace."""
    async for page in client.pages(resource, limit=str(PAGE)):
        for each in page["items"]:
            metadata = each["metadata"]
            ref = ObjectRef(resource.group, resource.plural, metadata.get("namespace", ""), metadata["name"])
            if not is_system_object(ref, each):
                return True
    return False
