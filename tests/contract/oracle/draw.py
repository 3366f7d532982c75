"""Random schemas and values, small enough that writers conflict: few names, few values, a few levels.

The generators of cases draw from here; everything follows from the seed, so a case is known by its suite and number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

Object = dict[str, Any]

NAMES = ("a", "b", "c", "d")
TEXTS = ("x", "y", "z", "")
_REF = "#/components/schemas/"
#: Values of built-in types that are strings of a form.
_BUILT_IN = {
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": ("2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"),
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": ("2026-01-02T03:04:05.000000Z", "2026-01-02T03:04:05.600000Z"),
    "io.k8s.apimachinery.pkg.api.resource.Quantity": ("1", "2Gi"),
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": (1, "x"),
}
_FORMATS = {"date-time": "2026-01-02T03:04:05Z", "byte": "YWI=", "duration": "1h"}


def rng_of(suite: str, number: int) -> random.Random:
    """The source of a case's randomness: the same for the same suite and number, on every machine."""
    return random.Random(f"{suite}/{number}")


class Schemas:
    """Draws structural schemas of custom resources. `validated` adds defaults, bounds, formats and nullables."""

    def __init__(self, rng: random.Random, *, validated: bool = False) -> None:
        self.rng, self.validated = rng, validated

    def root(self) -> Object:
        """A whole resource: spec of any shape, and a status."""
        properties: Object = {"spec": self.mapping(3), "status": self.mapping(1)}
        if self.rng.random() < 0.3:
            properties["extra"] = self.any(2)
        return {"type": "object", "properties": properties}

    def any(self, depth: int) -> Object:
        kinds: list[Callable[[int], Object]] = [self.scalar, self.scalar]
        if depth > 0:
            kinds += [
                self.mapping,
                self.mapping,
                self.entries,
                self.listed,
                self.listed,
                self.keyed,
                self.keyed,
                self.odd,
            ]
        schema = self.rng.choice(kinds)(depth)
        if self.validated and self.rng.random() < 0.15:
            schema["nullable"] = True
        return schema

    def scalar(self, depth: int = 0) -> Object:
        schema: Object = {"type": self.rng.choice(("string", "string", "integer", "boolean", "number"))}
        return self._bounded(schema) if self.validated else schema

    def _bounded(self, schema: Object) -> Object:
        rng, kind = self.rng, schema["type"]
        more: tuple[Object, ...]
        if kind == "string":
            more = (
                {"maxLength": 1},
                {"minLength": 1},
                {"pattern": "^[a-y]$"},
                {"enum": ["x", "y"]},
                {"format": rng.choice((*_FORMATS, "ipv4", "uuid", "unheard-of"))},
                {},
                {},
            )
        elif kind == "integer":
            more = (
                {"minimum": 1},
                {"maximum": 2},
                {"maximum": 2, "exclusiveMaximum": True},
                {"multipleOf": 2},
                {"format": "int32"},
                {"enum": [1, 2]},
                {},
            )
        elif kind == "number":
            more = ({"minimum": 0.5}, {"maximum": 1.5}, {"format": "double"}, {"multipleOf": 0.5}, {})
        else:
            more = ({}, {"enum": [True]})
        schema |= rng.choice(more)
        if rng.random() < 0.25 and (value := self._fitting(schema)) is not None:
            schema["default"] = value
        return schema

    def _fitting(self, schema: Object) -> Any:
        if "enum" in schema:
            return schema["enum"][0]
        if schema["type"] == "string":
            return _FORMATS.get(schema["format"]) if "format" in schema else "x"
        whole = 1 if "exclusiveMaximum" in schema else 2
        return {"integer": whole, "number": 0.5, "boolean": False}[schema["type"]]

    def mapping(self, depth: int) -> Object:
        names = self.rng.sample(NAMES, self.rng.randint(1, 4))
        schema: Object = {"type": "object", "properties": {name: self.any(depth - 1) for name in names}}
        if self.rng.random() < 0.15:
            schema["x-kubernetes-map-type"] = "atomic"
        if self.rng.random() < 0.1:
            schema["x-kubernetes-preserve-unknown-fields"] = True
        if self.validated:
            if self.rng.random() < 0.3:
                schema["required"] = self.rng.sample(names, 1)
            if self.rng.random() < 0.2:
                schema["default"] = {}
            if self.rng.random() < 0.1:
                schema["anyOf"] = [{"required": [name]} for name in names[:2]]
            if self.rng.random() < 0.1:
                schema["not"] = {"required": names[:2]}
        return schema

    def entries(self, depth: int) -> Object:
        schema: Object = {"type": "object", "additionalProperties": self.any(depth - 1)}
        if self.rng.random() < 0.15:
            schema["x-kubernetes-map-type"] = "atomic"
        if self.validated and self.rng.random() < 0.3:
            schema[self.rng.choice(("minProperties", "maxProperties"))] = 1
        return schema

    def listed(self, depth: int) -> Object:
        kind = self.rng.choice(("", "atomic", "set", "set"))
        items = self.scalar() if kind == "set" else self.any(depth - 1)
        for word in ("nullable", "default"):
            if kind == "set":
                items.pop(word, None)
        schema: Object = {"type": "array", "items": items}
        if kind:
            schema["x-kubernetes-list-type"] = kind
        return self._counted(schema)

    def keyed(self, depth: int) -> Object:
        """A list that is a map by one or two keys; keys are required or defaulted."""
        keys = self.rng.sample(NAMES, self.rng.choice((1, 1, 2)))
        properties: Object = {name: self.any(depth - 1) for name in self.rng.sample(NAMES, 2)}
        for key in keys:
            properties[key] = {"type": self.rng.choice(("string", "integer"))}
        required = list(keys)
        if self.rng.random() < 0.3:
            defaulted = required.pop()
            properties[defaulted]["default"] = "x" if properties[defaulted]["type"] == "string" else 1
        items: Object = {"type": "object", "properties": properties}
        if required:
            items["required"] = required
        return self._counted(
            {"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
        )

    def _counted(self, schema: Object) -> Object:
        if self.validated and self.rng.random() < 0.2:
            schema[self.rng.choice(("minItems", "maxItems"))] = self.rng.choice((1, 2))
        return schema

    def odd(self, depth: int) -> Object:
        return self.rng.choice(
            (
                {"x-kubernetes-int-or-string": True},
                {"x-kubernetes-preserve-unknown-fields": True},
                {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
            )
        )


class Values:
    """Draws values of a schema. `wild` is the probability of a value that violates the schema.

    With `definitions` the schema is a built-in kind's, and values are such as Go writes its own types: required fields
    are present, and no present field is empty.
    """

    def __init__(self, rng: random.Random, definitions: Mapping[str, Object] | None = None, wild: float = 0.0) -> None:
        self.rng, self.definitions, self.wild = rng, definitions or {}, wild

    @staticmethod
    def name(schema: Object) -> str:
        """The name that a schema refers to; empty if there is none."""
        name = schema.get("$ref")
        if name is None and "type" not in schema and len(schema.get("allOf", ())) == 1:
            name = schema["allOf"][0].get("$ref")
        return str(name or "").removeprefix(_REF)

    def resolved(self, schema: Object) -> Object:
        """The schema with its reference replaced by the definition."""
        if not (name := self.name(schema)):
            return schema
        beside = {key: value for key, value in schema.items() if key not in ("$ref", "allOf", "default")}
        return {**self.resolved(self.definitions.get(name, {})), **beside}

    def value(self, schema: Object, depth: int = 6) -> Any:
        """A value of a schema, `depth` containers deep at most."""
        for _ in range(20 if self.definitions else 1):
            if made := self._value(schema, depth):
                break
        return made

    def _value(self, schema: Object, depth: int) -> Any:
        if known := _BUILT_IN.get(self.name(schema)):
            return self.rng.choice(known)
        schema = self.resolved(schema)
        if self.rng.random() < self.wild:
            return self.anything()
        if schema.get("nullable") and self.rng.random() < 0.2:
            return None
        if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
            return self.rng.choice((1, 2, "x"))
        if schema.get("x-kubernetes-embedded-resource"):
            return {"apiVersion": "v1", "kind": "X", "metadata": {"name": self.rng.choice("xy")}, **self.open()}
        kind = schema.get("type")
        if kind == "array":
            return self.listed(schema, depth)
        if kind == "object" or "properties" in schema:
            return self.mapping(schema, depth)
        return self.scalar(schema) if kind else self.anything()

    def scalar(self, schema: Object) -> Any:
        if "enum" in schema and self.rng.random() < 0.8:
            return self.rng.choice(schema["enum"])
        kind, form = schema["type"], schema.get("format", "")
        if kind == "string":
            known = form in _FORMATS and (self.definitions or self.rng.random() < 0.8)
            return _FORMATS[form] if known else self.rng.choice(TEXTS)
        if kind == "number":
            return self.rng.choice((0.5, 1.5, 1, 2))
        return self.rng.choice((0, 1, 2, 3)) if kind == "integer" else self.rng.random() < 0.5

    def mapping(self, schema: Object, depth: int) -> Object:
        made: Object = {}
        if depth > 0:
            for name, child in schema.get("properties", {}).items():
                # Go writes fields of its own kinds that are not optional, whether they are set or not.
                is_kept = self.definitions and (name in schema.get("required", ()) or self.is_always_written(child))
                if self.rng.random() < 0.5 or is_kept:
                    made[name] = self.value(child, depth - 1)
                if self.definitions and not made.get(name, True):
                    del made[name]
            extra = schema.get("additionalProperties")
            if isinstance(extra, dict):
                for name in self.rng.sample(NAMES, self.rng.randint(0, 2)):
                    made[name] = self.value(extra, depth - 1)
        if schema.get("x-kubernetes-preserve-unknown-fields") or not (made.keys() or schema.keys() - {"type"}):
            made |= self.open()
        if self.rng.random() < self.wild:
            made[self.rng.choice(("unknown", "other"))] = self.anything()
        return made

    def is_always_written(self, schema: Object) -> bool:
        """Whether Go writes a field of this schema even when it is not set."""
        return self.name(schema) in _BUILT_IN or schema.get("default") not in (None, {})

    def listed(self, schema: Object, depth: int) -> list[Any]:
        items = self.resolved(schema.get("items", {}))
        made = [self.value(items, depth - 1) for _ in range(self.rng.randint(0, 3))] if depth > 0 else []
        kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys", ())
        if not kind and "merge" in str(schema.get("x-kubernetes-patch-strategy")):
            keys = [key] if (key := schema.get("x-kubernetes-patch-merge-key")) else ()
            kind = "map" if keys else "set"
        if kind == "map":
            made = self._identified(made, items, keys)
        elif kind == "set":
            made = list({repr(item): item for item in made}.values())
        return made

    def _identified(self, made: list[Any], items: Object, keys: Any) -> list[Any]:
        """Items with their keys, each combination once, as far as the draw is not wild."""
        found: dict[str, Any] = {}
        for item in made:
            if not isinstance(item, dict):
                continue
            for key in keys:
                child = self.resolved(items.get("properties", {}).get(key, {"type": "string"}))
                if "default" not in child or self.rng.random() < 0.5:
                    item.setdefault(key, self.value(child) if child.get("type") else "x")
            found.setdefault(repr([item.get(key) for key in keys]), item)
        repeats = self.rng.random() < self.wild
        return made if repeats else list(found.values())

    def open(self) -> Object:
        return {name: self.anything() for name in self.rng.sample(("p", "q"), self.rng.randint(0, 1))}

    def anything(self) -> Any:
        return self.rng.choice(("x", 1, True, None, 1.5, [], {}, {"p": 1}, ["x"], {"p": {"q": "x"}}, [{"p": 1}]))

    def changed(self, value: Any, schema: Object) -> Any:
        """A value that differs from another in a few fields."""
        if self.name(schema) in _BUILT_IN:
            return self.value(schema)
        schema = self.resolved(schema)
        roll = self.rng.random()
        if roll < 0.2 or not isinstance(value, dict | list) or not value:
            return self.value(schema)
        if isinstance(value, list):
            return self._changed_list(value, schema)
        made = dict(value)
        name = self.rng.choice(list(made))
        child = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
        if roll < 0.4:
            is_kept = name in schema.get("required", ()) or (isinstance(child, dict) and self.is_always_written(child))
            if not self.definitions or not is_kept:
                del made[name]
        elif isinstance(child, dict):
            made[name] = self.changed(made[name], child)
        else:
            made[name] = self.anything()
        if self.rng.random() < 0.3:
            made = {**self.mapping(schema, 3), **made}
        return {key: child for key, child in made.items() if child} if self.definitions else made

    def _changed_list(self, value: list[Any], schema: Object) -> list[Any]:
        made = list(value)
        index = self.rng.randrange(len(made))
        if self.rng.random() < 0.4:
            del made[index]
        else:
            made[index] = self.changed(made[index], schema.get("items", {}))
        if self.rng.random() < 0.3:
            self.rng.shuffle(made)
        keys = schema.get("x-kubernetes-list-map-keys", ())
        if schema.get("x-kubernetes-list-type") == "map":
            return self._identified([item for item in made if isinstance(item, dict)], schema.get("items", {}), keys)
        if schema.get("x-kubernetes-list-type") == "set":
            return list({repr(item): item for item in made}.values())
        return made
