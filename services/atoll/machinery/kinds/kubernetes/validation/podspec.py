"""PodSpecs and templates of pods, which all workloads have."""

from __future__ import annotations

import re

from atoll.machinery.kinds.checks import items, mapping, objects, strings, text
from atoll.machinery.kinds.kubernetes.validation.addresses import address_errors
from atoll.machinery.kinds.kubernetes.validation.annotations import annotation_profiles, pod_annotations
from atoll.machinery.kinds.kubernetes.validation.containers import Surroundings, containers
from atoll.machinery.kinds.kubernetes.validation.environment import file_volumes
from atoll.machinery.kinds.kubernetes.validation.plain_templates import is_plain_template
from atoll.machinery.kinds.kubernetes.validation.ports import host_network_ports
from atoll.machinery.kinds.kubernetes.validation.resources import aggregate, pod_requirements, requirements
from atoll.machinery.kinds.kubernetes.validation.rules import (
    MAX_INT32,
    NO_PATH,
    Errors,
    amount_of,
    integer,
    label,
    label_map,
    names_of,
    one_of_defaulted,
    one_of_required,
    quantity_text,
    required_label,
    shorter,
    subdomain,
    within,
)
from atoll.machinery.kinds.kubernetes.validation.scheduling import affinity, gates, spread_constraints, tolerations
from atoll.machinery.kinds.kubernetes.validation.security import pod_security
from atoll.machinery.kinds.kubernetes.validation.tolerated import NOTHING, Tolerated, containers_of
from atoll.machinery.kinds.kubernetes.validation.volumes import volumes
from atoll.machinery.kinds.kubernetes.validation.windows import host_processes, operating_system
from atoll.machinery.meta.labels import dns_subdomain_errors, label_key_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import duplicate, forbidden, invalid, required, too_long

_SCHEDULING = frozenset(
    {"nodeSelector", "affinity", "readinessGates", "schedulingGates", "topologySpreadConstraints", "tolerations"}
)
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_MAX_NAMESERVERS, _MAX_SEARCHES, _MAX_SEARCH_SIZE, _HOST_NAME_SIZE = 3, 32, 2048, 64
_ANNOTATIONS_SIZE, _DOMAIN_SIZE = 262_144, 253
_SEARCH_LABEL = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH = re.compile(rf"{_SEARCH_LABEL}(\.{_SEARCH_LABEL})*\Z")
_SEARCH_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    rf"'{_SEARCH_LABEL}(\.{_SEARCH_LABEL})*')"
)


def pod_spec(spec: Object, at: str, pod: Object | None, passed: Tolerated = NOTHING) -> list[FieldError]:
    """Return the errors of a PodSpec; `pod` is the pod that it is part of, None in a template."""
    name = None if pod is None else text(pod, "metadata", "name")
    usable, errors = volumes(spec, at, name, any_token_path=passed.token_paths)
    all_containers = list(containers_of(spec, at))
    around = Surroundings(
        volumes=usable,
        claims=frozenset(names_of(spec, "resourceClaims")),
        grace_s=integer(spec.get("terminationGracePeriodSeconds")),
        os=text(spec, "os", "name") if isinstance(spec.get("os"), dict) else None,
        restart_policy=text(spec, "restartPolicy"),
        in_user_namespace=spec.get("hostUsers") is False,
        tolerated=passed,
    )
    errors += _claims(spec, f"{at}.resourceClaims", pod)
    errors += containers(spec, at, around)
    if isinstance(spec.get("resources"), dict):
        errors += _pod_resources(spec, f"{at}.resources", passed)
    errors += host_network_ports(spec, at, is_pod=pod is not None)
    errors += one_of_defaulted(spec, at, "restartPolicy", ("Always", "OnFailure", "Never"))
    errors += one_of_defaulted(spec, at, "dnsPolicy", _DNS_POLICIES)
    errors += pod_security(spec, at, recursive_only=not passed.selinux_policies, host_sysctls=passed.host_sysctls)
    errors += _scheduling(spec, at, passed)
    errors += _dns(spec, at)
    errors += host_processes(spec, at, all_containers)
    errors += _user_namespace(spec, at, all_containers, passed)
    errors += _names(spec, at)
    if spec.get("overhead"):
        errors += requirements({"limits": spec["overhead"]}, f"{at}.overhead", ())
    errors += operating_system(spec, at, all_containers)
    return errors + list(file_volumes(spec, all_containers))


