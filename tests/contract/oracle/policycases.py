"""Cases of admission policies: expressions on a request with values, errors and costs; and mutations of objects."""

from __future__ import annotations

import copy
import random
from functools import lru_cache
from typing import Any

from atoll.machinery.apiserver.admission.expressions.evaluation import Evaluation, ExpressionFailed, OutOfBudget
from atoll.machinery.apiserver.admission.expressions.expression import ANNOTATION, CONDITION, MESSAGE, Compiler
from atoll.machinery.apiserver.admission.policies.mutation import MutationFailed, mutated
from atoll.machinery.apiserver.admission.policies.program import MutatingProgram, compile_mutating
from atoll.machinery.cel.structures import Structure
from atoll.machinery.patch.structuredmerge.topology import TypeSchema
from contract.oracle.draw import NAMES, TEXTS, Object, Schemas, Values, rng_of
from contract.oracle.expressioncases import plain_value

_PER_SCHEMA = 10
_HEAD = {"apiVersion": "example.io/v1", "kind": "Thing"}
_KIND = {"group": "example.io", "version": "v1", "kind": "Thing"}
_RESOURCE = {"group": "example.io", "version": "v1", "resource": "things"}
_WANTED = {"validation": CONDITION, "message": MESSAGE, "annotation": ANNOTATION}

#: Texts of each type on the variables of a request; the object has spec.a (a text), spec.n, spec.l, spec.m, spec.d.
_TEXTS_OF = (
    "object.metadata.name",
    "object.spec.a",
    "oldObject.spec.a",
    "request.name",
    "request.namespace",
    "request.operation",
    "request.userInfo.username",
    "request.userInfo.groups[0]",
    "request.userInfo.extra['k'][0]",
    "request.kind.kind",
    "request.resource.resource",
    "request.requestKind.group",
    "params.data.x",
    "namespaceObject.metadata.name",
    "namespaceObject.metadata.labels['team']",
    "variables.text",
    "string(variables.number)",
    "object.spec.?a.orValue('none')",
    "(has(object.spec.a) ? object.spec.a : 'x')",
    "'x'",
)
_NUMBERS_OF = (
    "object.spec.n",
    "oldObject.spec.n",
    "variables.number",
    "size(object.spec.l)",
    "object.spec.l.size()",
    "size(request.userInfo.groups)",
    "object.spec.d.b",
    "int(params.data.n)",
    "2",
)
_CONDITIONS_OF = (
    "has(object.spec.a)",
    "has(object.spec.missing)",
    "has(oldObject.spec.a)",
    "has(params.data)",
    "has(request.subResource)",
    "has(request.userInfo.extra)",
    "has(namespaceObject.metadata.labels)",
    "request.dryRun",
    "oldObject == null",
    "params == null",
    "namespaceObject == null",
    "variables.flag",
    "object.spec.l.all(i, i > 0)",
    "object.spec.l.exists(i, i == variables.number)",
    "'a' in object.spec.m",
    "'admins' in request.userInfo.groups",
    "object.spec == oldObject.spec",
    "object.metadata.labels.exists(k, object.metadata.labels[k] == 'x')",
)
_VARIABLES = (
    ("text", ("object.spec.a", "'t' + request.name", "namespaceObject.metadata.name", "params.data.x", "1 + ")),
    ("number", ("object.spec.n + 1", "size(object.spec.l)", "int(object.spec.a)", "7")),
    ("flag", ("has(object.spec.a)", "variables.number > 1", "variables.text == 'x'", "object.spec.d.c")),
)


