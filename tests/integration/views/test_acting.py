"""A provider that acts for a consumer's user through its export's view: only what both may do, in one workspace."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.clients.api import Api, eventually
from harness.clients.exports import PATIENCE_S, bind, cluster_of, make_export, objects_path, schema
from integration.views.test_apiexport import ENTER, RBAC, give, grant, view_of

CIRCLES = schema("circles")
HERE = objects_path(CIRCLES)
VERBS = ("create", "update", "patch", "delete")
CODES = {"create": 201, "update": 200, "patch": 200, "delete": 200}
RULE = {"apiGroups": ["shapes.example.com"], "resources": ["circles"]}
FOR_BOB = {"Impersonate-User": "bob"}


class Stage:
    """A provider whose worker acts for bob in a workspace that binds its export."""

    def __init__(self, provider: Api, consumer: Api, *content: str) -> None:
        make_export(provider, "shapes", CIRCLES)
        grant(provider, "worker", *(content or ("*",)))
        bind(consumer, provider.cluster, "shapes")
        self.provider, self.consumer, self._made = provider, consumer, 0
        self.view = view_of(provider)
        self.here = f"/{cluster_of(consumer)}{HERE}"

    def let_bob(self, *verbs: str) -> None:
        """Let bob do this in the consumer's workspace."""
        give(self.consumer, "bob", {**RULE, "verbs": list(verbs)}, ENTER)
        review = {"user": "bob", "resourceAttributes": {"group": RULE["apiGroups"][0], "resource": "circles"}}
        review["resourceAttributes"]["verb"] = verbs[0]  # type: ignore[index]
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": review}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        eventually(lambda: self.consumer.post(path, body).json["status"]["allowed"], "bob may", PATIENCE_S)

    def code(self, verb: str, **headers: str) -> int:
        """The code of a write of a new object, for bob."""
        self._made += 1
        name = f"circle-{self._made}"
        body: dict[str, Any] = {"apiVersion": "shapes.example.com/v1", "kind": "Circle", "metadata": {"name": name}}
        sent = {**FOR_BOB, **headers}
        if verb == "create":
            return self.view.send("POST", self.here, body, headers=sent).code
        made = self.consumer.post(HERE, body).json
        path = f"{self.here}/{name}"
        if verb == "update":
            return self.view.send("PUT", path, {**made, "spec": {"colour": "red"}}, headers=sent).code
        if verb == "patch":
            patch = {"spec": {"colour": "red"}}
            return self.view.send("PATCH", path, patch, kind="application/merge-patch+json", headers=sent).code
        return self.view.send("DELETE", path, headers=sent).code


@pytest.fixture
def stage(provider: Api, consumer: Api) -> Stage:
    return Stage(provider, consumer)


Trial = Callable[[Api, Api], None]


@pytest.mark.parametrize("verb", VERBS)
def test_what_the_user_may_not_do_is_not_done_for_it(stage: Stage, verb: str) -> None:
    assert stage.code(verb) == 403
    stage.let_bob(*(other for other in VERBS if other != verb))
    assert stage.code(verb) == 403
    stage.let_bob(verb)
    assert stage.code(verb) == CODES[verb]


@pytest.mark.parametrize("verb", VERBS)
def test_what_the_provider_may_not_do_it_does_not_do_for_another(provider: Api, consumer: Api, verb: str) -> None:
    stage = Stage(provider, consumer, "impersonate", *(other for other in VERBS if other != verb))
    stage.let_bob(*VERBS)
    assert stage.code(verb) == 403
    grant(provider, "worker", verb)
    eventually(lambda: stage.code(verb) == CODES[verb], "the provider may too", PATIENCE_S)


@pytest.mark.parametrize("verb", VERBS)
def test_who_acts_for_another_needs_to_be_allowed_to(provider: Api, consumer: Api, verb: str) -> None:
    stage = Stage(provider, consumer, *VERBS)
    stage.let_bob(*VERBS)
    assert stage.code(verb) == 403
    grant(provider, "worker", "impersonate")
    eventually(lambda: stage.code(verb) == CODES[verb], "it may act for bob", PATIENCE_S)


@pytest.mark.parametrize(
    "headers",
    [
        {"Impersonate-Group": "system:masters"},
        {"Impersonate-Group": "system:kcp:admin"},
        {"Impersonate-User": "system:kcp:serviceaccount:x:default:y"},
        {"Impersonate-Extra-authorization.kcp.io%2Fwarrant": json.dumps({"user": "kcp-admin"})},
        {"Impersonate-Extra-authentication.kcp.io%2Fscopes": "cluster:root"},
        {"Impersonate-Extra-authentication.kcp.io%2Fcluster-name": "root"},
    ],
    ids=["masters", "admin", "foreign account", "warrant", "scope", "home"],
)
def test_no_privilege_is_taken_on_with_the_user(stage: Stage, headers: dict[str, str]) -> None:
    stage.let_bob(*VERBS)
    assert stage.code("create") == 201
    assert stage.code("create", **headers) == 403


def test_nobody_acts_for_another_across_workspaces_or_outside(stage: Stage) -> None:
    stage.let_bob("list")
    for path, code in ((stage.here, 200), (f"/*{objects_path(CIRCLES, namespace='')}", 403)):
        assert stage.view.send("GET", path, headers=FOR_BOB).code == code
    worker = Api(stage.consumer.shard, cluster_of(stage.consumer), token="worker-token")
    assert worker.send("GET", HERE, headers=FOR_BOB).code == 403


def test_a_watch_for_another_ends_with_the_users_permission(stage: Stage) -> None:
    name = give(stage.consumer, "bob", {**RULE, "verbs": ["list", "watch"]}, ENTER)
    eventually(lambda: stage.view.send("GET", stage.here, headers=FOR_BOB).code == 200, "bob lists", PATIENCE_S)
    connection = stage.view.open()
    connection.timeout = 2 * PATIENCE_S
    headers = stage.view.headers(more=FOR_BOB)
    connection.request("GET", f"{stage.view.prefix}{stage.here}?watch=1", headers=headers)
    response = connection.getresponse()
    assert response.status == 200
    stage.consumer.delete(f"{RBAC}/clusterrolebindings/{name}")
    assert response.read() == b""
    connection.close()
