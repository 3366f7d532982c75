"""What an edge cluster refuses is reported within seconds, all else proceeds, and what is mended arrives."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from atoll.cli.kubectl.kubestellar.manifest import Registration, rights
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Target
from atoll.machinery.client.resource import Resource
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import NotFound
from atoll.syncer.syncer import Options
from harness.clients.api import configmap, crd
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import TIMING, Run, syncing
from harness.waits import until

CONFIGMAPS, SECRETS = Resource("", "v1", "configmaps"), Resource("", "v1", "secrets")
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
QUOTAS = Resource("", "v1", "resourcequotas")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
RBAC, ADMISSION, GROUP = "rbac.authorization.k8s.io", "admissionregistration.k8s.io", "refusals.example.com"
ROLES = Resource(RBAC, "v1", "clusterroles", namespaced=False)
WEBHOOKS = Resource(ADMISSION, "v1", "validatingwebhookconfigurations", namespaced=False)

#: Row of an error: resource, name, operation, reason.
Row = tuple[str, str, str, str]


@pytest.fixture
async def namespace(edge: Client) -> str:
    """A Namespace of the edge, of somebody there."""
    name = f"r{uuid.uuid4().hex[:8]}"
    await edge.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def reports(view: MailboxView, *rows: Row) -> Callable[[], Awaitable[Any]]:
    async def look() -> bool:
        fields = ("resource", "name", "operation", "reason")
        found = {tuple(each[field] for field in fields) for each in view.config_status.get("errors") or ()}
        return bool(view.config_status) and found == set(rows)

    return look


def has(edge: Client, namespace: str, name: str, data: dict[str, str]) -> Callable[[], Awaitable[Any]]:
    async def look() -> bool:
        try:
            return (await edge.get(CONFIGMAPS, name, namespace)).get("data") == data
        except NotFound:
            return False

    return look


async def refused(view: MailboxView, edge: Client, namespace: str, ref: ObjectRef, reason: str) -> None:
    """An object that was placed before is reported, and another one is there."""
    view.place(configmap("good", {"a": ref.name}, namespace=namespace))
    await until(has(edge, namespace, "good", {"a": ref.name}), "the good one is there")
    await until(reports(view, (ref.resource, ref.name, "apply", reason)), "the bad one is reported")


async def test_a_name_that_the_edge_does_not_take(view: MailboxView, edge: Client, run: Run, namespace: str) -> None:
    async with run():
        (ref,) = view.place(configmap("Not_A_Name", namespace=namespace))
        await refused(view, edge, namespace, ref, "Invalid")
        view.withdraw(ref)
        await until(reports(view), "nothing is left to report")


@pytest.mark.long
async def test_a_kind_that_the_edge_lacks(view: MailboxView, edge: Client, run: Run, namespace: str) -> None:
    ghost = {"apiVersion": f"{GROUP}/v1", "kind": "Ghost", "metadata": {"name": "g", "namespace": namespace}}
    async with run():
        (ref,) = view.place(ghost, resource="ghosts")
        await refused(view, edge, namespace, ref, "NotServed")
        await edge.apply(CRDS, crd("ghosts", GROUP), manager="somebody")
        await until(reports(view), "it is there once the kind is")
        assert (await edge.get(Resource(GROUP, "v1", "ghosts"), "g", namespace))["metadata"]["labels"]


@pytest.mark.long
async def test_a_version_that_the_edge_does_not_serve(
    view: MailboxView, edge: Client, run: Run, namespace: str
) -> None:
    rafts = Resource(GROUP, "v1", "rafts")
    raft = {"apiVersion": f"{GROUP}/v1", "kind": "Raft", "metadata": {"name": "r", "namespace": namespace}, "spec": {}}
    definition = crd("rafts", GROUP)
    await edge.apply(CRDS, definition, manager="somebody")

    def has_colour(colour: str) -> Callable[[], Awaitable[Any]]:
        async def look() -> bool:
            try:
                return bool((await edge.get(rafts, "r", namespace))["spec"].get("colour") == colour)
            except NotFound:
                return False

        return look

    async with run():
        view.place({**raft, "spec": {"colour": "red"}}, resource="rafts")
        await until(has_colour("red"), "it is there at the version that both serve")
        (ref,) = view.place({**raft, "apiVersion": f"{GROUP}/v2", "spec": {"colour": "green"}}, resource="rafts")
        await refused(view, edge, namespace, ref, "NotServed")
        assert await has_colour("red")(), "the last good copy stays"
        (first,) = definition["spec"]["versions"]
        versions = [first, {**first, "name": "v2", "storage": False}]
        await edge.apply(CRDS, {**definition, "spec": {**definition["spec"], "versions": versions}}, manager="somebody")
        await until(has_colour("green"), "it follows once the edge serves the version")
        await until(reports(view), "nothing is left to report")


@pytest.mark.long
async def test_a_field_that_does_not_change_keeps_what_it_had(
    view: MailboxView, edge: Client, run: Run, namespace: str
) -> None:
    fixed = {**configmap("fixed", {"a": "1"}, namespace=namespace), "immutable": True}
    async with run():
        (ref,) = view.place(fixed)
        await until(has(edge, namespace, "fixed", {"a": "1"}), "it is there")
        view.place({**fixed, "data": {"a": "2"}})
        await refused(view, edge, namespace, ref, "Invalid")
        assert await has(edge, namespace, "fixed", {"a": "1"})()
        view.place(fixed)
        await until(reports(view), "what it was is right again")


@pytest.mark.long
async def test_a_definition_that_is_invalid(view: MailboxView, edge: Client, run: Run, namespace: str) -> None:
    definition = crd("wrecks", GROUP)
    broken = {**definition, "spec": {**definition["spec"], "scope": "Everywhere"}}
    wreck = {"apiVersion": f"{GROUP}/v1", "kind": "Wreck", "metadata": {"name": "w", "namespace": namespace}}
    async with run():
        (ref,) = view.place(broken, resource="customresourcedefinitions")
        view.place(wreck, resource="wrecks")
        await refused(view, edge, namespace, ref, "Invalid")
        view.place(definition, resource="customresourcedefinitions")
        await until(reports(view), "the mended one is there")

        async def made() -> bool:
            try:
                return bool(await edge.get(Resource(GROUP, "v1", "wrecks"), "w", namespace))
            except NotFound:
                return False

        await until(made, "with its objects")


@pytest.mark.long
async def test_an_object_of_three_megabytes(view: MailboxView, edge: Client, run: Run, namespace: str) -> None:
    large = configmap("large", {"a": "x" * (3 << 20)}, namespace=namespace)
    async with run():
        (ref,) = view.place(large)
        await refused(view, edge, namespace, ref, "RequestEntityTooLarge")
        view.place({**large, "data": {"a": "small"}})
        await until(has(edge, namespace, "large", {"a": "small"}), "what is small enough is there")
        await until(reports(view), "nothing is left to report")


async def test_a_quota_of_the_edge(view: MailboxView, edge: Client, run: Run, namespace: str) -> None:
    view.place(configmap("good", {"a": "0"}, namespace=namespace))
    async with run():
        await until(has(edge, namespace, "good", {"a": "0"}), "it is there")
        used = len((await edge.list(CONFIGMAPS, namespace))["items"])
        quota: Object = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": namespace}}
        await edge.create(QUOTAS, {**quota, "spec": {"hard": {"count/configmaps": str(used)}}})

        async def counted() -> bool:
            return bool((await edge.get(QUOTAS, "q", namespace)).get("status", {}).get("used"))

        await until(counted, "the quota is in effect")
        (ref,) = view.place(configmap("more", {"a": "1"}, namespace=namespace))
        await refused(view, edge, namespace, ref, "Forbidden")
        await edge.request("DELETE", QUOTAS.path(namespace, "q"))
        await until(has(edge, namespace, "more", {"a": "1"}), "without the quota it is there")
        await until(reports(view), "nothing is left to report")


@pytest.mark.long
async def test_a_webhook_of_the_edge_that_does_not_answer(
    view: MailboxView, edge: Client, run: Run, namespace: str
) -> None:
    """The answer is 500, which says something about the object here."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    hook = {
        "name": "none.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule],
        "namespaceSelector": selector,
        "matchConditions": [{"name": "bad", "expression": "object.metadata.name == 'bad'"}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    head = {"apiVersion": f"{ADMISSION}/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": namespace}}
    await edge.create(WEBHOOKS, {**head, "webhooks": [hook]})
    async with run():
        (ref,) = view.place(configmap("bad", {"a": "1"}, namespace=namespace))
        await refused(view, edge, namespace, ref, "InternalError")
        await edge.request("DELETE", WEBHOOKS.path("", namespace))
        await until(has(edge, namespace, "bad", {"a": "1"}), "without the webhook it is there")
        await until(reports(view), "nothing is left to report")