class Expressions:
    """Draws expressions of policies."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def condition(self, depth: int = 2) -> str:
        rng = self.rng
        if depth and rng.random() < 0.4:
            inner = self.condition(depth - 1), self.condition(depth - 1), self.condition(depth - 1)
            return str(rng.choice(("({0} && {1})", "({0} || {1})", "!{0}", "({0} ? {1} : {2})"))).format(*inner)
        kind = rng.random()
        if kind < 0.4:
            return rng.choice(_CONDITIONS_OF)
        if kind < 0.7:
            return f"{self.text()} {rng.choice(('==', '!=', '<'))} {self.text()}"
        if kind < 0.8:
            return f"{self.text()}.{rng.choice(('startsWith', 'contains', 'matches'))}('x')"
        return f"{self.number()} {rng.choice(('==', '<', '>='))} {self.number()}"

    def text(self) -> str:
        if self.rng.random() < 0.2:
            return f"({self.rng.choice(_TEXTS_OF)} + {self.rng.choice(_TEXTS_OF)})"
        return self.rng.choice(_TEXTS_OF)

    def number(self) -> str:
        if self.rng.random() < 0.2:
            return f"({self.rng.choice(_NUMBERS_OF)} + {self.rng.choice(_NUMBERS_OF)})"
        return self.rng.choice(_NUMBERS_OF)

    def variables(self) -> list[Object]:
        return [{"name": name, "expression": self.rng.choice(texts)} for name, texts in _VARIABLES]


def _request(rng: random.Random) -> Object:
    """What a policy sees beside the object: all of it, or without what a request may lack."""
    made: Object = {
        "variables": Expressions(rng).variables(),
        "user": "ada",
        "groups": ["admins", "users"],
        "dryRun": rng.random() < 0.3,
    }
    if rng.random() < 0.5:
        made["extra"] = {"k": ["v"]}
    if rng.random() < 0.6:
        made["params"] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"}, "data": {"x": "x"}}
    if rng.random() < 0.7:
        labels = {"labels": {"team": "red"}} if rng.random() < 0.7 else {}
        made["namespace"] = {"metadata": {"name": "default", **labels}}
    return made


def _object(rng: random.Random) -> Object:
    spec: Object = {
        "a": rng.choice(TEXTS),
        "n": rng.choice((0, 1, 2, 3)),
        "l": [rng.choice((0, 1, 2)) for _ in range(rng.randint(0, 3))],
        "m": {name: rng.choice(TEXTS) for name in rng.sample(NAMES, 2)},
        "d": {"b": rng.choice((1, "x", 1.5)), "c": rng.random() < 0.5},
    }
    kept = {name: value for name, value in spec.items() if rng.random() < 0.85}
    metadata = {"name": "n", "namespace": "default", "labels": {"app": rng.choice(("x", "y"))}}
    return {**_HEAD, "metadata": metadata, "spec": kept}


def policy_case(number: int) -> Object:
    """An expression of a policy on a request."""
    rng = rng_of("policies", number)
    draw = Expressions(rng)
    of = rng.choice(("validation", "validation", "validation", "message", "annotation"))
    drawn = draw.condition() if of == "validation" else draw.text()
    made: Object = {"op": "policy", "of": of, "expression": drawn, "object": _object(rng), **_request(rng)}
    return {**made, "oldObject": _object(rng)} if rng.random() < 0.5 else made


def _values(case: Object) -> Object:
    """The variables of a request, as the product makes them."""
    namespace = case.get("namespace")
    user = {"username": case["user"], "groups": case["groups"]}
    request = {
        "kind": _KIND,
        "resource": _RESOURCE,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "name": "n",
        "namespace": "default",
        "operation": "UPDATE" if "oldObject" in case else "CREATE",
        "userInfo": {**user, "extra": case["extra"]} if "extra" in case else user,
        "dryRun": case["dryRun"],
    }
    return {
        "object": case["object"],
        "oldObject": case.get("oldObject"),
        "request": request,
        "params": case.get("params"),
        "namespaceObject": {**namespace, "spec": {}, "status": {}} if namespace else None,
    }


def ours(case: Object) -> Any:
    """The product's value or error of an expression, and its cost."""
    compiler = Compiler(params="params" in case)
    variables = {each["name"]: compiler.variable(each["name"], each["expression"]) for each in case["variables"]}
    expression = compiler.expression(case["expression"], _WANTED[case["of"]])
    if expression.program is None:
        return {"error": expression.error}
    evaluation = Evaluation(_values(case), variables)
    before = evaluation.remaining
    try:
        value = evaluation.value(expression)
    except (ExpressionFailed, OutOfBudget) as error:
        return {"error": str(error)}
    return {"value": plain_value(value), "cost": before - evaluation.remaining}


