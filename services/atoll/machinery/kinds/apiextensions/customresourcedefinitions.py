"""CustomResourceDefinitions as objects: their place among the kinds, and the hooks that know their rules.

What a definition may say, and its defaults, lives in `schema.crd`, because it is about schemas;
`kinds.custom` makes the kinds that a definition declares. It is imported when the first definition is written.
"""

from __future__ import annotations

from atoll.machinery.kinds.checks import mapping, objects
from atoll.machinery.kinds.kind import Kind, Subresource
from atoll.machinery.kinds.native import (
    API_EXTENSIONS,
    CREATED_AT,
    NAME,
    builtin,
    created_cell,
    name_cell,
    row,
)
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError

GROUP = "apiextensions.k8s.io"
#: Values of these keywords of a schema are any JSON, null included.
_OPEN_VALUES = ("default", "enum", "example")


def _prepare_create(obj: Object) -> None:
    from atoll.machinery.schema.crd import default_crd

    _spell_out(obj)
    default_crd(obj)


def _prepare_update(obj: Object, old: Object) -> None:
    _prepare_create(obj)


def _spell_out(obj: Object) -> None:
    """A version that does not say whether it is served or stored is not, as with Go clients."""
    for _, version in objects(mapping(obj, "spec"), "versions"):
        for name in ("served", "storage"):
            if version.get(name) is None:
                version[name] = False


def _validate(obj: Object) -> list[FieldError]:
    from atoll.machinery.schema.crd import validate_crd

    return validate_crd(obj)


def _validate_update(obj: Object, old: Object) -> list[FieldError]:
    from atoll.machinery.schema.crd import validate_crd

    return validate_crd(obj, old)


def _warnings(obj: Object) -> list[str]:
    from atoll.machinery.schema.crd import crd_warnings

    return crd_warnings(obj)


CUSTOMRESOURCEDEFINITIONS = Kind(
    **builtin(GROUP, "CustomResourceDefinition", "customresourcedefinitions", _OPEN_VALUES),
    short_names=("crd", "crds"),
    categories=(API_EXTENSIONS,),
    namespaced=False,
    subresources=(Subresource("status", "CustomResourceDefinition", GROUP, "v1"),),
    has_status=True,
    generation=True,
    columns=(NAME, CREATED_AT),
    cells=row(name_cell, created_cell),
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    warnings=_warnings,
)