@pytest.mark.long
@pytest.mark.parametrize("years", [-1, 1])
async def test_a_clock_that_is_set_by_a_year_delays_no_other_attempt(
    view: MailboxView, edge: Client, run: Run, namespace: str, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    now_s, offset_s = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: now_s() + offset_s[0])
    theirs = {**configmap("held", {"a": "theirs"}, namespace=namespace), "immutable": True}
    await edge.create(CONFIGMAPS, theirs)
    (ref,) = view.place(configmap("held", {"a": "1"}, namespace=namespace))
    async with run():
        await refused(view, edge, namespace, ref, "Invalid")
        offset_s[0] = years * 365 * 86400.0
        # Nobody tells the syncer: its next attempt finds it.
        await edge.request("DELETE", CONFIGMAPS.path(namespace, "held"))
        await until(has(edge, namespace, "held", {"a": "1"}), "it is there")
        await until(reports(view), "nothing is left to report")


@pytest.mark.long
async def test_a_kind_that_the_edge_does_not_let_the_syncer_read(
    view: MailboxView, edge: Client, cluster: tuple[Target, str], namespace: str
) -> None:
    await grant(edge, namespace, "configmaps")
    restricted = replace(cluster[0], headers=(("authorization", f"Bearer {await _token(edge, namespace)}"),))
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": namespace}}
    view.place(secret, resource="secrets")
    view.place(configmap("good", {"a": "1"}, namespace=namespace))
    options = Options(f"restricted-{namespace}", 500.0, 500, None, TIMING, TIMING)
    async with syncing((restricted, cluster[1]), view.target, options):
        await until(has(edge, namespace, "good", {"a": "1"}), "the good one is there")
        await until(reports(view, ("secrets", "", "list", "Forbidden")), "the kind is reported")
        (row,) = view.config_status["conditions"]
        assert (row["status"], row["message"]) == ("False", "1 fail, such as secrets")
        secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}
        role = await edge.get(ROLES, "default")
        await edge.update(ROLES, {**role, "rules": [*role["rules"], secrets]})
        await until(reports(view, ("secrets", "s", "get", "Forbidden")), "it may be listed, and not read")
        await grant(edge, namespace, "configmaps", "secrets")
        await until(reports(view), "nothing is left to report")
        assert await edge.get(SECRETS, "s", namespace)


async def grant(edge: Client, namespace: str, *resources: str) -> None:
    """Give the account `default` the rights of a syncer that is narrowed to these resources, and entrance."""
    text = {"id": "default", "namespace": namespace, "target": "", "uid": "", "cluster": "", "token": "", "image": ""}
    found = Registration(**text, replicas=1, qps=1.0, burst=1, resources=resources)
    entrance: Object = {"nonResourceURLs": ["*"], "verbs": ["*"]}
    for each in rights(found):
        resource = Resource(RBAC, "v1", f"{each['kind'].lower()}s", namespaced="namespace" in each["metadata"])
        body = {**each, "rules": [*each["rules"], entrance]} if each["kind"] == "ClusterRole" else each
        await edge.apply(resource, body)


async def _token(edge: Client, namespace: str) -> str:
    accounts = Resource("", "v1", "serviceaccounts")

    async def has_account() -> bool:
        try:
            return bool(await edge.get(accounts, "default", namespace))
        except NotFound:
            return False

    await until(has_account, "the account is there")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await edge.request("POST", f"{accounts.path(namespace, 'default')}/token", None, request)
    return str(answer["status"]["token"])
