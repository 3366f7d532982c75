"""Cases of field ownership: a few managers who update and apply one object."""

from __future__ import annotations

import copy
import random
from functools import lru_cache
from typing import Any

from atoll.machinery.apiserver.catalog.merge_types import type_schema_of
from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.patch.errors import ApplyConflict, PatchError
from atoll.machinery.patch.managedfields.apply import apply_patch
from atoll.machinery.patch.managedfields.managers import Manager
from atoll.machinery.patch.managedfields.options import ApplyOptions, TrackOptions, reset_fields
from atoll.machinery.patch.managedfields.update import track_update
from atoll.machinery.patch.structuredmerge.topology import TypeSchema
from contract.oracle.draw import Object, Schemas, Values, rng_of

CUSTOM = "example.io/v1"
_OLD, _NEW = "2020-01-01T00:00:00Z", "2026-01-01T00:00:00Z"
_TIMES = {_OLD: "old", _NEW: "new", "": "none"}
_PER_SCHEMA = 10
#: Built-in kinds whose merge types client-go ships.
_KINDS = {
    kind.kind: kind
    for kind in NATIVE
    if kind.plural
    in {
        "configmaps",
        "secrets",
        "serviceaccounts",
        "namespaces",
        "resourcequotas",
        "roles",
        "clusterroles",
        "rolebindings",
        "leases",
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "certificatesigningrequests",
    }
}


@lru_cache(maxsize=8)
def _schema(number: int) -> Object:
    """Cases of one schema are adjacent, as both sides compile it."""
    return Schemas(rng_of("fields-schema", number)).root()


