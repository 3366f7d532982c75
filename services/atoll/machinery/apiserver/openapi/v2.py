"""OpenAPI v2: path items of routes, shared parameters, and the parts of the document.

`kubectl` up to 1.26, Argo CD and client-go's OpenAPISchema read it. Parameters that old clients look for inside the
operation (dryRun, fieldValidation) stand there; all others are referred to, as in Kubernetes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache

from atoll.machinery.apiserver.openapi import parameters
from atoll.machinery.apiserver.openapi.parameters import Parameter
from atoll.machinery.apiserver.openapi.routes import META, OperationRoute, by_path
from atoll.machinery.meta.objects import Object, encode_json

PREFIX = "#/definitions/"
VERSION = "2.0"
INFO: Object = {"title": "Atoll", "version": "unversioned"}
SECURITY: list[Object] = [{"BearerToken": []}]
_INLINE = frozenset({"dryRun", "fieldValidation", "name"})
_SHARED_BODIES = (META + "DeleteOptions", META + "Patch")


def path_items(routes: Iterable[OperationRoute]) -> dict[str, Object]:
    """The path items of some routes."""
    return {path: _item(common, together) for path, (common, together) in by_path(iter(routes)).items()}


def _item(common: list[Parameter], routes: list[OperationRoute]) -> Object:
    item: Object = {route.method: _operation(route) for route in routes}
    if common:
        item["parameters"] = [_parameter(each) for each in common]
    return item


def _operation(route: OperationRoute) -> Object:
    found: Object = {
        "tags": [route.tag],
        "description": route.description,
        "operationId": route.id,
        "produces": list(route.produces),
        "schemes": ["https"],
        "responses": _responses(route),
    }
    if route.consumes:
        found["consumes"] = list(route.consumes)
    body = [_body(route.body, required=route.body_required)] if route.body else []
    if body or route.parameters:
        found["parameters"] = [*body, *(_parameter(each) for each in route.parameters)]
    if route.action:
        found["x-kubernetes-action"] = route.action
    if route.subject:
        found["x-kubernetes-group-version-kind"] = route.subject
    return found


def _responses(route: OperationRoute) -> Object:
    schema = {"$ref": PREFIX + route.answer} if route.answer else {"type": "string"}
    found: Object = {str(code): {"description": text, "schema": schema} for code, text in route.codes}
    found["401"] = {"description": "Unauthorized"}
    return found


def _parameter(parameter: Parameter) -> Object:
    if parameter.name in _INLINE:
        return parameter.v2
    return {"$ref": f"#/parameters/{_shared_name(parameter)}"}


def _body(component: str, *, required: bool) -> Object:
    if component in _SHARED_BODIES:
        return {"$ref": f"#/parameters/{_name('body', _body_itself(component, required=required))}"}
    return _body_itself(component, required=required)


def _body_itself(component: str, *, required: bool) -> Object:
    body: Object = {"name": "body", "in": "body", "schema": {"$ref": PREFIX + component}}
    return {**body, "required": True} if required else body


@cache
def shared_parameters() -> Object:
    """What `parameters` of the document holds, by name."""
    every = [*parameters.QUERY.values(), parameters.APPLIED, parameters.FORCE, parameters.NAMESPACE]
    found: Object = {_shared_name(each): each.v2 for each in every if each.name not in _INLINE}
    for component, required in zip(_SHARED_BODIES, (False, True), strict=True):
        body = _body_itself(component, required=required)
        found[_name("body", body)] = body
    return found


@cache
def _shared_name(parameter: Parameter) -> str:
    return _name(parameter.name, parameter.v2)


def _name(name: str, value: Object) -> str:
    """A name that says what the parameter is, for kubectl looks for `force` in it, and does not clash."""
    digest = hashlib.sha256(encode_json(value)).digest()[:6]
    return f"{name}-{base64.urlsafe_b64encode(digest).decode()}"
