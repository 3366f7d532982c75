"""Cases of strategic merge patches: built-in kinds, patches with every directive."""

from __future__ import annotations

from functools import cache
from typing import Any

from atoll.machinery.kinds.registry import NATIVE
from atoll.machinery.patch.errors import PatchError
from atoll.machinery.patch.strategicmerge.merge import strategic_merge
from atoll.machinery.patch.structuredmerge.topology import TypeSchema
from contract.oracle.draw import Object, Values, rng_of
from harness.oracles.kubernetes import Oracle

_PER_KIND = 10
#: Kinds that are not served, whose Go types have every merge strategy.
_OTHERS = (
    "v1/Pod",
    "v1/Service",
    "v1/PersistentVolume",
    "apps/v1/Deployment",
    "v1/Node",
    "batch/v1/CronJob",
    "networking.k8s.io/v1/Ingress",
    "autoscaling/v2/HorizontalPodAutoscaler",
)
_SERVED = {f"{kind.api_version}/{kind.kind}": kind for kind in NATIVE if not kind.kind.endswith("Review")}


@cache
def _described(name: str) -> tuple[Object, dict[str, Object]]:
    """The schema of a kind with its definitions: the product's where it serves the kind, else of Go's types."""
    api_version, _, kind = name.rpartition("/")
    if name in _SERVED:
        schema = _SERVED[name].schema
        assert schema is not None
        return schema.source, dict(schema.definitions)
    found = Oracle().ask([{"op": "patchmeta", "apiVersion": api_version, "kind": kind}])[0]
    return found["definitions"][found["root"]], found["definitions"]


def case(number: int) -> Object:
    """An object and a patch of it."""
    names = [*sorted(_SERVED), *_OTHERS, *_OTHERS]
    name = names[number // _PER_KIND % len(names)]
    rng = rng_of("strategic", number)
    schema, definitions = _described(name)
    api_version, _, kind = name.rpartition("/")
    patches = Patches(Values(rng, definitions))
    original = patches.values.mapping({**schema, "required": ()}, 6)
    patch = patches.patch(schema, original)
    return {"op": "strategic", "apiVersion": api_version, "kind": kind, "original": original, "patch": patch}


class Patches:
    """Draws patches with directives."""

    def __init__(self, values: Values) -> None:
        self.values, self.rng = values, values.rng

    def patch(self, schema: Object, original: Any, depth: int = 6) -> Object:
        """A patch for a map, of some of its fields and directives."""
        schema = self.values.resolved(schema)
        made: Object = {}
        properties = schema.get("properties", {})
        names = list(properties) or list(original if isinstance(original, dict) else ()) or ["a", "b"]
        here = [name for name in names if isinstance(original, dict) and name in original]
        chosen = self.rng.sample(names, min(len(names), self.rng.randint(1, 3)))
        for name in dict.fromkeys(chosen + self.rng.sample(here, min(len(here), 2))):
            child = properties.get(name, schema.get("additionalProperties", {}))
            if isinstance(child, dict):
                self.field(made, name, child, original.get(name) if isinstance(original, dict) else None, depth)
        roll = self.rng.random()
        if roll < 0.04:
            made["$patch"] = self.rng.choice(("replace", "replace", "merge", "delete", "keep"))
        elif roll < 0.12:
            made["$retainKeys"] = sorted({*made, *self.rng.sample(names, 1)} - {"$patch"})
        return made

    def field(self, made: Object, name: str, schema: Object, old: Any, depth: int) -> None:
        resolved = self.values.resolved(schema)
        kind = resolved.get("type")
        if self.rng.random() < 0.1:
            made[name] = None
        elif kind == "array":
            self.listed(made, name, resolved, old if isinstance(old, list) else [], depth)
        elif (kind == "object" or "properties" in resolved) and depth > 0:
            made[name] = self.patch(resolved, old, depth - 1)
        else:
            made[name] = self.values.value(schema, depth)

    def listed(self, made: Object, name: str, schema: Object, old: list[Any], depth: int) -> None:
        merges = "merge" in str(schema.get("x-kubernetes-patch-strategy", ""))
        key = schema.get("x-kubernetes-patch-merge-key", "")
        fresh = self.values.value(schema, depth) or []
        if not merges or depth <= 0:
            made[name] = fresh
        elif key:
            self.items(made, name, schema, old, fresh)
        else:
            self.primitives(made, name, old, fresh)

    def items(self, made: Object, name: str, schema: Object, old: list[Any], fresh: list[Any]) -> None:
        key = schema["x-kubernetes-patch-merge-key"]
        items: list[Any] = [item for item in fresh if isinstance(item, dict)]
        for item in old:
            roll = self.rng.random()
            if not isinstance(item, dict) or key not in item:
                continue
            if roll < 0.25:
                items.append({"$patch": "delete", key: item[key]})
            elif roll < 0.6:
                items.append({**self.patch(schema["items"], item, 1), key: item[key]})
        if self.rng.random() < 0.06:
            items.insert(0, {"$patch": self.rng.choice(("replace", "replace", "merge", "other"))})
        self.rng.shuffle(items)
        made[name] = items
        if self.rng.random() < 0.3:
            kept = [{key: item[key]} for item in items if key in item and item.get("$patch") != "delete"]
            kept += [{key: item[key]} for item in old if isinstance(item, dict) and key in item]
            made[f"$setElementOrder/{name}"] = self.ordered(kept)

    def primitives(self, made: Object, name: str, old: list[Any], fresh: list[Any]) -> None:
        if self.rng.random() < 0.8:
            made[name] = fresh
        # A value that a patch both adds and deletes depends on the order of a Go map.
        if gone := [item for item in old if item not in fresh]:
            made[f"$deleteFromPrimitiveList/{name}"] = self.rng.sample(gone, 1)
        if self.rng.random() < 0.3:
            made[f"$setElementOrder/{name}"] = self.ordered([*fresh, *old])

    def ordered(self, wanted: list[Any]) -> list[Any]:
        """Each wanted item once; now and then in an order of its own, which the list of the patch may contradict."""
        found = list({repr(item): item for item in wanted}.values())
        if self.rng.random() < 0.3:
            self.rng.shuffle(found)
        return found


def ours(case: Object) -> Any:
    """The product's result of the patch."""
    source, definitions = _described(f"{case['apiVersion']}/{case['kind']}")
    try:
        return {"result": _decoded(strategic_merge(case["original"], case["patch"], TypeSchema(source, definitions)))}
    except PatchError:
        return {"refused": True}


def theirs(answer: Any) -> Any:
    """The oracle's answer as its types decode it; the reasons of an error reach no client."""
    return {"refused": True} if "refused" in answer else {"result": _decoded(answer["result"])}


def _decoded(value: Any) -> Any:
    """A value without nulls, and without directives that upstream leaves to its decoder, which knows no such field."""
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _decoded(item)
        for name, item in value.items()
        if item is not None
        and name not in _DIRECTIVES
        and not name.startswith(("$setElementOrder/", "$deleteFromPrimitiveList/"))
    }


_DIRECTIVES = ("$patch", "$retainKeys")
