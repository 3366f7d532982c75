"""OpenAPI v3: path items of routes, and the parts of a document.

`publisher` joins the parts, each encoded alone, so that no step works on a whole large document but the joining.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from atoll.machinery.apiserver.openapi.parameters import Parameter
from atoll.machinery.apiserver.openapi.routes import OperationRoute, by_path
from atoll.machinery.kinds.native_schemas import REF_PREFIX
from atoll.machinery.meta.objects import Object

#: How clients say who they are.
SECURITY: Object = {
    "BearerToken": {"description": "A bearer token.", "in": "header", "name": "authorization", "type": "apiKey"}
}
INFO: Object = {"title": "Atoll", "version": "unversioned"}
VERSION = "3.0.0"


def path_items(routes: Iterable[OperationRoute]) -> dict[str, Object]:
    """The path items of some routes."""
    return {path: _item(common, together) for path, (common, together) in by_path(iter(routes)).items()}


def _item(common: list[Parameter], routes: list[OperationRoute]) -> Object:
    item: Object = {route.method: _operation(route) for route in routes}
    if common:
        item["parameters"] = [each.v3 for each in common]
    return item


def _operation(route: OperationRoute) -> Object:
    found: Object = {
        "tags": [route.tag],
        "description": route.description,
        "operationId": route.id,
        "responses": _responses(route),
    }
    if route.parameters:
        found["parameters"] = [each.v3 for each in route.parameters]
    if route.body:
        content = _content(route.consumes, route.body)
        found["requestBody"] = {"required": True, "content": content} if route.body_required else {"content": content}
    if route.action:
        found["x-kubernetes-action"] = route.action
    if route.subject:
        found["x-kubernetes-group-version-kind"] = route.subject
    return found


def _responses(route: OperationRoute) -> Object:
    content = _content(route.produces, route.answer)
    found: Object = {str(code): {"description": text, "content": content} for code, text in route.codes}
    found["401"] = {"description": "Unauthorized"}
    return found


def _content(types: tuple[str, ...], component: str) -> Object:
    schema = {"$ref": REF_PREFIX + component} if component else {"type": "string"}
    return {type: {"schema": schema} for type in types}


def references(value: object) -> Iterator[str]:
    """Names of the components that a value refers to, at any depth; some more than once."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            name = item.get("$ref")
            if isinstance(name, str) and name.startswith(REF_PREFIX):
                yield name.removeprefix(REF_PREFIX)
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)