def custom_case(number: int) -> Object:
    """A series of writes to a custom resource of a random schema."""
    rng, schema = rng_of("fields-custom", number), _schema(number // _PER_SCHEMA)
    status = number % 2 == 0
    steps = Steps(rng, CUSTOM, "Thing", schema, Values(rng)).drawn(status)
    return {"op": "fields", "apiVersion": CUSTOM, "kind": "Thing", "schema": schema, "status": status, "steps": steps}


def native_case(number: int) -> Object:
    """A series of writes to an object of a built-in kind, by the schema it is served with."""
    rng = rng_of("fields-native", number)
    kind = _KINDS[sorted(_KINDS)[number // _PER_SCHEMA % len(_KINDS)]]
    assert kind.schema is not None
    source = {**kind.schema.source, "required": [*kind.schema.source.get("required", ()), "rules"]}
    values = Values(rng, {**kind.schema.definitions, _ROLE_REF: _with_all(kind.schema.definitions[_ROLE_REF])})
    steps = Steps(rng, kind.api_version, kind.kind, source, values).drawn(False)
    return {"op": "fields", "apiVersion": kind.api_version, "kind": kind.kind, "steps": steps}


#: Go writes an empty apiGroup, and null for missing rules of a role; clients send neither.
_ROLE_REF = "io.k8s.api.rbac.v1.RoleRef"


def _with_all(schema: Object) -> Object:
    return {**schema, "required": list(schema["properties"])}


class Steps:
    """Draws the writes of one case."""

    def __init__(self, rng: random.Random, api_version: str, kind: str, schema: Object, values: Values) -> None:
        self.rng, self.values = rng, values
        # An update that does not fit its schema ends in validation; an apply meets the merge types before that.
        self.wild, self.is_wild = Values(rng, values.definitions, 0.01), False
        self.head = {"apiVersion": api_version, "kind": kind}
        self.schema = {
            "type": "object",
            "required": schema.get("required", ()),
            "properties": {
                name: child
                for name, child in schema["properties"].items()
                if name not in ("apiVersion", "kind", "metadata")
            },
        }

    def drawn(self, status: bool) -> list[Object]:
        steps: list[Object] = []
        body: Object = {}
        for _ in range(self.rng.randint(2, 6)):
            do = self.rng.choice(("apply", "apply", "update"))
            body = self.body(body, self.wild if do == "apply" and self.rng.random() < 0.3 else self.values)
            subresource = "status" if status and steps and self.rng.random() < 0.3 else ""
            step = {"do": do, "manager": self.rng.choice(("one", "two", "three")), "object": body}
            steps.append({**step, "subresource": subresource, "force": do == "apply" and self.rng.random() < 0.5})
        return steps

    def body(self, last: Object, values: Values) -> Object:
        """A new content, or that of the step before with changes."""
        kept = {name: value for name, value in last.items() if name in self.schema["properties"]}
        if values is self.values and self.is_wild:
            kept = {}
        self.is_wild = values is self.wild
        if kept and self.rng.random() < 0.6:
            content = values.changed(kept, self.schema)
        else:
            content = values.mapping(self.schema, 6)
        return {**self.head, "metadata": self.metadata(), **(content if isinstance(content, dict) else {})}

    def metadata(self) -> Object:
        rng = self.rng
        found: Object = {"name": "n", "namespace": "ns"}
        if rng.random() < 0.5:
            found["labels"] = {name: rng.choice("xy") for name in rng.sample(("a", "b"), rng.randint(1, 2))}
        if rng.random() < 0.2:
            found["finalizers"] = rng.sample(("f/a", "f/b"), rng.randint(1, 2))
        if rng.random() < 0.2:
            owners = rng.sample(("u1", "u2"), rng.randint(1, 2))
            found["ownerReferences"] = [{"apiVersion": "v1", "kind": "X", "name": "o", "uid": uid} for uid in owners]
        return found


def ours(case: Object) -> Any:
    """The product's result of the same writes."""
    return {"steps": _written(case, _types(case))}


def _types(case: Object) -> TypeSchema:
    return TypeSchema(case["schema"], _NO_DEFINITIONS) if "schema" in case else type_schema_of(_KINDS[case["kind"]])


_NO_DEFINITIONS: dict[str, Object] = {}


def _written(case: Object, types: TypeSchema) -> list[Any]:
    live: Object | None = None
    answers: list[Any] = []
    for step in case["steps"]:
        aged = _aged(live)
        try:
            live = _write(aged, step, case, types)
        except ApplyConflict as error:
            causes = [f"{cause.field}: {cause.message}" for cause in (error.details.causes if error.details else ())]
            answers.append({"refused": "conflict", "causes": sorted(causes)})
        except PatchError as error:
            answers.append({"refused": str(error), "causes": []})
        else:
            answers.append(_summary(live))
    return answers


def _write(live: Object | None, step: Object, case: Object, types: TypeSchema) -> Object:
    operation = "Apply" if step["do"] == "apply" else "Update"
    who = Manager(step["manager"], operation, case["apiVersion"], step["subresource"])
    reset = reset_fields(step["subresource"], case.get("status", False))
    sent: Object = copy.deepcopy(step["object"])
    if operation == "Apply":
        return apply_patch(live, sent, who, types, ApplyOptions(force=step["force"], now=_NEW, reset=reset))
    track_update(live, sent, who, types, _NEW, TrackOptions(reset=reset))
    return sent


def _aged(live: Object | None) -> Object | None:
    if live is None:
        return None
    live = copy.deepcopy(live)
    for entry in live["metadata"].get("managedFields", ()):
        if "time" in entry:
            entry["time"] = _OLD
    live["metadata"].get("managedFields", []).sort(key=_order)
    return live


def _order(entry: Object) -> tuple[str, ...]:
    return tuple(entry.get(name, "") for name in ("operation", "time", "manager", "apiVersion", "subresource"))


def _summary(live: Object) -> Object:
    shown = copy.deepcopy(live)
    for entry in shown["metadata"].get("managedFields", ()):
        entry["time"] = _TIMES[entry.get("time", "")]
    return shown


def native_theirs(answer: Any) -> Any:
    """Upstream's answer without what its Go types write for absent values: empty structs and nulls."""
    return {"steps": [step if "refused" in step else _without_absent(step) for step in answer["steps"]]}


def _without_absent(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if value is not None and (name, value) not in _ABSENT}


_ABSENT: tuple[tuple[str, Object], ...] = (("spec", {}), ("status", {}))


def agree(ours: Any, theirs: Any) -> bool:
    """Whether all steps are the same, up to where upstream writes an absent value another way.

    That is a null for a container that an apply left empty, which its storage drops with the next read while the
    product keeps the container; or what Go's types write for a field that is not optional and that an apply took away.
    The object goes its own way from there, so the steps after it are not compared.
    """
    for mine, other in zip(ours["steps"], theirs["steps"], strict=True):
        if mine == other or _refusal(mine) == _refusal(other) is not None:
            continue
        return "refused" not in mine and _filled(mine) == _filled(other) and _entries(mine) == _entries(other)
    return True


def _refusal(step: Object) -> Any:
    """The reason of a rejected step, else None. Upstream iterates over Go maps: the order of reasons is undefined."""
    return (sorted(step["refused"].splitlines()), step["causes"]) if "refused" in step else None


def _entries(obj: Object) -> Any:
    return obj.get("metadata", {}).get("managedFields")


def _filled(value: Any) -> Any:
    """A value without nulls, empty texts and empty containers."""
    if isinstance(value, list):
        return [_filled(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {name: _filled(child) for name, child in value.items() if name != "managedFields"}
    return {name: child for name, child in made.items() if child not in (None, {}, [], "")}
