"""The other versions of a resource, and the conversion of an object between them.

`matchPolicy: Equivalent` acts on a request through any version of its resource, also through another group that serves
the same objects (events of events.k8s.io). A webhook or policy then sees the object in the version that its rule names,
and what it changed is converted back.
"""

from __future__ import annotations

from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.meta.objects import Object

#: Subresources whose objects are of the resource's own kind, which are converted with it.
_OF_RESOURCE = ("", "status", "finalize", "approval")


def equivalents(catalog: Catalog, kind: Kind) -> tuple[Kind, ...]:
    """Return the other served versions of a kind's resource in a catalogue, in order of discovery."""
    served = catalog.of_same_type(kind.type)
    if len(served) < 2:
        return ()
    own = kind.api_version
    return tuple(each for each in served if each.api_version != own)


def presented(kind: Kind, obj: Object, target: Kind, subresource: str = "") -> Object:
    """Return an object of a request for `kind` in the version of `target`, an equivalent; itself if that is `kind`.

    Raises Unconverted where a webhook or rules convert, and have not for this write yet.
    """
    return _converted(kind, obj, kind, target, subresource)


def restored(kind: Kind, obj: Object, target: Kind, subresource: str = "") -> Object:
    """Return an object that was `presented` in the version of `target`, and changed there, in that of the request.

    `kind` is that of the request in both directions: it knows the forms that a webhook or rules converted for this
    write. Raises Unconverted as `presented` does.
    """
    return _converted(kind, obj, target, kind, subresource)


def _converted(kind: Kind, obj: Object, source: Kind, target: Kind, subresource: str) -> Object:
    # A deletion shows objects in their stored version.
    if obj.get("apiVersion") == target.api_version or subresource not in _OF_RESOURCE:
        return obj
    if kind.convert is not None:
        return kind.convert(obj, target.api_version)
    # Of the built-in kinds, those that are stored in another form know the way from it and back.
    stored = source.to_stored(obj) if source.to_stored is not None else obj
    return target.from_stored(stored) if target.from_stored is not None else stored
