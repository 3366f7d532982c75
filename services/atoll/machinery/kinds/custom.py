"""Kinds that tenants define: the served versions of a CustomResourceDefinition or an APIResourceSchema as values.

The catalogue of a cluster asks for the kinds of each definition it finds, and handlers then see no difference to
built-in kinds. Values are kept by content, so that thousands of clusters with the same definition share them, and
never change.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from atoll.machinery.kinds.checks import mapping, objects, strings, text
from atoll.machinery.kinds.kind import Column, Kind, Scale, Subresource
from atoll.machinery.meta.jsonpath import first
from atoll.machinery.meta.names import LOCAL
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.schema import StructuralSchema, schema_for
from atoll.machinery.schema.openapi import component_name

#: Definitions whose kinds are kept.
CACHE_SIZE = 1024

_AGE = Column(
    "Age",
    "date",
    description="When the object was created, by the clock of the server, in UTC.",
    json_path=".metadata.creationTimestamp",
)
_ANYTHING: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?\Z")


def kinds_of_crd(crd: Object, identity: str = LOCAL) -> list[Kind]:
    """A kind for each served version of an established CRD, the most stable version first; else none.

    `identity` is LOCAL, or CORE for the definitions that the system brings. Names are those that were accepted.
    """
    conditions = objects(crd, "status", "conditions")
    if not any(each.get("type") == "Established" and each.get("status") == "True" for _, each in conditions):
        return []
    spec = mapping(crd, "spec")
    names = {**mapping(spec, "names"), **mapping(crd, "status", "acceptedNames")}
    # Objects written under an earlier spec are pruned and defaulted on the way out; a new spec raises the generation,
    # and so does the beginning of a deletion, which changes nothing of what is served.
    metadata = mapping(crd, "metadata")
    revised = metadata.get("generation", 1) - bool(metadata.get("deletionTimestamp")) != 1
    return _kinds({**spec, "names": names}, identity, ("schema", "openAPIV3Schema"), revised)


def kinds_of_resource_schema(schema: Object, identity: str) -> list[Kind]:
    """A kind for each served version of an APIResourceSchema, the most stable version first.

    `identity` is the identity hash of the export that offers it.
    """
    return _kinds(mapping(schema, "spec"), identity, ("schema",))


def version_priority(version: str) -> tuple[int, int, int, str]:
    """A key that sorts version names as Kubernetes does, preferred first: v2, v1, v1beta1, v1alpha1, then the rest."""
    match = _VERSION.match(version)
    if match is None:
        return (3, 0, 0, version)
    stability = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stability, -int(match[1]), -int(match[3] or 0), version)


_cache: OrderedDict[bytes, list[Kind]] = OrderedDict()
_cache_lock = Lock()


def _kinds(spec: Object, identity: str, schema_path: tuple[str, ...], revised: bool = False) -> list[Kind]:
    mark = hashlib.sha256(encode_json([identity, schema_path, spec, revised])).digest()
    with _cache_lock:
        known = _cache.get(mark)
        if known is not None:
            _cache.move_to_end(mark)
            return list(known)
    definition = _Definition(spec, identity, schema_path, revised)
    made = [definition.kind(version) for version in definition.served()]
    with _cache_lock:
        _cache[mark] = made
        if len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return list(made)


class _Definition:
    """A definition while its kinds are made; both forms differ only in where a version holds its schema."""

    def __init__(self, spec: Object, identity: str, schema_path: tuple[str, ...], revised: bool) -> None:
        self.names = mapping(spec, "names")
        self.group = text(spec, "group")
        self.namespaced = spec.get("scope") == "Namespaced"
        self.name_rule = "path-segment" if spec.get("nameValidation") == "PathSegmentName" else "subdomain"
        self.identity = identity
        self.versions = [version for _, version in objects(spec, "versions")]
        self._schema_path = schema_path
        self._revised = revised
        self._stored = next((each for each in self.versions if each.get("storage") is True), {})

    def served(self) -> list[Object]:
        """Versions that are served; an APIResourceSchema's are unless they say no."""
        served = [each for each in self.versions if each.get("served", True) is True]
        return sorted(served, key=lambda each: version_priority(text(each, "name")))

    def kind(self, version: Object) -> Kind:
        """The kind of one version."""
        name, kind = text(version, "name"), text(self.names, "kind")
        storage = text(self._stored, "name") or name
        schema = self._schema(version)
        status = "status" in mapping(version, "subresources")
        converts = name != storage
        return Kind(
            group=self.group,
            version=name,
            kind=kind,
            plural=text(self.names, "plural"),
            singular=text(self.names, "singular") or kind.lower(),
            list_kind=text(self.names, "listKind") or kind + "List",
            short_names=tuple(strings(self.names, "shortNames")),
            categories=tuple(strings(self.names, "categories")),
            namespaced=self.namespaced,
            subresources=self._subresources(version),
            scale=_scale(version),
            identity=self.identity,
            storage_version=storage,
            schema=schema,
            schema_name=component_name(self.group, name, kind),
            description=text(schema.source, "description"),
            generation=True,
            has_status=status,
            name_rule=self.name_rule,
            columns=_columns(version),
            field_labels=_field_labels(version),
            deprecation=self._deprecation(version),
            from_stored=_conversion(self._api_version(name), schema) if converts or self._revised else None,
            to_stored=_conversion(self._api_version(storage), self._schema(self._stored)) if converts else None,
        )

    def _api_version(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version

    def _schema(self, version: Object) -> StructuralSchema:
        source = mapping(version, *self._schema_path) or _ANYTHING
        return schema_for(encode_json(source))

    def _subresources(self, version: Object) -> tuple[Subresource, ...]:
        declared, name, kind = mapping(version, "subresources"), text(version, "name"), text(self.names, "kind")
        status = (Subresource("status", kind, self.group, name),) if "status" in declared else ()
        scale = (Subresource("scale", "Scale", "autoscaling", "v1"),) if mapping(declared, "scale") else ()
        return status + scale

    def _deprecation(self, version: Object) -> str:
        if version.get("deprecated") is not True:
            return ""
        if warning := text(version, "deprecationWarning"):
            return warning
        name, kind = text(version, "name"), text(self.names, "kind")
        warning = f"{self._api_version(name)} {kind} is deprecated"
        current = [text(each, "name") for each in self.served() if each.get("deprecated") is not True]
        if current and version_priority(current[0]) < version_priority(name):
            return f"{warning}; use {self._api_version(current[0])} {kind}"
        return warning


def _conversion(api_version: str, schema: StructuralSchema) -> Callable[[Object], Object]:
    """Conversion strategy None: another apiVersion, then pruned and defaulted by that version's schema."""

    def convert(obj: Object) -> Object:
        obj["apiVersion"] = api_version
        schema.prune(obj)
        schema.default(obj)
        return obj

    return convert


def _scale(version: Object) -> Scale | None:
    scale = mapping(version, "subresources", "scale")
    if not scale:
        return None
    return Scale(text(scale, "specReplicasPath"), text(scale, "statusReplicasPath"), text(scale, "labelSelectorPath"))


def _columns(version: Object) -> tuple[Column, ...]:
    declared = [each for _, each in objects(version, "additionalPrinterColumns")]
    if not declared:
        return (_AGE,)
    return tuple(
        Column(
            text(each, "name"),
            text(each, "type"),
            text(each, "format"),
            text(each, "description"),
            each["priority"] if type(each.get("priority")) is int else 0,
            text(each, "jsonPath"),
        )
        for each in declared
    )


def _field_labels(version: Object) -> dict[str, Callable[[Object], str]]:
    paths = [text(each, "jsonPath") for _, each in objects(version, "selectableFields")]
    return {path.removeprefix("."): _reader(path) for path in paths if path}


def _reader(path: str) -> Callable[[Object], str]:
    def read(obj: Object) -> str:
        value = first(path, obj)
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(value, (str, int)) else ""

    return read
