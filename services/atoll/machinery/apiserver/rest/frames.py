"""Watch events as bytes, encoded once for each change and form, and shared by all watchers.

`rest.watch` looks up the frame of a change for the transition that its selectors see. The cache is bounded and holds
frames of recent changes, so that a thousand watchers of one write cost one encoding.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count

import msgspec

from atoll.machinery.apiserver.call.negotiation import PROTOBUF, Form
from atoll.machinery.apiserver.catalog import tables
from atoll.machinery.apiserver.rest.present import as_object, in_version
from atoll.machinery.kinds import protobuf_encoder
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object, decode, encode_json
from atoll.machinery.meta.status import InternalError
from atoll.machinery.storage.contract import Change

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
MAX_CACHED_BYTES, MAX_FORMS = 16 << 20, 1024
#: Bound of joined frames and of the changes kept with them; past it all are dropped.
MAX_JOINED_BYTES = 8 << 20


class FrameForm(msgspec.Struct, frozen=True):
    """The encoding of a watch's events. Equal forms share frames."""

    api_version: str
    plural: str
    identity: str
    form: Form
    include: str = ""
    mark: str = ""


def line(type: str, body: bytes) -> bytes:
    """Return one event as a line."""
    return b'{"type":"%b","object":%b}\n' % (type.encode(), body)


def framed(form: Form, type: str, body: bytes) -> bytes:
    """Return one event of a JSON object in a form. Raises InternalError for one that protobuf cannot hold."""
    if form.media_type != PROTOBUF:
        return line(type, body)
    try:
        return protobuf_encoder.encode_event(type, decode(body))
    except protobuf_encoder.NotEncodable as error:
        raise InternalError(f"the object has no form in {PROTOBUF}: {error}") from error


def object_encoder(kind: Kind, form: FrameForm) -> Callable[[bytes], bytes]:
    """Return the encoder of stored records to an event's object as JSON. Tables have no column definitions."""
    shape = form.form
    if shape.transform == "Table":

        def as_table(value: bytes) -> bytes:
            obj = as_object(kind, value)
            return encode_json(_table(kind, obj, form))

        return as_table
    if shape.transform:
        return lambda value: encode_json(tables.partial(as_object(kind, value), shape.version))
    if kind.from_stored is None:
        return lambda value: value
    return lambda value: in_version(kind, value)


def _table(kind: Kind, obj: Object, form: FrameForm) -> Object:
    metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
    found = tables.table(kind, [obj], metadata, form.include, form.form.version)
    found["columnDefinitions"] = []
    return found


def with_columns(kind: Kind, frame: bytes) -> bytes:
    """Add the column definitions to the first event of a Table watch."""
    definitions = encode_json(tables.column_definitions(kind))
    return frame.replace(b'"columnDefinitions":[]', b'"columnDefinitions":' + definitions, 1)


def bookmark(kind: Kind, form: FrameForm, revision: int, *, initial_end: bool = False) -> bytes:
    """Return a BOOKMARK event of the watched type; `initial_end` marks the end of the initial events."""
    metadata: Object = {"creationTimestamp": None, "resourceVersion": str(revision)}
    if initial_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    shape = form.form
    if shape.transform == "Table":
        obj = tables.partial({"metadata": metadata}, shape.version)
        row = {"cells": [], "object": obj}
        body: Object = {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{shape.version}",
            "metadata": {"resourceVersion": str(revision)},
            "columnDefinitions": [],
            "rows": [row],
        }
    elif shape.transform:
        body = tables.partial({"metadata": metadata}, shape.version)
    else:
        body = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
    return framed(shape, BOOKMARK, encode_json(body))


class FrameCache:
    """Frames of recent changes; past the bound in bytes the oldest are dropped."""

    def __init__(self) -> None:
        self._bytes = 0
        self._frames: OrderedDict[tuple[int, str, int], bytes] = OrderedDict()
        self._forms: dict[FrameForm, int] = {}
        self._numbers = count()
        #: Frames of whole readings, by the identity of the reading, which is kept with them, and the form's number.
        self.joined: dict[tuple[int, int], tuple[Sequence[Change], bytes]] = {}
        self._joined_bytes = 0

    def number(self, form: FrameForm) -> int:
        """Return a number that equal forms share; a watch calls it once, to avoid comparing forms for each event."""
        if len(self._forms) >= MAX_FORMS:
            self._forms.clear()
        return self._forms.setdefault(form, next(self._numbers))

    def find(self, revision: int, type: str, number: int) -> bytes | None:
        """Return the frame of a change in a form, None if it is not cached."""
        return self._frames.get((revision, type, number))

    def add(self, revision: int, type: str, number: int, frame: bytes) -> bytes:
        """Cache the frame of a change in a form, and return it."""
        self._frames[revision, type, number] = frame
        self._bytes += len(frame)
        while self._bytes > MAX_CACHED_BYTES and len(self._frames) > 1:
            _, dropped = self._frames.popitem(last=False)
            self._bytes -= len(dropped)
        return frame

    def add_joined(self, changes: Sequence[Change], number: int, frames: bytes) -> None:
        """Cache the frames of one reading for watches without selectors; no other reading gets its identity."""
        if self._joined_bytes > MAX_JOINED_BYTES:
            self.joined.clear()
            self._joined_bytes = 0
        self.joined[id(changes), number] = changes, frames
        self._joined_bytes += len(frames) + sum(len(each.after) + len(each.before or b"") for each in changes)


class PrivateFrames(FrameCache):
    """An empty cache, for watches through a virtual workspace, where many changes may share a revision."""

    def find(self, revision: int, type: str, number: int) -> bytes | None:
        """Return None."""
        return None

    def add_joined(self, changes: Sequence[Change], number: int, frames: bytes) -> None:
        """Keep nothing."""

    def add(self, revision: int, type: str, number: int, frame: bytes) -> bytes:
        """Return the frame."""
        return frame
