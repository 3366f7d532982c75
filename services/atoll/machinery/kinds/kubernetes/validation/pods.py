"""Pods: what may change after they are created, and what nodes report of them."""

from __future__ import annotations

from atoll.machinery.kinds.checks import items, mapping, objects, text
from atoll.machinery.kinds.kubernetes.validation.annotations import (
    MIRROR,
    annotation_profiles,
    cost_is_valid,
    pod_annotations,
)
from atoll.machinery.kinds.kubernetes.validation.containers import image_padding
from atoll.machinery.kinds.kubernetes.validation.podspec import pod_spec
from atoll.machinery.kinds.kubernetes.validation.rules import (
    MAX_INT32,
    Errors,
    annotations_of,
    integer,
    needed,
    range_text,
    same,
)
from atoll.machinery.kinds.kubernetes.validation.scheduling import REQUIRED
from atoll.machinery.kinds.kubernetes.validation.tolerated import NOTHING, Tolerated, tolerated
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import FieldError
from atoll.machinery.schema.fielderrors import forbidden, invalid

_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SPEC_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod_errors(obj: Object, passed: Tolerated) -> Errors:
    """Check a pod for itself, as every write of it does."""
    spec, annotations = mapping(obj, "spec"), annotations_of(obj)
    if annotations:
        yield from pod_annotations(annotations, spec, "metadata.annotations", any_cost=passed.deletion_cost)
    yield from pod_spec(spec, "spec", obj, passed)
    if not text(spec, "serviceAccountName"):
        for index, volume in objects(spec, "volumes"):
            for position, source in objects(volume, "projected", "sources"):
                if source.get("serviceAccountToken") is not None:
                    field = f"spec.volumes[{index}].projected.sources[{position}].serviceAccountToken"
                    yield forbidden(field, "must not be specified when serviceAccountName is not set")
    for name in ("containers", "initContainers"):
        for index, container in objects(spec, name):
            yield from image_padding(container, f"spec.{name}[{index}]")


def validate(obj: Object) -> list[FieldError]:
    """Check a new pod."""
    spec, errors = mapping(obj, "spec"), list(pod_errors(obj, NOTHING))
    if items(spec, "ephemeralContainers"):
        errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if text(spec, "nodeName") and items(spec, "schedulingGates"):
        errors.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return errors + list(annotation_profiles(annotations_of(obj), spec, "spec"))


def passed_of(old: Object) -> Tolerated:
    """Return what a change of a pod may keep."""
    return tolerated(mapping(old, "spec"), deletion_cost=not cost_is_valid(annotations_of(old)))


def validate_update(obj: Object, old: Object) -> list[FieldError]:
    """Check that a pod changes only in what may change while it runs."""
    spec, before, passed = mapping(obj, "spec"), mapping(old, "spec"), passed_of(old)
    errors = [*pod_errors(obj, passed), *annotation_changes(annotations_of(obj), annotations_of(old))]
    for name in ("containers", "initContainers"):
        if len(items(spec, name)) != len(items(before, name)):
            return [*errors, forbidden(f"spec.{name}", "pod updates may not add or remove containers")]
        for index, container in objects(spec, name):
            errors += needed(container, f"spec.{name}[{index}]", "image")
            errors += image_padding(container, f"spec.{name}[{index}]")
    deadline = list(_deadline(spec, before))
    errors += deadline
    if deadline and spec.get("activeDeadlineSeconds") is not None:
        return errors
    errors += _toleration_changes(spec, before)
    errors += _gate_changes(spec, before)
    if same(spec, before):
        return errors
    fixed = _fixed(spec, before)
    if items(before, "schedulingGates"):
        errors += _gated_changes(fixed, before)
    if not same(fixed, before):
        errors.append(forbidden("spec", _SPEC_TEXT))
    return errors


def annotation_changes(annotations: Object, before: Object) -> Errors:
    """Check annotations of a pod that stay as they are."""
    for name in {**before, **annotations}:
        if annotations.get(name) == before.get(name) or not (name == MIRROR or name.startswith(_APPARMOR)):
            continue
        verb = "remove or update" if name in before else "add"
        what = "mirror pod annotation" if name == MIRROR else "AppArmor annotations"
        yield forbidden(f"metadata.annotations[{name}]", f"may not {verb} {what}")


