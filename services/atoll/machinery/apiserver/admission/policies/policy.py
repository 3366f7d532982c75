"""Policies and bindings of both kinds, as far as matching needs them: names, criteria, parameters, actions.

`configured.configurations` makes them of stored objects; those of the same content are one value for all clusters.
Nothing here loads the language of expressions. Invariant: both are plain values of name and spec.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from atoll.machinery.apiserver.admission.configured.matching import PART_BYTES, Criteria
from atoll.machinery.kinds.checks import mapping, strings, text
from atoll.machinery.meta.objects import Object, encode_json
from atoll.machinery.meta.selectors import LabelSelector, compile_label_selector
from atoll.machinery.meta.sizes import size_bytes

#: Fields of a spec that its expressions do not depend on: policies that differ in these alone share a program.
_UNCOMPILED = ("failurePolicy", "matchConstraints", "reinvocationPolicy")


class ParamKind(msgspec.Struct, frozen=True):
    """The kind of a policy's parameters."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        """The kind as Go prints a GroupVersionKind."""
        return f"{self.group}/{self.version}, Kind={self.kind}"


class Policy(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """A ValidatingAdmissionPolicy or MutatingAdmissionPolicy, of any cluster."""

    name: str
    criteria: Criteria
    #: Whether errors deny the request (failurePolicy Fail).
    fails: bool
    params: ParamKind | None
    #: `Never` or `IfNeeded`, of a mutating policy.
    reinvocation: str
    spec: Object
    #: Hash of what its expressions depend on.
    content: bytes
    size_bytes: int = 0

    @staticmethod
    def of(obj: Object) -> Policy:
        """Return a stored policy."""
        spec = mapping(obj, "spec")
        compiled = {field: value for field, value in spec.items() if field not in _UNCOMPILED}
        found = Policy(
            name=text(obj, "metadata", "name"),
            criteria=Criteria.of_match_resources(mapping(spec, "matchConstraints")),
            fails=text(spec, "failurePolicy") != "Ignore",
            params=param_kind(spec),
            reinvocation=text(spec, "reinvocationPolicy"),
            spec=compiled,
            content=hashlib.sha256(encode_json(compiled)).digest(),
        )
        return replace(found, size_bytes=PART_BYTES + size_bytes(found))


def param_kind(spec: Object) -> ParamKind | None:
    """Return the parameter kind of a policy's spec, None without one."""
    found = spec.get("paramKind")
    if not isinstance(found, dict):
        return None
    group, _, version = text(found, "apiVersion").rpartition("/")
    return ParamKind(group, version, text(found, "kind"))


class ParamRef(msgspec.Struct, frozen=True):
    """The parameters of a binding: one by name, or all that a selector matches."""

    name: str
    namespace: str
    selector: LabelSelector | None
    #: Whether a request is denied without parameters (parameterNotFoundAction).
    required: bool


class Binding(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """A binding of a policy, of a kind of bindings. `actions` are those of a validating one, in order."""

    kind: str
    name: str
    policy: str
    #: None: every request that the policy matches.
    criteria: Criteria | None
    params: ParamRef | None
    actions: tuple[str, ...]
    size_bytes: int = 0

    @staticmethod
    def of(obj: Object) -> Binding:
        """Return a stored binding."""
        spec = mapping(obj, "spec")
        match = spec.get("matchResources")
        found = Binding(
            kind=text(obj, "kind"),
            name=text(obj, "metadata", "name"),
            policy=text(spec, "policyName"),
            criteria=Criteria.of_match_resources(match) if isinstance(match, dict) else None,
            params=_param_ref(spec),
            actions=tuple(strings(spec, "validationActions")),
        )
        return replace(found, size_bytes=PART_BYTES + size_bytes(found))


def _param_ref(spec: Object) -> ParamRef | None:
    found = spec.get("paramRef")
    if not isinstance(found, dict):
        return None
    selector = found.get("selector")
    return ParamRef(
        text(found, "name"),
        text(found, "namespace"),
        compile_label_selector(selector) if isinstance(selector, dict) else None,
        text(found, "parameterNotFoundAction") == "Deny",
    )


class BoundPolicy(msgspec.Struct, frozen=True):
    """A policy that may act on a request, with its bindings by name. One without bindings has no effect.

    `cluster` is the policy's, where its parameters are as well.
    """

    policy: Policy
    bindings: tuple[Binding, ...]
    cluster: str
