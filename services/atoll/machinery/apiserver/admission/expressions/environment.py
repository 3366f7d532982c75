"""The environments of admission's expressions: the variables that each may use, with their types.

`object`, `oldObject` and `params` are dynamic; `request` and `namespaceObject` have the types of Kubernetes. Messages
have no `authorizer`, policies without paramKind no `params`, match conditions of webhooks no `variables`. Invariant:
values are the JSON of the objects, so a field whose declared type is a timestamp is a string when evaluated, as in
Kubernetes.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.libraries import jsonpatch
from atoll.machinery.cel.libraries.authorizer import AUTHORIZER, RESOURCE_CHECK
from atoll.machinery.cel.types import (
    BOOL,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Field,
    Kind,
    ListType,
    MapType,
    ObjectType,
    Type,
)
from atoll.machinery.kinds.rules.program import base_environment

VARIABLES: Final = "variables"

_STRINGS: Final = ListType(STRING)
_LABELS: Final = MapType(STRING, STRING)


def _object(name: str, /, **fields: Type) -> ObjectType:
    return ObjectType(f"kubernetes.{name}", {field: Field(of) for field, of in fields.items()})


_KIND: Final = _object("GroupVersionKind", group=STRING, version=STRING, kind=STRING)
_RESOURCE: Final = _object("GroupVersionResource", group=STRING, version=STRING, resource=STRING)
_USER: Final = _object(
    "UserInfo", username=STRING, uid=STRING, groups=_STRINGS, extra=MapType(STRING, ListType(STRING))
)
_REQUEST: Final = _object(
    "AdmissionRequest",
    kind=_KIND,
    resource=_RESOURCE,
    subResource=STRING,
    requestKind=_KIND,
    requestResource=_RESOURCE,
    requestSubResource=STRING,
    name=STRING,
    namespace=STRING,
    operation=STRING,
    userInfo=_USER,
    dryRun=BOOL,
    options=DYN,
)
_METADATA: Final = _object(
    "NamespaceMetadata",
    name=STRING,
    generateName=STRING,
    namespace=STRING,
    labels=_LABELS,
    annotations=_LABELS,
    UID=STRING,
    creationTimestamp=TIMESTAMP,
    deletionGracePeriodSeconds=INT,
    deletionTimestamp=TIMESTAMP,
    generation=INT,
    resourceVersion=STRING,
    finalizers=_STRINGS,
)
_CONDITION: Final = _object(
    "NamespaceCondition", status=STRING, type=STRING, lastTransitionTime=TIMESTAMP, message=STRING, reason=STRING
)
_SPEC: Final = _object("NamespaceSpec", finalizers=_STRINGS)
_STATUS: Final = _object("NamespaceStatus", conditions=ListType(_CONDITION), phase=STRING)
_NAMESPACE: Final = _object("Namespace", metadata=_METADATA, spec=_SPEC, status=_STATUS)
_TYPES: Final = (_KIND, _RESOURCE, _USER, _REQUEST, _METADATA, _CONDITION, _SPEC, _STATUS, _NAMESPACE)


@cache
def request_environment(*, params: bool, authorizer: bool = True, is_new: bool = False) -> Environment:
    """Return the environment of the expressions about a request, without variables of a policy.

    `is_new`: functions that the compatibility version lacks are rejected, as in an object that is written.
    """
    variables = {"object": DYN, "oldObject": DYN, "request": _REQUEST, "namespaceObject": _NAMESPACE}
    if params:
        variables["params"] = DYN
    if authorizer:
        variables |= {"authorizer": AUTHORIZER, "authorizer.requestResource": RESOURCE_CHECK}
    return base_environment(is_new=is_new).extend(variables, types=_TYPES)


@lru_cache(maxsize=16)
def with_patches(environment: Environment) -> Environment:
    """Return an environment with the types that mutations construct, and their functions."""
    return environment.extend({}, (jsonpatch.LIBRARY,))


def declared_type(of: Type) -> Type:
    """Return the type of a variable of a policy whose expression has a type: objects are dynamic to later ones."""
    if of.kind is Kind.LIST:
        return ListType(declared_type(of.parameters[0]))
    if of.kind is Kind.MAP:
        return MapType(*map(declared_type, of.parameters))
    return of if of.kind in _SIMPLE else DYN


_SIMPLE: Final = {
    Kind.ANY,
    Kind.BOOL,
    Kind.BYTES,
    Kind.DOUBLE,
    Kind.DURATION,
    Kind.INT,
    Kind.NULL,
    Kind.STRING,
    Kind.TIMESTAMP,
    Kind.UINT,
}
