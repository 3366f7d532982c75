"""Permission claims in both versions.

Claims of v1alpha2 have verbs and, on bindings, a selector; claims of v1alpha1 have `all` or list objects. Content that
one version cannot express is kept in an annotation of the object and matched to its claim by group, resource and
identity. Invariant: a claim that both versions can express needs no annotation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from atoll.machinery.meta.objects import Object

ALL_VERBS = ["*"]
EVERYTHING: Object = {"matchAll": True}
_COMMON = ("group", "resource", "identityHash", "state")
_OLD = ("all", "resourceSelector")
_NEW = ("verbs", "defaultSelector", "selector")


class ConvertedClaims(NamedTuple):
    """Claims in one version, and the original claims (`kept`) that this version cannot express fully."""

    claims: list[Object]
    kept: list[Object]


def key(claim: Object) -> tuple[str, str, str]:
    """Return group, resource and identity of a claim; a missing group or identity is empty."""
    group, resource, identity = (claim.get(name) for name in ("group", "resource", "identityHash"))
    return (str(group or ""), str(resource or ""), str(identity or ""))


def to_v1alpha1(claims: Iterable[Object], recorded: Iterable[Object], *, scoped: bool) -> ConvertedClaims:
    """Convert claims from v1alpha2. `recorded` holds claims as written in v1alpha1; `scoped` claims have selectors."""
    old = {key(claim): claim for claim in recorded}
    found, kept = [], []
    for claim in claims:
        found.append(_older(claim, old.get(key(claim)), scoped))
        if not _is_plain(claim, scoped):
            kept.append(claim)
    return ConvertedClaims(found, kept)


def to_v1alpha2(claims: Iterable[Object], kept: Iterable[Object], *, scoped: bool) -> ConvertedClaims:
    """Convert claims from v1alpha1. `kept` holds claims as v1alpha2 had them; the result's `kept` has all or none."""
    given = list(claims)
    new = {key(claim): claim for claim in kept}
    found = [_newer(claim, new.get(key(claim)), scoped) for claim in given]
    pairs = zip(given, found, strict=True)
    recorded = any(_old_part(claim) != _old_part(_older(made, None, scoped)) for claim, made in pairs)
    return ConvertedClaims(found, given if recorded else [])


def _common(claim: Object) -> Object:
    common = {name: claim[name] for name in _COMMON if name in claim}
    # v1alpha2 has an empty identityHash where v1alpha1 omits the field.
    if common.get("identityHash") == "":
        del common["identityHash"]
    return common


def _older(claim: Object, recorded: Object | None, scoped: bool) -> Object:
    selects_all = scoped and _selector(claim).get("matchAll") is True
    said = _old_part(recorded) if recorded is not None else {"all": True} if selects_all else {}
    return {**_common(claim), **said}


def _newer(claim: Object, kept: Object | None, scoped: bool) -> Object:
    # `resourceSelector` was never evaluated: such a claim covers all objects.
    said: Object = {"verbs": list(ALL_VERBS), **({"selector": dict(EVERYTHING)} if scoped else {})}
    if kept is not None:
        said.update({name: kept[name] for name in _NEW if name in kept})
    return {"identityHash": "", **_common(claim), **said}


def _old_part(claim: Object) -> Object:
    return {name: claim[name] for name in _OLD if name in claim}


def _selector(claim: Object) -> Object:
    selector: Any = claim.get("selector")
    return selector if isinstance(selector, dict) else {}


def _is_plain(claim: Object, scoped: bool) -> bool:
    """Whether v1alpha1 can express a claim fully."""
    if claim.get("verbs") != ALL_VERBS or "defaultSelector" in claim:
        return False
    return not scoped or claim.get("selector") == EVERYTHING