def theirs(answer: Any) -> Any:
    """The oracle's answer; the cost of a failed evaluation is left out, as upstream evaluates the rest."""
    return {"error": answer["error"]} if "error" in answer else answer


class Mutations:
    """Draws apply configurations and JSON patches for objects of a schema."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.values = rng, Values(rng, wild=0.02)

    def configuration(self, schema: Object) -> str:
        parts = {
            name: self.constructed(child, f"Object.{name}", 3)
            for name, child in schema["properties"].items()
            if self.rng.random() < 0.7
        }
        if self.rng.random() < 0.5:
            label = self.rng.choice(("'x'", "request.name", "object.metadata.name", "variables.text"))
            parts["metadata"] = f'Object.metadata{{labels: {{"made": {label}}}}}'
        return _structure("Object", parts)

    def constructed(self, schema: Object, path: str, depth: int) -> str:
        """A value of a schema as an expression; objects are structures named by their path."""
        rng = self.rng
        if rng.random() < 0.03:
            path = f"{path}x"
        if schema.get("type") == "object" and "properties" in schema:
            names = [name for name in schema["properties"] if rng.random() < 0.6]
            if rng.random() < 0.03:
                names.append("unknown")
            inner = {
                name: self.constructed(schema["properties"].get(name, {"type": "string"}), f"{path}.{name}", depth - 1)
                for name in names
            }
            return _structure(path, inner)
        if schema.get("type") == "array" and depth > 0 and "properties" in schema.get("items", {}):
            items = [self.item(schema, path, depth) for _ in range(rng.randint(1, 2))]
            return f"[{', '.join(items)}]"
        # Upstream takes null for a number of its own, and tells that of each type in other words.
        return _literal(self.values.value(schema, max(depth, 0))).replace("null", '"null"')

    def item(self, schema: Object, path: str, depth: int) -> str:
        """An item of a list; one of a keyed list has its keys."""
        items, keys = schema["items"], schema.get("x-kubernetes-list-map-keys", ())
        inner = {
            name: self.constructed(child, f"{path}.{name}", depth - 1)
            for name, child in items["properties"].items()
            if name in keys or self.rng.random() < 0.5
        }
        return _structure(path, inner)

    def patch(self, schema: Object, obj: Object) -> str:
        operations = [self.operation(schema, obj) for _ in range(self.rng.randint(1, 3))]
        return f"[{', '.join(operations)}]"

    def operation(self, schema: Object, obj: Object) -> str:
        rng = self.rng
        op = rng.choice(("add", "add", "replace", "remove", "test", "move", "copy"))
        fields = {"op": f'"{op}"', "path": f'"{self.pointer(obj)}"'}
        if op in ("move", "copy"):
            fields["from"] = f'"{self.pointer(obj)}"'
        if op in ("add", "replace", "test"):
            name = rng.choice(list(schema["properties"]))
            fields["value"] = rng.choice(
                (
                    _literal(self.values.anything()),
                    _literal(self.values.value(schema["properties"][name], 2)),
                    self.constructed(schema["properties"][name], f"Object.{name}", 2),
                    "object.metadata.name",
                    "object.metadata",
                    "variables.number",
                )
            )
        return _structure("JSONPatch", fields)

    def pointer(self, obj: Object) -> str:
        """A path to a part of the object, or beside one."""
        rng, path = self.rng, ""
        at: Any = obj
        for _ in range(rng.randint(1, 4)):
            if isinstance(at, dict):
                names = [name for name in at if name not in ("apiVersion", "kind")]
                name = rng.choice([*names, "new", *NAMES[:1]])
                path, at = f"{path}/{name}", at.get(name)
            elif isinstance(at, list):
                index = rng.choice([*range(len(at) + 1), "-"])
                path = f"{path}/{index}"
                at = at[index] if isinstance(index, int) and index < len(at) else None
            else:
                break
        return path


def _structure(name: str, fields: dict[str, str]) -> str:
    inner = ", ".join(f"{_field(field)}: {text}" for field, text in fields.items())
    return f"{name}{{{inner}}}"


def _field(name: str) -> str:
    return f"`{name}`" if "-" in name else name


def _literal(value: Any) -> str:
    """A value of JSON as an expression. Mixed types are dynamic.

    Upstream has no JSON for a list or map within a literal of one, and null for a list that is empty: the literals of
    cases are flat and not empty.
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}": dyn({_scalar(child)})' for key, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(f"dyn({_scalar(item)})" for item in value or [1]) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return f'"{len(value)}"'
    return f'"{value}"' if isinstance(value, str) else "null" if value is None else repr(value)


