"""Parts of documents: the encoded schemas and path items of one kind or one built-in component.

`publisher` joins parts. They are cached by content with a bound in bytes, so that one more definition in a workspace of
five hundred costs one part and a join; the few built-in components stay cached. Invariant: a part is immutable.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import msgspec

from atoll.machinery.apiserver.catalog.catalog import KindMark, kind_mark
from atoll.machinery.apiserver.openapi import routes, v3
from atoll.machinery.apiserver.openapi.forms import Form
from atoll.machinery.apiserver.openapi.routes import META, SCALE, TOKEN_REQUEST, OperationRoute
from atoll.machinery.kinds import native_schemas
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.kubernetes.tables import components as components_of_kubernetes
from atoll.machinery.meta.lru import LruCache
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.openapi import component_name, crd_components, crd_definitions
from atoll.machinery.schema.openapi_v2 import native_to_v2

#: Bound of the cache of kinds' parts, in bytes.
MAX_PARTS_BYTES = 32 * 1024 * 1024


class Part(msgspec.Struct, frozen=True):
    """Encoded schemas by name and path items by path; `needs` are built-in components that they refer to."""

    schemas: dict[str, bytes]
    paths: dict[str, bytes]
    needs: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, self.schemas.values())) + sum(map(len, self.paths.values()))


class Parts:
    """The cache of parts."""

    def __init__(self) -> None:
        self._kept: LruCache[tuple[str, KindMark], Part] = LruCache(MAX_PARTS_BYTES, lambda part: part.size)

    def get(self, kind: Kind, form: Form) -> Part | None:
        """Return the part of a kind; None if it is not cached."""
        return self._kept.get((form.name, kind_mark(kind)))

    def keep(self, kind: Kind, form: Form, part: Part) -> None:
        """Cache a part; the least recently used are dropped."""
        self._kept.put((form.name, kind_mark(kind)), part)


def make(kind: Kind, form: Form) -> Part:
    """Build the part of a kind. A schema that is too deep to walk is published as an object without properties."""
    if kind.builtin:
        return _native_part(kind, form)
    try:
        return _custom_part(kind, form, kind.schema.source if kind.schema is not None else {"type": "object"})
    except RecursionError:
        return _custom_part(kind, form, {"type": "object", "x-kubernetes-preserve-unknown-fields": True})


def _native_part(kind: Kind, form: Form) -> Part:
    listed = kind.schema_name + "List"
    list_name = listed if kind.schema is not None and listed in kind.schema.definitions else ""
    needs = [kind.schema_name, list_name, META + "Status", META + "APIResourceList"]
    needs += [META + each for each in ("DeleteOptions", "Patch") if "patch" in kind.verbs]
    needs += [META + "WatchEvent"] if "watch" in kind.verbs else []
    paths = _paths(form, list(routes.of_kind(kind, kind.schema_name, list_name)))
    return Part({}, paths, (*filter(None, needs), *_of_subresources(kind)))


def _custom_part(kind: Kind, form: Form, source: Object) -> Part:
    names = kind.group, kind.version, kind.kind, kind.list_kind_name
    made = (crd_components if form.is_v3 else crd_definitions)(*names, source, tuple(kind.field_labels))
    schemas = {name: form.schema(name, schema) for name, schema in made.items()}
    name, list_name = component_name(*names[:3]), component_name(*names[:2], names[3])
    needs = [META + each for each in ("ObjectMeta", "ListMeta", "Status", "DeleteOptions", "Patch")]
    return Part(schemas, _paths(form, list(routes.of_kind(kind, name, list_name))), (*needs, *_of_subresources(kind)))


def _of_subresources(kind: Kind) -> list[str]:
    components = {"scale": SCALE, "token": TOKEN_REQUEST}
    return [components[sub.name] for sub in kind.subresources if sub.name in components]


def _paths(form: Form, found: list[OperationRoute]) -> dict[str, bytes]:
    return {path: form.item(path, item) for path, item in form.items(found).items()}


def of_roots(found: Iterable[OperationRoute], form: Form) -> Part:
    """Return the part of operations without a kind."""
    listed = list(found)
    return Part({}, _paths(form, listed), tuple(route.answer for route in listed if route.answer))


# --- built-in components ---------------------------------------------------------------------------------

_made: dict[tuple[str, str], bytes] = {}


def components(needs: Iterable[str], form: Form) -> dict[str, bytes]:
    """Return built-in components and everything they refer to, encoded, by name."""
    found: dict[str, bytes] = {}
    for need in needs:
        for name in _closure(need):
            if name not in found:
                found[name] = _component(name, form)
    return found


@cache
def _closure(name: str) -> frozenset[str]:
    found, todo = {name}, [name]
    while todo:
        for each in v3.references(_source(todo.pop())):
            if each not in found:
                found.add(each)
                todo.append(each)
    return frozenset(found)


def _source(name: str) -> Object:
    """Return a component of a kind that every cluster serves, or else of Kubernetes' kinds, which are read for that."""
    found = native_schemas.definitions().get(name)
    return found if found is not None else components_of_kubernetes()[name]


def _component(name: str, form: Form) -> bytes:
    known = _made.get((form.name, name))
    if known is None:
        source = _source(name)
        known = _made[form.name, name] = form.schema(name, source if form.is_v3 else native_to_v2(source))
    return known
