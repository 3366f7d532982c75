"""Templates of pods and specs of workloads that no check finds anything wrong with, told in one pass in C.

Most have ordinary containers, probes and volumes alone: msgspec types say what each field may hold, and a few lines
what fields have to do with each other. `podspec` and `workloads` ask before their checks, which decide about what is
refused: other fields, other values, large objects. Invariant: what is taken has no error by these checks, with nothing
tolerated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from atoll.machinery.kinds.kubernetes.validation.environment import ENVIRONMENT_FIELDS
from atoll.machinery.kinds.kubernetes.validation.rules import MAX_INT32, amount
from atoll.machinery.meta import quantity
from atoll.machinery.process.time_slicing import slice_pause

_T = TypeVar("_T")
_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_WORD = "[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_BELOW = r"(?s)^(?!/)(?!.*\.\.)."

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_Name: TypeAlias = Annotated[str, Meta(pattern=rf"^{_LABEL}\Z", max_length=63)]
_Reference: TypeAlias = Annotated[str, Meta(pattern=rf"^{_SUBDOMAIN}\Z", max_length=253)]
#: No longer than each of its two parts may be.
_Key: TypeAlias = Annotated[str, Meta(pattern=rf"^(?:{_SUBDOMAIN}/)?{_WORD}\Z", max_length=63)]
_Labels: TypeAlias = dict[_Key, Annotated[str, Meta(pattern=rf"^(?:{_WORD})?\Z", max_length=63)]]
#: Those of Kubernetes itself may stand for fields.
_AnnotationKey: TypeAlias = Annotated[
    str, Meta(pattern=rf"^(?!.*kubernetes\.io/)(?:{_SUBDOMAIN}/)?{_WORD}\Z", max_length=63)
]
_Annotations: TypeAlias = Annotated[dict[_AnnotationKey, Annotated[str, Meta(max_length=1_000)]], Meta(max_length=32)]
_Count: TypeAlias = Annotated[int, Meta(ge=0)]
_Id: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT32)]
_PortNumber: TypeAlias = Annotated[int, Meta(ge=1, le=65535)]
_PortName: TypeAlias = Annotated[str, Meta(pattern=r"^(?=.*[a-z])(?!-)(?!.*--)[-a-z0-9]{1,15}(?<!-)\Z")]
_Mode: TypeAlias = Annotated[int, Meta(ge=0, le=0o777)]
_Amount: TypeAlias = (
    Annotated[str, Meta(pattern=r"^[0-9]{1,12}(?:\.[0-9]{1,6})?(?:[mkMGT]|[KMGT]i)?\Z")] | Annotated[int, Meta(ge=0)]
)
_Amounts: TypeAlias = dict[Literal["cpu", "memory", "ephemeral-storage"], _Amount]
_Limit: TypeAlias = Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern=r"^(?:[0-9]{1,2}|100)%\Z")]
#: More of them are left to checks that can be interrupted.
_Few: TypeAlias = Annotated[list[_T], Meta(max_length=64)]


class _Part(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """An object without other fields; to the checks a null is absent, but in `successThreshold`."""


class _Command(_Part):
    command: Annotated[list[str], Meta(min_length=1)]


class _Header(_Part):
    name: Annotated[str, Meta(pattern=r"^[-A-Za-z0-9]+\Z")]
    value: str | None = None


class _Request(_Part):
    port: _PortNumber | _PortName
    path: str | None = None
    host: str | None = None
    scheme: Literal["HTTP", "HTTPS"] | None = None
    http_headers: list[_Header] | None = None


class _Socket(_Part):
    port: _PortNumber | _PortName
    host: str | None = None


class _Grpc(_Part):
    port: _PortNumber
    service: str | None = None


class _Probe(_Part):
    exec: _Command | None = None
    http_get: _Request | None = None
    tcp_socket: _Socket | None = None
    grpc: _Grpc | None = None
    initial_delay_seconds: _Count | None = None
    timeout_seconds: _Count | None = None
    period_seconds: _Count | None = None
    failure_threshold: _Count | None = None
    success_threshold: Literal[0, 1] = 1

    def is_plain(self) -> bool:
        return (self.exec, self.http_get, self.tcp_socket, self.grpc).count(None) == 3


class _ReadinessProbe(_Probe):
    success_threshold: _Count = 1  # type: ignore[assignment]


class _Port(_Part):
    container_port: _PortNumber
    name: _PortName | None = None
    protocol: Literal["TCP", "UDP", "SCTP"] | None = None


class _OwnField(_Part):
    field_path: Literal[ENVIRONMENT_FIELDS]  # type: ignore[valid-type]
    api_version: Literal["v1"] | None = None


class _KeyReference(_Part):
    name: _Reference
    key: Annotated[str, Meta(pattern=r"^(?!\.)[-._a-zA-Z0-9]+\Z", max_length=253)]
    optional: bool | None = None


class _Source(_Part):
    field_ref: _OwnField | None = None
    config_map_key_ref: _KeyReference | None = None
    secret_key_ref: _KeyReference | None = None


class _Variable(_Part):
    name: Annotated[str, Meta(pattern="^[ -<>-~]+\\Z")]
    value: str | None = None
    value_from: _Source | None = None

    def is_plain(self) -> bool:
        source = self.value_from
        if source is None:
            return True
        one = (source.field_ref, source.config_map_key_ref, source.secret_key_ref).count(None) == 2
        return one and not self.value


class _Resources(_Part):
    requests: _Amounts | None = None
    limits: _Amounts | None = None

    def is_plain(self) -> bool:
        limits = self.limits
        if not limits or not self.requests:
            return True
        return not any(name in limits and _is_above(value, limits[name]) for name, value in self.requests.items())


class _Mount(_Part):
    name: str
    mount_path: _Text
    read_only: bool | None = None
    sub_path: Annotated[str, Meta(pattern=_BELOW)] | None = None


class _Profile(_Part):
    type: Literal["RuntimeDefault", "Unconfined"]


class _Capabilities(_Part):
    drop: list[str] | None = None


class _Security(_Part):
    run_as_user: _Id | None = None
    run_as_group: _Id | None = None
    run_as_non_root: bool | None = None
    seccomp_profile: _Profile | None = None


class _PodSecurity(_Security):
    fs_group: _Id | None = None
    fs_group_change_policy: Literal["Always", "OnRootMismatch"] | None = None


class _ContainerSecurity(_Security):
    allow_privilege_escalation: bool | None = None
    privileged: bool | None = None
    read_only_root_filesystem: bool | None = None
    capabilities: _Capabilities | None = None


class _Initial(_Part):
    """A container that runs before the others."""

    name: _Name
    image: _Text
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    ports: _Few[_Port] | None = None
    env: _Few[_Variable] | None = None
    resources: _Resources | None = None
    volume_mounts: _Few[_Mount] | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    termination_message_path: str | None = None
    termination_message_policy: Literal["File", "FallbackToLogsOnError"] | None = None
    security_context: _ContainerSecurity | None = None

    def is_plain(self, volumes: set[str]) -> bool:
        mounts, resources, security = self.volume_mounts, self.resources, self.security_context
        if mounts and not ({each.name for each in mounts} <= volumes and _differ([each.mount_path for each in mounts])):
            return False
        if self.ports and not _differ([each.name for each in self.ports if each.name is not None]):
            return False
        for variable in self.env or ():
            if variable.value_from is not None and not variable.is_plain():
                return False
        if security is not None and security.privileged:
            return False
        return resources is None or resources.is_plain()


class _Container(_Initial):
    readiness_probe: _ReadinessProbe | None = None
    liveness_probe: _Probe | None = None
    startup_probe: _Probe | None = None

    def is_plain(self, volumes: set[str]) -> bool:
        for probe in (self.readiness_probe, self.liveness_probe, self.startup_probe):
            if probe is not None and not probe.is_plain():
                return False
        return _Initial.is_plain(self, volumes)


class _EmptyDir(_Part):
    medium: str | None = None
    size_limit: _Amount | None = None


class _File(_Part):
    key: _Text
    path: Annotated[str, Meta(pattern=_BELOW)]
    mode: _Mode | None = None


class _ConfigMap(_Part):
    name: _Text
    default_mode: _Mode | None = None
    items: list[_File] | None = None
    optional: bool | None = None


class _Secret(_Part):
    secret_name: _Text
    default_mode: _Mode | None = None
    items: list[_File] | None = None
    optional: bool | None = None


class _Claim(_Part):
    claim_name: _Text
    read_only: bool | None = None


class _Volume(_Part):
    name: _Name
    empty_dir: _EmptyDir | None = None
    config_map: _ConfigMap | None = None
    secret: _Secret | None = None
    persistent_volume_claim: _Claim | None = None

    def is_plain(self) -> bool:
        return (self.empty_dir, self.config_map, self.secret, self.persistent_volume_claim).count(None) == 3


class _PullSecret(_Part):
    name: str | None = None


class _Spec(_Part):
    containers: Annotated[_Few[_Container], Meta(min_length=1)]
    init_containers: _Few[_Initial] | None = None
    volumes: _Few[_Volume] | None = None
    restart_policy: Literal["Always", "OnFailure", "Never"] | None = None
    dns_policy: Literal["ClusterFirst", "ClusterFirstWithHostNet", "Default"] | None = None
    termination_grace_period_seconds: int | None = None
    service_account_name: _Reference | None = None
    service_account: str | None = None
    automount_service_account_token: bool | None = None
    enable_service_links: bool | None = None
    scheduler_name: str | None = None
    priority_class_name: _Reference | None = None
    image_pull_secrets: list[_PullSecret] | None = None
    security_context: _PodSecurity | None = None

    def is_plain(self) -> bool:
        volumes, containers = self.volumes or [], [*self.containers, *(self.init_containers or ())]
        names = {each.name for each in volumes}
        if len(names) != len(volumes) or not all(each.is_plain() for each in volumes):
            return False
        return _differ([each.name for each in containers]) and all(each.is_plain(names) for each in containers)


class _Metadata(_Part):
    labels: _Labels | None = None
    annotations: _Annotations | None = None
    name: str | None = None
    namespace: str | None = None
    creation_timestamp: str | None = None


class _Template(_Part):
    spec: _Spec
    metadata: _Metadata | None = None

    def is_plain(self) -> bool:
        return self.spec.is_plain()


class _Selector(_Part):
    match_labels: Annotated[_Labels, Meta(min_length=1)]


class _Rolling(_Part):
    max_unavailable: _Limit
    max_surge: _Limit


class _Strategy(_Part):
    type: Literal["RollingUpdate"]
    rolling_update: _Rolling

    def is_plain(self) -> bool:
        limits = self.rolling_update
        return bool(amount(limits.max_unavailable) or amount(limits.max_surge))


class _Workload(_Part):
    """The spec of a Deployment or of a ReplicaSet."""

    selector: _Selector
    template: _Template
    replicas: _Count | None = None
    min_ready_seconds: _Count | None = None
    revision_history_limit: _Count | None = None
    progress_deadline_seconds: _Count | None = None
    paused: bool | None = None
    strategy: _Strategy | None = None

    def is_plain(self) -> bool:
        deadline, strategy, template = self.progress_deadline_seconds, self.strategy, self.template
        if deadline is not None and deadline <= (self.min_ready_seconds or 0):
            return False
        labels = (template.metadata and template.metadata.labels) or {}
        if not self.selector.match_labels.items() <= labels.items():
            return False
        if template.spec.restart_policy not in (None, "Always"):
            return False
        return (strategy is None or strategy.is_plain()) and template.is_plain()


def _differ(values: list[str]) -> bool:
    return len(values) == len(set(values))


@lru_cache(maxsize=1024)
def _is_above(value: str | int, limit: str | int) -> bool:
    """Whether an amount is above another one. Objects repeat few."""
    return quantity.parse(value) > quantity.parse(limit)


def _taken(form: type[_Template | _Workload]) -> Callable[[Any], bool]:
    def is_plain(value: Any) -> bool:
        try:
            return slice_pause() is None and msgspec.convert(value, form).is_plain()
        except msgspec.ValidationError:
            return False

    return is_plain


#: Whether an object is such a template, or the spec of such a Deployment or ReplicaSet.
is_plain_template, is_plain_workload = _taken(_Template), _taken(_Workload)