def _claims(spec: Object, at: str, pod: Object | None) -> Errors:
    names = set[str]()
    for index, claim in objects(spec, "resourceClaims"):
        field, name = f"{at}[{index}]", text(claim, "name")
        if pod is not None and "kubernetes.io/config.mirror" in mapping(pod, "metadata", "annotations"):
            yield forbidden(NO_PATH, "static pods do not support resource claims")
            continue
        if name in names:
            yield duplicate(f"{field}.name", name)
        else:
            yield from required_label(claim, field, "name")
        names.add(name)
        chosen = [each for each in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(each) is not None]
        if len(chosen) == 2:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield invalid(field, claim, detail)
        if not chosen:
            yield invalid(field, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        for each in chosen:
            for problem in dns_subdomain_errors(text(claim, each)):
                yield invalid(f"{field}.{each}", claim[each], problem)


def _pod_resources(spec: Object, at: str, passed: Tolerated) -> Errors:
    resources = mapping(spec, "resources")
    if text(spec, "os", "name") == "windows":
        yield forbidden(at, "may not be set for a windows pod")
        return
    if resources.get("claims") is not None:
        yield forbidden(f"{at}.claims", "claims may not be set for Resources at pod-level")
    yield from pod_requirements(resources, at, partial_pages=passed.partial_pages)
    needed = aggregate(spec, "requests")
    for name, value in mapping(resources, "requests").items():
        given = amount_of(value)
        if given is not None and needed.get(name, 0) > given:
            detail = (
                f"must be greater than or equal to aggregate container requests of {quantity_text(str(needed[name]))}"
            )
            yield invalid(f"{at}.requests[{name}]", quantity_text(value), detail)
    yield from _pod_limits(spec, mapping(resources, "limits"), at)


def _pod_limits(spec: Object, limits: Object, at: str) -> Errors:
    bounds = {name: number for name, value in limits.items() if (number := amount_of(value)) is not None}
    for name, needed in aggregate(spec, "limits").items():
        if name.startswith("hugepages-") and name in bounds and needed > bounds[name]:
            detail = f"must be greater than or equal to aggregate container limits of {quantity_text(str(needed))}"
            yield invalid(f"{at}.limits[{name}]", quantity_text(limits[name]), detail)
    for index, container in objects(spec, "containers"):
        for name, limit in mapping(container, "resources", "limits").items():
            if name in bounds and (amount_of(limit) or 0) > bounds[name]:
                detail = f"must be less than or equal to pod limits of {quantity_text(limits[name])}"
                yield invalid(f"{at}.containers[{index}][{name}].limits", quantity_text(limit), detail)


def _scheduling(spec: Object, at: str, passed: Tolerated) -> Errors:
    """Most Pods have none of these."""
    yield from one_of_required(spec, at, "preemptionPolicy", ("PreemptLowerPriority", "Never"))
    if spec.keys().isdisjoint(_SCHEDULING):
        return
    yield from label_map(mapping(spec, "nodeSelector"), f"{at}.nodeSelector")
    if spec.get("affinity"):
        values, nodes = passed.selector_values, passed.node_values
        yield from affinity(spec, at, any_selector_values=values, any_node_values=nodes)
    yield from gates(spec, at)
    yield from spread_constraints(spec, at, any_selectors=passed.spread_selectors, former_keys=passed.former_label_keys)
    yield from tolerations(objects(spec, "tolerations"), f"{at}.tolerations", comparisons=passed.comparisons)


def _dns(spec: Object, at: str) -> Errors:
    config, field = spec.get("dnsConfig"), f"{at}.dnsConfig"
    servers, searches = strings(config, "nameservers"), strings(config, "searches")
    if spec.get("dnsPolicy") == "None" and not isinstance(config, dict):
        yield required(field, "must provide `dnsConfig` when `dnsPolicy` is None")
        return
    if spec.get("dnsPolicy") == "None" and not servers:
        yield required(f"{field}.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
        return
    if len(servers) > _MAX_NAMESERVERS:
        yield invalid(f"{field}.nameservers", servers, f"must not have more than {_MAX_NAMESERVERS} nameservers")
    for index, server in enumerate(servers):
        yield from address_errors(server, f"{field}.nameservers[{index}]")
    if len(searches) > _MAX_SEARCHES:
        yield invalid(f"{field}.searches", searches, f"must not have more than {_MAX_SEARCHES} search paths")
    if len(" ".join(searches).encode()) > _MAX_SEARCH_SIZE:
        detail = f"must not have more than {_MAX_SEARCH_SIZE} characters (including spaces) in the search list"
        yield invalid(f"{field}.searches", searches, detail)
    for index, search in enumerate(searches):
        if search != ".":
            for problem in search_errors(search.removesuffix(".")):
                yield invalid(f"{field}.searches[{index}]", search.removesuffix("."), problem)
    for index, option in objects(config, "options"):
        if not text(option, "name"):
            yield required(f"{field}.options[{index}]", "must not be empty")


def search_errors(domain: str) -> list[str]:
    """Return what keeps a text from being a domain that names are looked up in; underscores are allowed."""
    errors = ["must be no more than 253 characters"] if len(domain) > _DOMAIN_SIZE else []
    return errors if _SEARCH.match(domain[: 2 * _DOMAIN_SIZE]) else [*errors, _SEARCH_TEXT]


def _user_namespace(spec: Object, at: str, found: list[tuple[str, Object]], passed: Tolerated) -> Errors:
    if spec.get("hostUsers") is not False:
        return
    detail = "when `hostUsers` is false"
    if spec.get("hostNetwork") is True and not passed.host_network_users:
        yield forbidden(f"{at}.hostNetwork", detail)
    for name in ("hostPID", "hostIPC"):
        if spec.get(name) is True:
            # Kubernetes names these two fields with a capital letter.
            yield forbidden(f"{at}.H{name[1:]}", detail)
    for field, container in found:
        if items(container, "volumeDevices") and not passed.devices:
            yield forbidden(f"{field}.volumeDevices", detail)


def _names(spec: Object, at: str) -> Errors:
    """Check names in a spec: of its hosts, and of other objects."""
    name = spec.get("hostnameOverride")
    if isinstance(name, str):
        field = f"{at}.hostnameOverride"
        if spec.get("setHostnameAsFQDN") is True:
            yield forbidden(field, "may not be specified when setHostnameAsFQDN is true")
        if spec.get("hostNetwork") is True:
            yield forbidden(field, "may not be specified when hostNetwork is true")
        yield from shorter(spec, at, "hostnameOverride", _HOST_NAME_SIZE)
        for problem in dns_subdomain_errors(name):
            yield invalid(field, name, problem)
    yield from subdomain(spec, at, "serviceAccountName", "nodeName", "priorityClassName")
    if isinstance(spec.get("runtimeClassName"), str):
        for problem in dns_subdomain_errors(spec["runtimeClassName"]):
            yield invalid(f"{at}.runtimeClassName", spec["runtimeClassName"], problem)
    yield from within(spec, at, "activeDeadlineSeconds", 1, MAX_INT32)
    yield from label(spec, at, "hostname", "subdomain")
    for index, alias in objects(spec, "hostAliases"):
        field = f"{at}.hostAliases[{index}]"
        yield from address_errors(alias.get("ip"), f"{field}.ip")
        for position, host in enumerate(strings(alias, "hostnames")):
            for problem in dns_subdomain_errors(host):
                yield invalid(f"{field}.hostnames[{position}]", host, problem)


def pod_template(template: Object, at: str, passed: Tolerated = NOTHING) -> list[FieldError]:
    """Return the errors of the template of a pod: its labels, annotations and spec."""
    if is_plain_template(template):
        return []
    spec, annotations = mapping(template, "spec"), mapping(template, "metadata", "annotations")
    errors = list(label_map(mapping(template, "metadata", "labels"), f"{at}.labels"))
    if annotations:
        errors += _annotations(annotations, f"{at}.annotations")
        errors += pod_annotations(annotations, spec, f"{at}.annotations", any_cost=passed.deletion_cost)
        errors += annotation_profiles(annotations, spec, f"{at}.spec")
    errors += pod_spec(spec, f"{at}.spec", None, passed)
    if items(spec, "ephemeralContainers"):
        errors.append(forbidden(f"{at}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"))
    return errors


def _annotations(annotations: Object, field: str) -> Errors:
    size = 0
    for key, value in annotations.items():
        for problem in label_key_errors(key.lower()):
            yield invalid(field, key, problem)
        size += len(key.encode()) + (len(value.encode()) if isinstance(value, str) else 0)
    if size > _ANNOTATIONS_SIZE:
        yield too_long(field, _ANNOTATIONS_SIZE)
