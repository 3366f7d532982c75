"""Kinds of tenants: the served versions of a CustomResourceDefinition or an APIResourceSchema as values.

The catalogue of a cluster asks for the kinds of each definition; handlers treat them like built-in kinds. Values are
cached by content, so that thousands of clusters with the same definition share them. Invariant: a value never changes.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from atoll.machinery.kinds import conversion
from atoll.machinery.kinds.apiconversion import Converter
from atoll.machinery.kinds.checks import mapping, objects, strings, text
from atoll.machinery.kinds.conversion import Conversion, Finish, Webhook
from atoll.machinery.kinds.kind import Column, Kind, Scale, Subresource
from atoll.machinery.kinds.rules.evaluation import rules_of
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.cached_property import cached_property
from atoll.machinery.meta.jsonpath import first
from atoll.machinery.meta.names import LOCAL
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.versions import version_priority
from atoll.machinery.schema.openapi import component_name
from atoll.machinery.schema.structural.structural_schema import StructuralSchema, schema_for

#: Limit of definitions in the cache.
CACHE_SIZE = 1024
_AGE = Column(
    "Age",
    "date",
    description="When the object was created, by the clock of the server, in UTC.",
    json_path=".metadata.creationTimestamp",
)
_ANYTHING: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def kinds_of_crd(crd: Object, identity: str = LOCAL, rules: Object | None = None) -> list[Kind]:
    """Return a kind for each served version of an established CRD, the most stable version first; none for another CRD.

    `identity` is LOCAL, CORE for definitions of the system, or the identity hash of the export of a bound CRD; `rules`
    is then the spec of its APIConversion. Names are the accepted ones.
    """
    conditions = objects(crd, "status", "conditions")
    if not any(each.get("type") == "Established" and each.get("status") == "True" for _, each in conditions):
        return []
    spec = mapping(crd, "spec")
    names = {**mapping(spec, "names"), **mapping(crd, "status", "acceptedNames")}
    # Objects of an earlier spec are pruned and defaulted when read. A new spec raises the generation; so does the
    # start of a deletion, which changes no schema.
    metadata = mapping(crd, "metadata")
    if text(metadata, "annotations", wellknown.VALIDATE_NAME) == "path-segment":
        spec = {**spec, "nameValidation": "PathSegmentName"}
    revised = metadata.get("generation", 1) - bool(metadata.get("deletionTimestamp")) != 1
    return _kinds({**spec, "names": names}, identity, ("schema", "openAPIV3Schema"), revised, rules)


def kinds_of_resource_schema(schema: Object, identity: str, rules: Object | None = None) -> list[Kind]:
    """Return a kind for each served version of an APIResourceSchema, the most stable version first.

    `identity` is the identity hash of its export, `rules` the spec of its APIConversion.
    """
    return _kinds(mapping(schema, "spec"), identity, ("schema",), rules=rules)


def has_versions(definition: Object) -> bool:
    """Report whether a definition of either form has several versions, so that an APIConversion applies."""
    return len(objects(definition, "spec", "versions")) > 1


_cache: OrderedDict[tuple[str, tuple[str, ...], bool], list[Kind]] = OrderedDict()
_cache_lock = Lock()


def _kinds(
    spec: Object, identity: str, schema_path: tuple[str, ...], revised: bool = False, rules: Object | None = None
) -> list[Kind]:
    content = hashlib.sha256(encode_json([identity, spec, *([rules] if rules else [])])).hexdigest()
    mark = content, schema_path, revised
    with _cache_lock:
        known = _cache.get(mark)
        if known is not None:
            _cache.move_to_end(mark)
            return list(known)
    definition = _Definition(spec, identity, schema_path, revised, content)
    definition.convert_by(rules)
    made = [definition.kind(version) for version in definition.served()]
    with _cache_lock:
        _cache[mark] = made
        if len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return list(made)


class _Definition:
    """A definition from which kinds are made; the two forms differ only in the path of the schema of a version."""

    def __init__(self, spec: Object, identity: str, schema_path: tuple[str, ...], revised: bool, mark: str) -> None:
        self.names = mapping(spec, "names")
        self.group = text(spec, "group")
        self.namespaced = spec.get("scope") == "Namespaced"
        self.name_rule = "path-segment" if spec.get("nameValidation") == "PathSegmentName" else "subdomain"
        self.identity = identity
        self.versions = [version for _, version in objects(spec, "versions")]
        self._schema_path = schema_path
        self._revised = revised
        self._stored = next((each for each in self.versions if each.get("storage") is True), {})
        self._schemas: dict[str, StructuralSchema] = {}
        self.mark = mark
        #: The webhook or the rules that convert; None for strategy None.
        self.converter: Webhook | Converter | None = conversion.webhook_of(spec)

    def convert_by(self, rules: Object | None) -> None:
        """Convert between versions by the rules of an APIConversion, if there are any, instead of a webhook."""
        if rules is None or len(self.versions) < 2:
            return
        sources = {text(each, "name"): mapping(each, *self._schema_path) or _ANYTHING for each in self.versions}
        self.converter = Converter(rules, sources, text(self._stored, "name"))

    def served(self) -> list[Object]:
        """Return the served versions; those of an APIResourceSchema are served by default."""
        served = [each for each in self.versions if each.get("served", True) is True]
        return sorted(served, key=lambda each: version_priority(text(each, "name")))

    def kind(self, version: Object) -> Kind:
        """Return the kind of one version."""
        name, kind = text(version, "name"), text(self.names, "kind")
        storage = text(self._stored, "name") or name
        schema = self._schema(version)
        status = "status" in mapping(version, "subresources")
        converts = name != storage
        own, finish = self._api_version(name), self._finish
        convert = conversion.raise_unconverted if self.converter is not None else conversion.convert_none(finish)
        from_stored = finish[own] if converts or self._revised else None
        if self.converter is not None:
            from_stored = conversion.from_stored(own, finish[own], convert)
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
            description=text(mapping(version, *self._schema_path), "description"),
            generation=True,
            has_status=status,
            deferred_validator=rules_of(schema),
            name_rule=self.name_rule,
            columns=_columns(version),
            field_labels=_field_labels(version),
            deprecation=self._deprecation(version),
            from_stored=from_stored,
            to_stored=finish[self._api_version(storage)] if converts and self.converter is None else None,
            mark=self.mark,
            versions={self._api_version(text(each, "name")): self._schema(each) for each in self.versions},
            replicas={
                self._api_version(text(each, "name")): text(each, "subresources", "scale", "specReplicasPath")
                for each in self.versions
            },
            convert=convert,
            conversion=self._conversion(storage),
        )

    @cached_property
    def _finish(self) -> dict[str, Finish]:
        found = {}
        for version in self.versions:
            api_version = self._api_version(text(version, "name"))
            found[api_version] = _finish(api_version, self._schema(version))
        return found

    def _conversion(self, storage: str) -> Conversion | None:
        if self.converter is None:
            return None
        kind = text(self.names, "kind")
        return Conversion(self.converter, self.mark, kind, self._api_version(storage), self._revised, self._finish)

    def _api_version(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version

    def _schema(self, version: Object) -> StructuralSchema:
        name = text(version, "name")
        if name not in self._schemas:
            source = mapping(version, *self._schema_path) or _ANYTHING
            self._schemas[name] = schema_for(encode_json(source))
        return self._schemas[name]

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


def _finish(api_version: str, schema: StructuralSchema) -> Finish:
    """Return the last step of every conversion, and the only one of strategy None: set apiVersion, prune, default."""

    def finish(obj: Object) -> Object:
        obj["apiVersion"] = api_version
        schema.normalize(obj)
        return obj

    return finish


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
            text(each, "description")
            or f"Custom resource definition column (in JSONPath format): {text(each, 'jsonPath')}",
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
