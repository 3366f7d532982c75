"""DownsyncItems: an object that goes down, wrapped, so that one list and one watch carry objects of all kinds.

    {apiVersion, kind: DownsyncItem, metadata: {name: <resource>.<group>:<namespace>:<name>, ...}, object, resource}

`downsync_rows` and `downsync_cursor` make them of stored bytes, which are the object as the edge shall have it.
Invariant: the name of an item holds its object's, and items are in the order of their resources, then of the store.
"""

from __future__ import annotations

from functools import cache

import msgspec
import yaml
from msgspec.structs import replace

from atoll.machinery.apiserver.rest.present import in_version
from atoll.machinery.edge.names import API_VERSION, ObjectRef
from atoll.machinery.kinds.custom import kinds_of_crd
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta import partial
from atoll.machinery.meta.names import LOCAL
from atoll.machinery.meta.objects import encode_json
from atoll.machinery.meta.wellknown import CLUSTER
from atoll.machinery.process.resources import schema_path
from atoll.virtualworkspaces.edge.carried import Carried, Mailbox, type_name
from atoll.virtualworkspaces.framework import view_kind

RESOURCE = "downsyncitems"


class _Metadata(partial.ObjectIdentity, frozen=True, gc=False):
    creation_timestamp: str | None = msgspec.field(default=None, name="creationTimestamp")


_identity = msgspec.json.Decoder(partial.Partial[_Metadata])


@cache
def item_kind() -> Kind:
    """Return the kind of items."""
    with schema_path("edge", "downsyncitems.yaml").open("rb") as file:
        definition = yaml.load(file, yaml.CSafeLoader)
    (kind,) = kinds_of_crd(definition, LOCAL)
    return replace(view_kind(kind), name_rule="path-segment")


def item_name(ref: ObjectRef) -> str:
    """Return the name of an object's item."""
    return f"{type_name(ref.group, ref.resource)}:{ref.namespace}:{ref.name}"


def ref_of_name(name: str) -> ObjectRef | None:
    """Return the object of an item by its name; None for a name that no item has."""
    resource, _, rest = name.partition(":")
    plural, _, group = resource.partition(".")
    namespace, colon, name = rest.partition(":")
    return ObjectRef(group, plural, namespace, name) if plural and colon and name else None


def item(mailbox: Mailbox, carried: Carried, ref: ObjectRef, value: bytes, revision: int) -> bytes:
    """Return the item of a stored object at a revision, in the version in which it is carried.

    Where only a webhook or rules convert to that, the object is in its stored version.
    """
    kind = mailbox.kind(*ref.kind, carried.set.versions.get(ref.kind, ""))
    if kind is not None and kind.conversion is None:
        value = in_version(kind, value)
    return _item(mailbox.cluster, ref, value, revision)


def metadata_item(mailbox: Mailbox, ref: ObjectRef, value: bytes) -> bytes:
    """Return the item of an object as selectors see it, without the object."""
    return _item(mailbox.cluster, ref, value, 0, b"{}")


def _item(cluster: str, ref: ObjectRef, value: bytes, revision: int, instead: bytes = b"") -> bytes:
    found = _identity.decode(value).metadata
    metadata = {
        "annotations": {CLUSTER: cluster},
        "creationTimestamp": found.creation_timestamp,
        "name": item_name(ref),
        "resourceVersion": str(revision),
        "uid": found.uid,
    }
    head = b'{"apiVersion":"%b","kind":"DownsyncItem","metadata":%b,"object":' % (
        API_VERSION.encode(),
        encode_json(metadata),
    )
    return b'%b%b,"resource":%b}' % (head, instead or value, encode_json(ref.resource))
