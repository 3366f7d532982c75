"""Permission claims in both versions.

v1alpha2 says verbs and, on bindings, a selector; v1alpha1 says `all` or names objects. What one version cannot say
stands in an annotation beside the object, and finds its claim again by group, resource and identity. Invariant: a claim
that both can say the same way leaves no annotation.
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
    """Claims in one version, and those (as they were) that it cannot say fully."""

    claims: list[Object]
    kept: list[Object]


def key(claim: Object) -> tuple[str, str, str]:
    """What a claim is for; a missing group or identity is an empty one."""
    group, resource, identity = (claim.get(name) for name in ("group", "resource", "identityHash"))
    return (str(group or ""), str(resource or ""), str(identity or ""))


def to_v1alpha1(claims: Iterable[Object], recorded: Iterable[Object], *, scoped: bool) -> ConvertedClaims:
    """Claims of v1alpha2. `recorded` are claims as v1alpha1 wrote them once; `scoped` ones have selectors."""
    old = {key(claim): claim for claim in recorded}
    found, kept = [], []
    for claim in claims:
        found.append(_older(claim, old.get(key(claim)), scoped))
        if not _is_plain(claim, scoped):
            kept.append(claim)
    return ConvertedClaims(found, kept)


def to_v1alpha2(claims: Iterable[Object], kept: Iterable[Object], *, scoped: bool) -> ConvertedClaims:
    """Claims of v1alpha1. `kept` are claims as v1alpha2 had them; the result's are to be recorded, all or none."""
    given = list(claims)
    new = {key(claim): claim for claim in kept}
    found = [_newer(claim, new.get(key(claim)), scoped) for claim in given]
    pairs = zip(given, found, strict=True)
    recorded = any(_old_part(claim) != _old_part(_older(made, None, scoped)) for claim, made in pairs)
    return ConvertedClaims(found, given if recorded else [])


def _common(claim: Object) -> Object:
    common = {name: claim[name] for name in _COMMON if name in claim}
    # v1alpha2 fills in an empty identity, v1alpha1 leaves it out.
    if common.get("identityHash") == "":
        del common["identityHash"]
    return common


def _older(claim: Object, recorded: Object | None, scoped: bool) -> Object:
    selects_all = scoped and _selector(claim).get("matchAll") is True
    said = _old_part(recorded) if recorded is not None else {"all": True} if selects_all else {}
    return {**_common(claim), **said}


def _newer(claim: Object, kept: Object | None, scoped: bool) -> Object:
    # Objects named one by one were never told apart: such a claim was always for all of them.
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
    """Whether v1alpha1 says the same of a claim."""
    if claim.get("verbs") != ALL_VERBS or "defaultSelector" in claim:
        return False
    return not scoped or claim.get("selector") == EVERYTHING
