"""Attributes of a request, and the authorizer's decision about them.

The pipeline, access reviews, impersonation and admission make `Attributes`; `authorizer.Authorizer` returns a
`Decision`; audit logs its steps. Invariant: both are values. The same attributes have the same decision under the same
stored policy, so the authorizer can cache by content.
"""

from __future__ import annotations

import enum

import msgspec

from atoll.machinery.apiserver.call.requestinfo import RequestInfo
from atoll.machinery.meta.user import User

_PINNED = "metadata.name="


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """What a user requests. A non-resource request has `path` set and `resource` empty.

    `cluster` is a logical cluster name, empty for requests to the shard itself and for wildcard requests; `wildcard`
    distinguishes the paths of the two. `name` is empty for collections, unless a field selector pins `metadata.name`.
    """

    user: User
    verb: str
    cluster: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    wildcard: bool = False
    label_selector: str = ""
    field_selector: str = ""

    @property
    def is_resource(self) -> bool:
        return not self.path

    @property
    def resource_path(self) -> str:
        """`pods` or `pods/log`, as RBAC rules and messages name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Outcome(enum.Enum):
    """The outcome of one step of the chain. All but NEXT end the chain."""

    NEXT = enum.auto()
    ALLOW = enum.auto()
    DENY = enum.auto()
    NO_OPINION = enum.auto()

    @property
    def word(self) -> str:
        """kcp's name of the outcome in audit annotations."""
        return {Outcome.ALLOW: "Allowed", Outcome.DENY: "Denied"}.get(self, "NoOpinion")


class Step(msgspec.Struct, frozen=True):
    """The outcome of one step, for audit; `reason` is never shown to the client.

    `domain` replaces the default domain of the annotations for steps of a virtual workspace.
    """

    name: str
    outcome: Outcome
    reason: str
    domain: str = ""

    def key(self, domain: str, field: str) -> str:
        """The key of the audit annotation for a field of the step."""
        return f"{self.domain}/{field}" if self.domain else f"{domain}/{self.name}-{field}"


class Decision(msgspec.Struct, frozen=True):
    """The decision. Neither allowed nor denied is "no opinion", which is a 403 as well.

    `reason` may be shown to the client; `steps` are for audit only. `lasting`: it is the same for every
    object name, and until a row of the types in `state_versions.SOURCES` or a replica changes.
    """

    allowed: bool
    denied: bool = False
    reason: str = ""
    steps: tuple[Step, ...] = ()
    lasting: bool = False

    @property
    def word(self) -> str:
        return "Allowed" if self.allowed else "Denied" if self.denied else "NoOpinion"

    def annotations(self, domain: str = "request.auth.kcp.io") -> dict[str, str]:
        """Audit annotations: Kubernetes' two, and kcp's two per step.

        kcp's steps call each other, so a step that passes a request on reports the final decision.
        """
        found = {
            "authorization.k8s.io/decision": "allow" if self.allowed else "forbid",
            "authorization.k8s.io/reason": self.reason,
        }
        for step in self.steps:
            word, reason = step.outcome.word, step.reason
            if step.outcome is Outcome.NEXT and reason:
                word, reason = self.word, f"delegating due to {reason}"
            found[step.key(domain, "decision")] = word
            found[step.key(domain, "reason")] = reason
        return found


def with_verb(attributes: Attributes, verb: str) -> Attributes:
    """The same request with another verb."""
    return attributes if verb == attributes.verb else msgspec.structs.replace(attributes, verb=verb)


def attributes_of(info: RequestInfo, user: User, cluster: str) -> Attributes:
    """The attributes of a parsed request; `cluster` is the resolved logical cluster ("" for `*` and none)."""
    if not info.is_resource:
        return Attributes(user=user, verb=info.verb, cluster=cluster, path=info.path, wildcard=info.is_wildcard)
    query = info.query
    field_selector = query.get("fieldSelector", "") if query else ""
    name = info.name
    if field_selector and not name and info.verb in {"list", "watch"}:
        name = pinned_name(field_selector)
    return Attributes(
        user=user,
        verb=info.verb,
        cluster=cluster,
        group=info.group,
        version=info.version,
        resource=info.resource,
        subresource=info.subresource,
        namespace=info.namespace,
        name=name,
        label_selector=query.get("labelSelector", "") if query else "",
        field_selector=field_selector,
    )


def pinned_name(field_selector: str) -> str:
    """The name that a field selector pins with `metadata.name=`, or "".

    This is what makes rules with resourceNames work for single-object informers. Escaped values are no names.
    """
    for term in field_selector.split(","):
        if term.startswith(_PINNED) and "\\" not in term:
            return term[len(_PINNED) :].removeprefix("=")
    return ""
