"""Deletion of collections: batch after batch, while the reply lists what is deleted.

`resources` passes each deletecollection here. The reply is a list of the objects as they were. Invariants: the objects
of one slice, and what is held of the reply, are in memory; an error before HELD_BYTES of objects are deleted is a
Status, a later one cuts the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from msgspec.structs import replace

from atoll.machinery.apiserver.call.call import Call
from atoll.machinery.apiserver.call.negotiation import PLAIN
from atoll.machinery.apiserver.call.options import DeleteOptions, WriteOptions
from atoll.machinery.apiserver.conversion import bare
from atoll.machinery.apiserver.request import Request
from atoll.machinery.apiserver.rest import list as listing
from atoll.machinery.apiserver.rest import list_items
from atoll.machinery.apiserver.rest.delete import plan_delete, read_options
from atoll.machinery.apiserver.rest.deletecollection import CollectionSelection, SelectedObject
from atoll.machinery.apiserver.serving.list_replies import reply_held
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.meta.status import NotFound


async def delete_collection(core: WriteService, request: Request, call: Call) -> None:
    """Delete the selected objects and reply with them. Raises ApiError."""
    options, convert = read_options(call), None
    if call.kind.conversion is not None:
        convert = partial(core.conversions.served, call.kind)
        call = replace(call, kind=bare(call.kind))
    encode = list_items.encoder(call)
    selected = await CollectionSelection.open(call, core.store, convert)
    await reply_held(request, call, listing.head(call), _deleted(core, request, call, selected, options, encode))


async def _deleted(
    core: WriteService,
    request: Request,
    call: Call,
    selected: CollectionSelection,
    options: DeleteOptions,
    encode: list_items.Encoder,
) -> AsyncIterator[bytes]:
    """Delete batch by batch; yield the list after its head."""
    separator = b""
    async for batch in selected.batches():
        gone = await asyncio.gather(*(_delete(core, request, call, each, options) for each in batch))
        if values := [each.value for each, is_gone in zip(batch, gone, strict=True) if is_gone]:
            yield encode(values, separator)
            separator = b","
    yield listing.foot(call, selected.metadata())


async def _delete(
    core: WriteService, request: Request, call: Call, selected: SelectedObject, options: DeleteOptions
) -> bool:
    """Delete one object of a collection; False if it was gone already."""
    name = selected.name
    info = replace(call.info, verb="delete", namespace=selected.namespace, name=name)
    one = replace(call, info=info, form=PLAIN)
    try:
        await core.commit(
            one,
            lambda call, view: plan_delete(core.context(call, view, WriteOptions()), name, options),
            partial(request.authorize_again, one),
        )
    except NotFound:
        return False
    return True
