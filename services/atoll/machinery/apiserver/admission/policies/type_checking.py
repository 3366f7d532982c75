"""Type checking of a ValidatingAdmissionPolicy: its expressions against the schemas of the kinds that its rules name.

The controller of policy statuses calls it. What it finds are warnings in the status and never changes how the policy
acts, because an expression that does not fit one kind may guard itself. At most MAX_KINDS kinds are checked; rules with
wildcards and subresources are skipped. Pure; texts are Kubernetes'.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import islice, starmap
from typing import Any

import msgspec

from atoll.machinery.apiserver.admission.expressions.environment import request_environment
from atoll.machinery.apiserver.admission.expressions.expression import Compiler, Pause
from atoll.machinery.apiserver.admission.policies.policy import ParamKind, param_kind
from atoll.machinery.apiserver.catalog.catalog import Catalog
from atoll.machinery.cel.environment import Environment
from atoll.machinery.cel.libraries.authorizer import AUTHORIZER
from atoll.machinery.cel.types import DYN, Type
from atoll.machinery.kinds.checks import mapping, objects, strings, text
from atoll.machinery.kinds.kind import Kind
from atoll.machinery.kinds.native_schemas import REF_PREFIX, definitions
from atoll.machinery.kinds.rules.decl_types import below
from atoll.machinery.meta.objects import Object

MAX_KINDS = 10
_METADATA = {"$ref": f"{REF_PREFIX}io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
_FAILED = "compilation failed: "


class CheckedKind(msgspec.Struct, frozen=True):
    """A kind to check against: how warnings name it, and the type of its objects."""

    title: str
    type: Type


def kinds_of(spec: Object, catalog: Catalog) -> list[Kind]:
    """Return the kinds that the rules of a policy name, by group, version and kind: the first MAX_KINDS of them.

    No kind has the name of a wildcard or a subresource.
    """
    rules = [rule for _, rule in objects(spec, "matchConstraints", "resourceRules")]
    named = (
        (group, version, plural)
        for rule in rules
        for group in sorted(strings(rule, "apiGroups"))
        for version in sorted(strings(rule, "apiVersions"))
        for plural in sorted(strings(rule, "resources"))
    )
    served = (kind for kind in starmap(catalog.find, named) if kind is not None)
    kinds = islice(dict.fromkeys((kind.group, kind.version, kind.plural) for kind in served), MAX_KINDS)
    found = [catalog.kinds[key] for key in kinds]
    return sorted(found, key=lambda kind: (kind.group, kind.version, kind.kind))


def type_warnings(spec: Object, catalog: Catalog, pause: Pause) -> list[Object]:
    """Return the entries of `status.typeChecking.expressionWarnings`. `pause` is called often, and may raise."""
    checked = [each for each in map(_checked, kinds_of(spec, catalog)) if each is not None]
    if not checked:
        return []
    wanted = param_kind(spec)
    params = _params_type(wanted, catalog) if wanted is not None else None
    compilers = [_compiler(spec, kind, params, pause) for kind in checked]
    found = list[Object]()
    for index, validation in objects(spec, "validations"):
        for field in ("expression", "messageExpression"):
            issues = [_issue(*each, text(validation, field)) for each in zip(checked, compilers, strict=True)]
            if warning := "\n".join(filter(None, issues)):
                found.append({"fieldRef": f"spec.validations[{index}].{field}", "warning": warning})
    return found


def _issue(kind: CheckedKind, compiler: Compiler, source: str) -> str:
    error = compiler.expression(source).error if source else ""
    return f"{kind.title}: {error.removeprefix(_FAILED)}\n" if error.startswith(_FAILED) else ""


def _compiler(spec: Object, kind: CheckedKind, params: Type | None, pause: Pause) -> Compiler:
    """Return a compiler in the scope of the policy's variables, for objects of a kind."""
    environment = partial(_environment, kind.type, params)
    compiler = Compiler(params=params is not None, pause=pause, environment=environment)
    for _, variable in objects(spec, "variables"):
        compiler.variable(text(variable, "name"), text(variable, "expression"))
    return compiler


def _environment(of: Type, of_params: Type | None, *, params: bool, authorizer: bool, is_new: bool) -> Environment:
    variables = {"object": of, "oldObject": of, "authorizer": AUTHORIZER}
    if of_params is not None:
        variables["params"] = of_params
    return request_environment(params=params, authorizer=False, is_new=is_new).extend(variables)


def _params_type(wanted: ParamKind, catalog: Catalog) -> Type:
    served = catalog.by_version.get((wanted.group, wanted.version), ())
    kind = next((each for each in served if each.kind == wanted.kind), None)
    checked = _checked(kind) if kind is not None else None
    return DYN if checked is None else checked.type


def _checked(kind: Kind) -> CheckedKind | None:
    """Return a kind with the type of its objects; None for one without a schema."""
    if kind.schema is None:
        return None
    schema = dict(kind.schema.source)
    if not kind.builtin:
        texts = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _METADATA}
        schema["properties"] = {**mapping(schema, "properties"), **texts}
    declared = below(_inlined(schema, frozenset()))
    if declared is None:
        return None
    return CheckedKind(f"{kind.group}/{kind.version}, Kind={kind.kind}", declared.cel_type(kind.kind))


def _inlined(schema: Any, above: Collection[str]) -> Object:
    """Return a schema with the components that it refers to in place; a circle ends in an empty object."""
    if not isinstance(schema, dict):
        return {}
    reference = _reference(schema)
    if reference:
        if reference in above:
            return {"type": "object"}
        return _inlined(definitions()[reference], {*above, reference})
    found = dict(schema)
    for keyword in ("items", "additionalProperties"):
        if isinstance(found.get(keyword), dict):
            found[keyword] = _inlined(found[keyword], above)
    if isinstance(found.get("properties"), dict):
        properties: Mapping[str, Any] = found["properties"]
        found["properties"] = {name: _inlined(each, above) for name, each in properties.items()}
    return found


def _reference(schema: Object) -> str:
    """Return the name of the component that a schema refers to, also in `allOf`; empty for none."""
    every: Sequence[Any] = (schema, *(schema.get("allOf") or ()))
    found = (each.get("$ref") for each in every if isinstance(each, dict))
    return next((str(each).removeprefix(REF_PREFIX) for each in found if each), "")
