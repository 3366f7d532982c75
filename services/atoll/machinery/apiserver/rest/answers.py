"""Replies to writes, as values that are encoded once the write is durable.

`rest.write`, `rest.delete` and `rest.scale` put one into each Plan; `writing.commit` calls it with the revisions that
the store assigned, none for a dry run.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atoll.machinery.apiserver.call.call import Call, Reply
from atoll.machinery.apiserver.call.negotiation import Form
from atoll.machinery.apiserver.conversion import bare
from atoll.machinery.apiserver.rest import present
from atoll.machinery.meta.objects import Object, encode, splice
from atoll.machinery.process.time_slicing import slice_pause
from atoll.machinery.storage.contract import Record


class EncodedObject(msgspec.Struct, frozen=True):
    """An object as it will be stored, and its revision's offset. `served`: the client's version, made by a webhook."""

    value: bytes
    hole: int
    served: EncodedObject | None = None

    @staticmethod
    def of(stored_form: Object, served: Object | None) -> EncodedObject:
        """Encode an object in its stored version, and in the client's where that is not derived from the former."""
        pause = slice_pause()
        shown = EncodedObject(*encode(served, pause)) if served is not None else None
        return EncodedObject(*encode(stored_form, pause), shown)


class ObjectAnswer(msgspec.Struct, frozen=True):
    """The written object. `revision`: the one to show where nothing is written; 0: the one that the write got."""

    call: Call
    encoded: EncodedObject
    status: int = 200
    revision: int = 0

    def reply(self, revisions: Sequence[int]) -> Reply:
        """Return the object at its revision. An object that was never stored has none."""
        call = self.call
        if self.encoded.served is not None:
            call = msgspec.structs.replace(call, kind=bare(call.kind))
        form = self.encoded.served or self.encoded
        revision = self.revision or (revisions[0] if revisions else 0)
        value = splice(form.value, form.hole, revision) if revision else _without_revision(form.value, form.hole)
        return present.single(call, value, self.status)


class RecordAnswer(msgspec.Struct, frozen=True):
    """The stored object: unchanged by the write, or just deleted."""

    call: Call
    record: Record
    status: int = 200

    def reply(self, revisions: Sequence[int]) -> Reply:
        return present.single(self.call, self.record.value, self.status)


class DeletionStatusAnswer(msgspec.Struct, frozen=True):
    """The Status of a finished or begun deletion. A Status is never transformed; the media type stays."""

    call: Call
    obj: Object

    def reply(self, revisions: Sequence[int]) -> Reply:
        metadata, kind = self.obj["metadata"], self.call.kind
        details = {"name": metadata["name"], "group": kind.group, "kind": kind.plural, "uid": metadata["uid"]}
        if not kind.group:
            del details["group"]
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return present.document(Form(self.call.form.media_type), status)


def _without_revision(value: bytes, hole: int) -> bytes:
    """Return the object of a dry-run create, which has no resourceVersion."""
    lead = b'"resourceVersion":"'
    start, end = hole - len(lead), hole + 17
    if value[start - 1 : start] == b",":
        return value[: start - 1] + value[end:]
    return value[:start] + value[end:].removeprefix(b",")
