"""Kubernetes' kinds as they are served where root's export `kubernetes` is bound: a Kind for each version of a row.

The catalogue asks by the name of the bound APIResourceSchema, which is made of its content. Everything that tells
these kinds from definitions is put together here: schema, defaults, columns, subresources, strategies and checks.
Invariant: values are made once for each identity and shared by all clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from msgspec.structs import replace

from atoll.machinery.kinds.checks import mapping
from atoll.machinery.kinds.kind import Column, Kind, Scale, Subresource, no_warnings
from atoll.machinery.kinds.kubernetes import autoscaling, strategies
from atoll.machinery.kinds.kubernetes.cells import cells_of
from atoll.machinery.kinds.kubernetes.field_labels import field_labels
from atoll.machinery.kinds.kubernetes.pod_subresources import MERGES
from atoll.machinery.kinds.kubernetes.schema_names import row_of_schema
from atoll.machinery.kinds.kubernetes.schemas import KubernetesSchema
from atoll.machinery.kinds.kubernetes.tables import Row, Version, rows
from atoll.machinery.kinds.kubernetes.traits import traits_of
from atoll.machinery.kinds.kubernetes.validation import resource_slices, validators
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.selectors import compile_label_selector

_FLOW_CONTROL = "flowcontrol.apiserver.k8s.io"
#: Subresources that need nodes, by kind.
_UNSERVED = {
    "Pod": ("attach", "binding", "eviction", "exec", "log", "portforward", "proxy"),
    "Service": ("proxy",),
    "Node": ("proxy",),
}


@cache
def kinds_of_schema(name: str, identity: str) -> tuple[Kind, ...]:
    """Return the kinds of a shipped APIResourceSchema by its name, the preferred version first; none for another."""
    row = row_of_schema(name)
    if row is None:
        return ()
    found = rows()[row]
    return tuple(_kind(found, version, name, identity) for version in found.versions)


@cache
def _schema(component: str, kind: str) -> KubernetesSchema:
    return KubernetesSchema(component, traits_of(kind).open_values)


def _kind(row: Row, version: Version, mark: str, identity: str) -> Kind:
    traits, checks = traits_of(row.kind), validators(version.component)
    schema = _schema(version.component, row.kind)
    subresources = tuple(_subresource(row, version, *each) for each in version.subresources.items())
    made = Kind(
        group=row.group,
        version=version.name,
        kind=row.kind,
        plural=row.plural,
        singular=row.singular,
        list_kind=row.kind + "List",
        short_names=tuple(row.short_names),
        categories=tuple(row.categories),
        namespaced=row.namespaced,
        verbs=tuple(version.verbs.split()),
        subresources=subresources,
        scale=_scale(row) if "scale" in version.subresources else None,
        unserved=_UNSERVED.get(row.kind, ()),
        identity=identity,
        storage_version=row.versions[0].name,
        schema=schema,
        schema_name=version.component,
        description=schema.source["description"],
        builtin=True,
        holds_objects="data" in schema.source["properties"],
        generation=traits.generation,
        generation_at_creation=traits.generation_at_creation,
        generation_counts=traits.generation_counts,
        annotations_count=traits.annotations_count,
        has_status="status" in version.subresources,
        status_at_creation=traits.status_at_creation,
        resets={"status": traits.resets} if "status" in version.subresources else {},
        merges={
            **{name: MERGES[name] for name in version.subresources if name in MERGES},
            **strategies.merges(version.component),
        },
        update_creates=traits.update_creates,
        unconditional_update=traits.unconditional_update,
        returns_deleted=traits.returns_deleted,
        grace_period_s=traits.grace_period_s,
        name_rule=traits.name_rule,
        columns=_columns(row),
        cells=cells_of(row),
        field_labels=field_labels(row.kind),
        prepare_create=strategies.prepare_create(version.component),
        prepare_update=strategies.prepare_update(version.component),
        validate=checks.create,
        validate_update=checks.update,
        subresource_checks=checks.subresources,
        warnings=_warnings(row),
        mark=f"{mark} {identity}",
        replicas={_api_version(row, each): _REPLICAS for each in row.versions if "scale" in each.subresources},
    )
    return _converted(row, made) if len(row.versions) > 1 else made


def _warnings(row: Row) -> Callable[[Object], list[str]]:
    if row.group == _FLOW_CONTROL:
        return _not_steering
    return resource_slices.warnings if row.kind == "ResourceSlice" else no_warnings


def _not_steering(obj: Object) -> list[str]:
    return ["objects of this API are stored, but do not steer this server, which has limits of its own"]


_REPLICAS = ".spec.replicas"


def _scale(row: Row) -> Scale:
    of_labels = row.kind == "ReplicationController"
    return Scale(_REPLICAS, ".status.replicas", selector=partial(_selector_text, of_labels=of_labels))


def _selector_text(obj: Object, *, of_labels: bool) -> str:
    """Return the selector of a scale as Kubernetes computes it."""
    selector = mapping(obj, "spec", "selector")
    return str(compile_label_selector({"matchLabels": selector} if of_labels else selector))


def _api_version(row: Row, version: Version) -> str:
    return f"{row.group}/{version.name}" if row.group else version.name


def _subresource(row: Row, version: Version, name: str, verbs: str) -> Subresource:
    if name == "scale":
        return Subresource(name, "Scale", "autoscaling", "v1", tuple(verbs.split()))
    return Subresource(name, row.kind, row.group, version.name, tuple(verbs.split()))


def _columns(row: Row) -> tuple[Column, ...]:
    return tuple(Column(each.name, each.type, each.format, "", each.priority) for each in row.columns)


def _converted(row: Row, kind: Kind) -> Kind:
    """Return a kind of several versions, HorizontalPodAutoscaler, which is stored in the preferred one."""
    versions = {_api_version(row, each): _schema(each.component, row.kind) for each in row.versions}
    kind = replace(kind, versions=versions, convert=autoscaling.convert)
    if kind.api_version == autoscaling.V1:
        return replace(kind, from_stored=autoscaling.to_v1, to_stored=autoscaling.to_v2)
    return kind
