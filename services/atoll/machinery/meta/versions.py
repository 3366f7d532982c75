"""The order of versions of an API, as Kubernetes has it."""

from __future__ import annotations

import re

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?\Z")


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Return Kubernetes' sort key of a version name, preferred first: v2, v1, v1beta1, v1alpha1, then all others."""
    match = _VERSION.match(version)
    if match is None:
        return (3, 0, 0, version)
    stability = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stability, -int(match[1]), -int(match[3] or 0), version)
