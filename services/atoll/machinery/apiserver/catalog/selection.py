"""Compiled label and field selectors of a list, a watch or a deletecollection.

Verb handlers match stored records with them. Only the selected fields are decoded: labels through a typed partial
decode, whole objects for a field beyond name and namespace.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from atoll.machinery.apiserver.call.options import ListOptions
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.fieldselectors import FieldSelector, parse_field_selector
from atoll.machinery.meta.objects import LARGE_BYTES, Object, decode, labels_of
from atoll.machinery.meta.partial import Partial
from atoll.machinery.meta.selectors import LabelSelector, parse_label_selector
from atoll.machinery.meta.status import BadRequest
from atoll.machinery.process.time_slicing import checkpoint, require_slices
from atoll.machinery.storage.contract import EVERYTHING, Interest


class _Metadata(msgspec.Struct, gc=False):
    # Fields in the order of stored JSON decode faster.
    labels: dict[str, str] = {}
    name: str = ""
    namespace: str = ""


_decoder = msgspec.json.Decoder(Partial[_Metadata])


class Selection:
    """A request's selectors. `canonical` identifies them (continue tokens, shared work)."""

    def __init__(self, kind: Kind, labels: LabelSelector | None, fields: FieldSelector | None) -> None:
        self._kind, self._labels, self._fields = kind, labels, fields
        self._reads_object = fields is not None and any(
            name not in {"metadata.name", "metadata.namespace"} for name in fields.names
        )
        self.canonical = "\x00".join(str(part) for part in (labels or "", fields or ""))

    @property
    def is_everything(self) -> bool:
        return self._labels is None and self._fields is None

    @property
    def reads_object(self) -> bool:
        """Whether records are decoded as a whole."""
        return self._reads_object

    @property
    def name(self) -> str:
        """The name that `metadata.name=` selects, or empty."""
        return self._fields.pinned_name() if self._fields is not None else ""

    @property
    def interest(self) -> Interest:
        """Return a condition on every change of a selected object: the selected name, else one of the labels."""
        if self.name:
            return Interest(name=self.name)
        if self._labels is None or self._kind.conversion is not None:
            # A conversion may return other labels than the stored ones.
            return EVERYTHING
        exact = self._labels.exact()
        return Interest(label=min(exact.items())) if exact else EVERYTHING

    def matches(self, value: bytes) -> bool:
        """Whether a stored record is selected."""
        if self._reads_object:
            if len(value) > LARGE_BYTES:
                require_slices()
                checkpoint()
            obj = decode(value)
            checkpoint()
            return self.matches_object(obj)
        metadata = _decoder.decode(value).metadata
        if self._labels is not None and not self._labels.matches(metadata.labels):
            return False
        return self._fields is None or self._fields.matches(
            {"metadata.name": metadata.name, "metadata.namespace": metadata.namespace}
        )

    def matches_object(self, obj: Object) -> bool:
        """Whether a decoded object (in its stored version) is selected."""
        if self._labels is not None and not self._labels.matches(labels_of(obj)):
            return False
        return self._fields is None or self._fields.matches(self._field_values(obj))

    def _field_values(self, obj: Object) -> dict[str, str]:
        kind = self._kind
        served = kind.from_stored(obj) if kind.from_stored is not None else obj
        metadata = served["metadata"]
        values = {"metadata.name": metadata["name"], "metadata.namespace": metadata.get("namespace", "")}
        assert self._fields is not None
        for name in self._fields.names:
            read: Callable[[Object], str] | None = kind.field_labels.get(name)
            if read is not None:
                values[name] = read(served)
        return values


def selection(kind: Kind, options: ListOptions, view_selector: LabelSelector | None = None) -> Selection:
    """Compile a request's selectors, and the selector `view_selector` of its virtual workspace.

    Raises BadRequest for bad syntax or an unknown field label.
    """
    labels = parse_label_selector(options.label_selector) if options.label_selector else None
    if view_selector is not None:
        labels = view_selector.and_(labels) if labels is not None else view_selector
    if not options.field_selector:
        return Selection(kind, labels, None)
    fields = parse_field_selector(options.field_selector)
    known = {"metadata.name", *kind.field_labels}
    if kind.namespaced:
        known.add("metadata.namespace")
    for name in fields.names:
        if name not in known:
            raise BadRequest(_unknown_field(kind, name))
    return Selection(kind, labels, fields)


def _unknown_field(kind: Kind, name: str) -> str:
    if kind.field_labels or not kind.builtin:
        return f"field label not supported: {name}"
    return f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'
