"""CustomResourceDefinitions as objects: their Kind, and the hooks that check their rules.

Validation and defaults of a definition are in `schema.definitions.crd`, because they concern schemas; `kinds.custom`
makes the kinds of a definition. A DELETE only starts the deletion; the controller that removes the instances completes
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atoll.machinery.kinds.binary import join_lines
from atoll.machinery.kinds.checks import ensure, mapping, objects, strings, text
from atoll.machinery.kinds.kind import Kind, Subresource, ValidationResult
from atoll.machinery.kinds.native import API_EXTENSIONS, CREATED_AT, NAME, builtin, created_cell, name_cell, row
from atoll.machinery.kinds.rules.definition import Checks, expressions_of
from atoll.machinery.meta.conditions import TRUE, Condition, set_status_condition
from atoll.machinery.meta.objects import Object, status_of
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.definitions.crd import (
    add_stored_version,
    crd_warnings,
    default_crd,
    validate_crd,
    validate_crd_status,
    validate_crd_update,
)

GROUP = "apiextensions.k8s.io"
#: Delays the deletion of a definition until its instances are deleted.
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
#: Keywords of a schema with arbitrary JSON values, including null.
_OPEN_VALUES = ("default", "enum", "example")
_PENDING = Condition(
    "Terminating",
    TRUE,
    "InstanceDeletionPending",
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
)


def _prepare_create(obj: Object) -> None:
    spec = mapping(obj, "spec")
    for _, version in objects(spec, "versions"):
        # `served` and `storage` default to false, as for Go clients.
        for name in ("served", "storage"):
            if version.get(name) is None:
                version[name] = False
    join_lines(mapping(spec, "conversion", "webhook", "clientConfig"), "caBundle")
    default_crd(obj)
    if isinstance(obj.get("status"), dict | None):
        obj["status"] = dict(status_of(obj))
        add_stored_version(obj)


def _prepare_update(obj: Object, old: Object) -> None:
    _prepare_create(obj)


def _begin_deletion(obj: Object) -> None:
    metadata, status = mapping(obj, "metadata"), ensure(obj, "status")
    finalizers = strings(metadata, "finalizers")
    if FINALIZER not in finalizers:
        metadata["finalizers"] = [*finalizers, FINALIZER]
    conditions = [condition for _, condition in objects(status, "conditions")]
    generation = metadata.get("generation")
    status["conditions"] = set_status_condition(conditions, _PENDING, text(metadata, "deletionTimestamp"), generation)


def _is_held(obj: Object) -> bool:
    """Report whether the deletion has not started yet; instances may exist until then."""
    return not mapping(obj, "metadata").get("deletionTimestamp")


def _validate_definition(
    obj: Object, old: Object | None, errors: Sequence[FieldError], pause: Callable[[], None]
) -> ValidationResult:
    """Check a definition, which may take long with many rules. Stored rules remain valid."""
    if old is None:
        return ValidationResult(validate_crd(obj, rules=Checks(pause)), [])

    def stored() -> frozenset[str]:
        versions = objects(old, "spec", "versions")
        return expressions_of(mapping(version, "schema", "openAPIV3Schema") for _, version in versions)

    return ValidationResult(validate_crd_update(obj, old, rules=Checks(pause, stored)), [])


CUSTOMRESOURCEDEFINITIONS = Kind(
    **builtin(GROUP, "CustomResourceDefinition", "customresourcedefinitions", _OPEN_VALUES),
    short_names=("crd", "crds"),
    categories=(API_EXTENSIONS,),
    namespaced=False,
    subresources=(Subresource("status", "CustomResourceDefinition", GROUP, "v1"),),
    has_status=True,
    resets={"status": ("spec",)},
    generation=True,
    columns=(NAME, CREATED_AT),
    cells=row(name_cell, created_cell),
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    deferred_validator=_validate_definition,
    validate_status=lambda obj, old: validate_crd_status(obj),
    warnings=crd_warnings,
    begin_deletion=_begin_deletion,
    held=_is_held,
)
