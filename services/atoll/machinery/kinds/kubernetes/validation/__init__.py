"""Checks of Kubernetes' kinds, by component: what kube-apiserver finds wrong with an object of the right types.

`served_kinds` puts them into each Kind. They see one object, or one and the stored object before it: permissions and
other objects are for admission, metadata and the schema are checked elsewhere. A file has a subject (containers,
volumes, scheduling, ...) or the kinds of a group, and `rules` what all are made of. They take objects that are pruned
and have their defaults. Invariant: everything is pure, takes linear time, and never raises; a component without an
entry has no checks of its own.
"""

from __future__ import annotations

from atoll.machinery.kinds.kubernetes.validation.checks_of_kind import Check, UpdateCheck, Validators

__all__ = ["Check", "UpdateCheck", "Validators", "validators"]

_NONE = Validators()


def validators(component: str) -> Validators:
    """Return the checks of a component, such as `io.k8s.api.apps.v1.Deployment`."""
    from atoll.machinery.kinds.kubernetes.validation.registry import table

    return table().get(component, _NONE)
