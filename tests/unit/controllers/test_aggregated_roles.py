"""Rules of aggregated ClusterRoles: those of every role that any selector matches, once each, in the order of names."""

from __future__ import annotations

from atoll.controllers.kubernetes.clusterroles import union
from harness.clients.api import Object


def rule(resource: str) -> Object:
    return {"apiGroups": [""], "resources": [resource], "verbs": ["get"]}


def role(name: str, *resources: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}, "rules": [rule(each) for each in resources]}


def test_a_role_is_included_if_any_of_the_selectors_matches_it() -> None:
    rules = {"clusterRoleSelectors": [{"matchLabels": {"to": "view"}}, {"matchLabels": {"to": "edit"}}]}
    whole = role("whole", "old", to="edit") | {"aggregationRule": rules}
    others = [role("c", "secrets", to="no"), role("b", "pods", "nodes", to="edit"), role("a", "nodes", to="view")]
    assert union(whole, [whole, *others]) == [rule("nodes"), rule("pods")]