@lru_cache(maxsize=8)
def _schema(number: int) -> Object:
    return Schemas(rng_of("mutations-schema", number)).root()


@lru_cache(maxsize=8)
def _types(number: int) -> TypeSchema:
    return TypeSchema(_schema(number), {}, patches_by_lists=True)


def mutation_case(number: int) -> Object:
    """A mutation of an object of a custom resource."""
    rng, schema = rng_of("mutations", number), _schema(number // _PER_SCHEMA)
    obj = {**_HEAD, "metadata": {"name": "n", "namespace": "default", "labels": {"app": "x"}}}
    obj |= Values(rng).mapping(schema, 5)
    draw, of = Mutations(rng), rng.choice(("apply", "patch"))
    expression = draw.configuration(schema) if of == "apply" else draw.patch(schema, obj)
    made: Object = {"op": "mutation", "of": of, "expression": expression, "object": obj, **_request(rng)}
    return {**made, "schema": schema, "number": number}


def _program(case: Object) -> MutatingProgram:
    is_patch = case["of"] == "patch"
    form = {"jsonPatch" if is_patch else "applyConfiguration": {"expression": case["expression"]}}
    patch_type = "JSONPatch" if is_patch else "ApplyConfiguration"
    spec: Object = {"variables": case["variables"], "mutations": [{"patchType": patch_type, **form}]}
    return compile_mutating({**spec, "paramKind": {"kind": "ConfigMap"}} if "params" in case else spec)


def our_mutation(case: Object) -> Any:
    """The product's object or reason, and the cost of the expression."""
    program, types = _program(case), _types(case["number"] // _PER_SCHEMA)
    (mutation,) = program.mutations
    found: Object = {}
    if mutation.expression.program is not None:
        evaluation = Evaluation(_values(case), program.variables)
        before = evaluation.remaining
        try:
            value = evaluation.value(mutation.expression)
            found["cost"] = before - evaluation.remaining
            assert isinstance(value, Structure | list)
        except (ExpressionFailed, OutOfBudget):
            pass
    try:
        result = mutated(program, mutation, _values(case), copy.deepcopy(case["object"]), types)
    except MutationFailed as error:
        return {**found, "refused": str(error)}
    return {**found, "result": result}


def their_mutation(answer: Any) -> Any:
    """The oracle's answer; the cost of a failed evaluation is left out."""
    found = dict(answer)
    refused = str(found.get("refused", ""))
    if "resulted in error" in refused or "compilation failed" in refused or not found.get("cost"):
        found.pop("cost", None)
    return found


def same_mutation(ours: Any, theirs: Any) -> bool:
    """Whether both agree; the order of the fields that a text lists is any."""
    if "refused" in ours and "refused" in theirs:
        return _sorted({**ours}) == _sorted({**theirs})
    return bool(ours == theirs)


def _sorted(found: Object) -> Object:
    text = found["refused"]
    head, _, parts = text.partition("may not mutate atomic arrays, maps or structs: ")
    return {**found, "refused": [head, *sorted(parts.split(", "))] if parts else sorted(text.split("\n"))}