def _deadline(spec: Object, before: Object) -> Errors:
    field, value = "spec.activeDeadlineSeconds", integer(spec.get("activeDeadlineSeconds"))
    old = integer(before.get("activeDeadlineSeconds"))
    if value is None:
        if old is not None:
            yield invalid(field, None, "must not update from a positive integer to nil value")
        return
    if not 0 <= value <= MAX_INT32:
        yield invalid(field, value, range_text(0, MAX_INT32))
    elif old is not None and old < value:
        yield invalid(field, value, "must be less than or equal to previous value")


def _toleration_changes(spec: Object, before: Object) -> Errors:
    def key(toleration: Object) -> frozenset[tuple[str, str]]:
        return frozenset(
            (name, str(value)) for name, value in toleration.items() if name != "tolerationSeconds" and value
        )

    kept = {key(each) for _, each in objects(spec, "tolerations")}
    for _, each in objects(before, "tolerations"):
        if key(each) not in kept:
            detail = "existing toleration can not be modified except its tolerationSeconds"
            yield forbidden("spec.tolerations", detail)


def _gate_changes(spec: Object, before: Object) -> Errors:
    known = {text(each, "name") for _, each in objects(before, "schedulingGates")}
    for index, gate in objects(spec, "schedulingGates"):
        if text(gate, "name") not in known:
            detail = f"only deletion is allowed, but found new scheduling gate '{text(gate, 'name')}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", detail)


def _fixed(spec: Object, before: Object) -> Object:
    """Return the new spec with the old values of what may change."""
    fixed = dict(spec)
    for name in ("containers", "initContainers"):
        pairs = zip(items(spec, name), items(before, name), strict=True)
        if items(spec, name):
            fixed[name] = [{**new, "image": mapping(old).get("image")} for new, old in pairs if isinstance(new, dict)]
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        fixed[name] = before.get(name)
    grace = integer(before.get("terminationGracePeriodSeconds"))
    if grace is not None and grace < 0 and fixed.get("terminationGracePeriodSeconds") == 1:
        fixed["terminationGracePeriodSeconds"] = grace
    return fixed


def _gated_changes(fixed: Object, before: Object) -> Errors:
    """Check what may be added to a pod that waits for its gates; `fixed` gets the old values of it."""
    chosen, old_chosen = mapping(fixed, "nodeSelector"), mapping(before, "nodeSelector")
    if any(chosen.get(key) != value for key, value in old_chosen.items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid("spec.nodeSelector", chosen, detail)
    fixed["nodeSelector"] = before.get("nodeSelector")
    affinity = dict(mapping(fixed, "affinity"))
    nodes, old_nodes = affinity.pop("nodeAffinity", None), mapping(before, "affinity").get("nodeAffinity")
    if not same(nodes, old_nodes):
        yield from _node_changes(mapping(nodes), mapping(old_nodes))
    if old_nodes is not None:
        affinity["nodeAffinity"] = old_nodes
    fixed["affinity"] = affinity if affinity or before.get("affinity") is not None else None


def _node_changes(nodes: Object, before: Object) -> Errors:
    field = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    if before.get(REQUIRED) is None:
        return
    terms, old_terms = items(nodes, REQUIRED, "nodeSelectorTerms"), items(before, REQUIRED, "nodeSelectorTerms")
    if old_terms and len(terms) != len(old_terms):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield invalid(field, terms, detail)
        return
    for index, (term, old) in enumerate(zip(terms, old_terms, strict=False)):
        if not _only_adds(term, old):
            detail = "only additions are allowed (no mutations or deletions)"
            yield invalid(f"{field}[{index}]", term, detail)


def _only_adds(term: object, old: object) -> bool:
    names = ("matchExpressions", "matchFields")
    if not any(items(old, name) for name in names):
        return not any(items(term, name) for name in names)
    return all(same(items(term, name)[: len(items(old, name))], items(old, name)) for name in names)
