"""Admission policies to send, and what they answer.

policies = Policies(api)                      # in the workspace of `api`
policies.deny("no-latest", "object...")       # a policy of one validation, and its binding
"""

from __future__ import annotations

from typing import Any

from harness.clients.api import Api, Object

GROUP = "/apis/admissionregistration.k8s.io/v1"
VERSION = "admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{GROUP}/validatingadmissionpolicies", f"{GROUP}/validatingadmissionpolicybindings"
MARK = "object.metadata.name.startsWith('bad')"


def rule(*resources: str, group: str = "", version: str = "v1", **more: Any) -> Object:
    """A resource rule for all operations."""
    found = {"operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": list(resources)}
    return {**found, **more}


def policy(name: str, *validations: str | Object, rules: list[Object] | None = None, **spec: Any) -> Object:
    """A ValidatingAdmissionPolicy, by default for ConfigMaps. `spec` has further fields, also of matchConstraints."""
    constraints = {"resourceRules": [rule("configmaps")] if rules is None else rules, **spec.pop("match", {})}
    entries = [{"expression": each} if isinstance(each, str) else each for each in validations]
    body = {"matchConstraints": constraints, **({"validations": entries} if entries else {}), **spec}
    return {"apiVersion": VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": body}


def binding(name: str, policy: str, *actions: str, **spec: Any) -> Object:
    """A binding with validationActions, by default Deny."""
    body = {"policyName": policy, "validationActions": list(actions or ("Deny",)), **spec}
    return {"apiVersion": VERSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": body}


def denial(name: str, message: str, bound: str = "") -> str:
    """The text of a denial behind `is forbidden: `."""
    return f"ValidatingAdmissionPolicy '{name}' with binding '{bound or name}' denied request: {message}"


class Policies:
    """Policies of one workspace."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def add(self, policy: Object, *bindings: Object) -> None:
        """Create a policy and its bindings, by default one of its own name."""
        self.api.post(POLICIES, policy)
        name = policy["metadata"]["name"]
        for each in bindings or (binding(name, name),):
            self.api.post(BINDINGS, each)

    def deny(self, name: str, *validations: str | Object, rules: list[Object] | None = None, **spec: Any) -> None:
        """Create a policy that denies what its validations refuse."""
        self.add(policy(name, *validations, rules=rules, **spec))
