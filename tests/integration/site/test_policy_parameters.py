"""Parameters of a provider's policies act on its consumers on another shard, and nothing else there shows them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from atoll.controllers.exports.named_parameters import MAX_BYTES
from atoll.machinery.stream.connection import Connection
from atoll.machinery.stream.consumer.pull_consumer import PullConsumer
from atoll.machinery.stream.credential_file import read_access
from atoll.machinery.stream.permissions import follower_consumer
from atoll.machinery.stream.subjects import STATE, all_subjects, stream_name
from atoll.standalone.site.credentials import CACHE_USER
from harness.clients.api import Answer, Api, Object, configmap, crd, define, eventually
from harness.clients.exports import BINDINGS, an_object, bind, binding, make_export, schema
from harness.clients.policies import BINDINGS as POLICY_BINDINGS
from harness.clients.policies import GROUP, POLICIES, Policies, policy, rule
from harness.clients.policies import binding as policy_binding
from harness.clients.site_workspaces import WORKSPACES, on, ready, workspace
from harness.clients.tenants import bind as bind_role
from harness.clients.tenants import user
from harness.servers.cache_server_process import CacheProcess
from harness.servers.site import Site

SHAPES = "/apis/shapes.example.com/v1"
CIRCLES = f"{SHAPES}/namespaces/default/circles"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
RULES = [rule("circles", group="shapes.example.com")]
CONFIGMAP = {"apiVersion": "v1", "kind": "ConfigMap"}
PARAMETERS = "internal.atoll.dev/v1/policyparameters"
PATIENCE_S = 60.0
#: What is in every parameter, and in no other object of the site.
HIDDEN = "hidden-7d3f5a"


@pytest.fixture(scope="module")
def provider(site: Site, admin: Api) -> Iterator[Api]:
    made = ready(admin, workspace(admin, selector=on("shard-1")))
    api = site.shards["shard-1"].api(made["spec"]["cluster"])
    make_export(api, "shapes", schema("circles"))
    for plural, scope in (("limits", "Namespaced"), ("bounds", "Cluster")):
        define(api, crd(plural, scope=scope))
    yield api
    api.close()


@pytest.fixture(scope="module")
def consumer(site: Site, admin: Api, provider: Api) -> Iterator[Api]:
    made = ready(admin, workspace(admin, selector=on("shard-2")))
    api = site.shards["shard-2"].api(made["spec"]["cluster"])
    probe = binding(provider.cluster, "shapes", called="probe")
    dry = f"{BINDINGS}?dryRun=All"
    eventually(lambda: api.post(dry, probe, expect=0).code == 201, "the export is known", PATIENCE_S)
    bind(api, provider.cluster, "shapes")
    yield api
    api.close()


def attempt(api: Api, name: str = "round") -> Answer:
    return api.post(f"{CIRCLES}?dryRun=All", an_object(schema("circles"), name), expect=0)


def says(api: Api, text: str) -> None:
    """Wait until a write is refused with a text; "": until it is accepted."""

    def look() -> bool:
        answer = attempt(api)
        return answer.code == 201 if not text else answer.code == 422 and text in answer.message

    eventually(look, text or "accepted", PATIENCE_S)


@contextmanager
def installed(provider: Api, called: str, kind: Object, field: str, **reference: Any) -> Iterator[None]:
    """A policy of the provider that refuses all circles, with a text that holds a field of its parameter."""
    validation = {"expression": "false", "messageExpression": f"'says ' + {field}"}
    reference = {"parameterNotFoundAction": "Deny", **reference}
    body = policy(called, validation, rules=RULES, paramKind=kind)
    Policies(provider).add(body, policy_binding(called, called, paramRef=reference))
    try:
        yield
    finally:
        provider.delete(f"{POLICY_BINDINGS}/{called}")
        provider.delete(f"{POLICIES}/{called}")


@pytest.mark.long
def test_a_configmap_by_name_its_change_and_its_deletion_count_also_with_its_shard_down(
    site: Site, provider: Api, consumer: Api
) -> None:
    provider.post(CONFIGMAPS, configmap("named", {"text": HIDDEN}))
    with installed(provider, "by-name", CONFIGMAP, "params.data.text", name="named", namespace="default"):
        says(consumer, f"says {HIDDEN}")
        provider.patch(f"{CONFIGMAPS}/named", {"data": {"text": "changed"}})
        says(consumer, "says changed")
        site.shards["shard-1"].stop()
        try:
            says(consumer, "says changed")
        finally:
            provider.close()
            site.shards["shard-1"].start()
        provider.delete(f"{CONFIGMAPS}/named")
        says(consumer, "no params found for policy binding with `Deny` parameterNotFoundAction")
        provider.patch(f"{POLICY_BINDINGS}/by-name", {"spec": {"paramRef": {"parameterNotFoundAction": "Allow"}}})
        says(consumer, "")
        provider.post(CONFIGMAPS, configmap("named", {"text": "returned"}))
        says(consumer, "says returned")
        provider.patch(f"{POLICY_BINDINGS}/by-name", {"spec": {"paramRef": {"name": "other"}}})
        says(consumer, "")
        provider.post(CONFIGMAPS, configmap("other", {"text": "another"}))
        says(consumer, "says another")
    says(consumer, "")


def test_custom_objects_by_selector_are_those_of_the_namespace_of_the_request(provider: Api, consumer: Api) -> None:
    kind = {"apiVersion": "shapes.example.com/v1", "kind": "Limit"}
    provider.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    for space, text in (("default", "here"), ("team", "there")):
        obj = {**kind, "metadata": {"name": "chosen", "labels": {"chosen": "yes"}}, "spec": {"colour": text}}
        provider.post(f"{SHAPES}/namespaces/{space}/limits", obj)
    with installed(provider, "selected", kind, "params.spec.colour", selector={"matchLabels": {"chosen": "yes"}}):
        says(consumer, "says here")
        provider.patch(f"{SHAPES}/namespaces/default/limits/chosen", {"metadata": {"labels": {"chosen": "no"}}})
        says(consumer, "no params found")
        provider.patch(f"{SHAPES}/namespaces/default/limits/chosen", {"metadata": {"labels": {"chosen": "yes"}}})
        says(consumer, "says here")
    says(consumer, "")


def test_a_cluster_scoped_custom_object_by_name(provider: Api, consumer: Api) -> None:
    kind = {"apiVersion": "shapes.example.com/v1", "kind": "Bound"}
    provider.post(f"{SHAPES}/bounds", {**kind, "metadata": {"name": "outer"}, "spec": {"colour": "wide"}})
    with installed(provider, "scoped", kind, "params.spec.colour", name="outer"):
        says(consumer, "says wide")
        provider.delete(f"{SHAPES}/bounds/outer")
        says(consumer, "no params found")
    says(consumer, "")


def test_a_mutating_policy_takes_parameters_of_another_shard(provider: Api, consumer: Api) -> None:
    provider.post(CONFIGMAPS, configmap("colours", {"text": "red"}))
    expression = "Object{spec: Object.spec{colour: params.data.text}}"
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "paints"}}
    spec = {
        "matchConstraints": {"resourceRules": [{**RULES[0], "operations": ["CREATE"]}]},
        "paramKind": CONFIGMAP,
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }
    reference = {"name": "colours", "namespace": "default", "parameterNotFoundAction": "Deny"}
    bound = {"policyName": "paints", "paramRef": reference}
    provider.post(f"{GROUP}/mutatingadmissionpolicies", {**head, "kind": "MutatingAdmissionPolicy", "spec": spec})
    provider.post(
        f"{GROUP}/mutatingadmissionpolicybindings", {**head, "kind": "MutatingAdmissionPolicyBinding", "spec": bound}
    )

    def painted() -> bool:
        answer = attempt(consumer)
        return answer.code == 201 and answer.json.get("spec", {}).get("colour") == "red"

    try:
        eventually(painted, "painted by the parameter", PATIENCE_S)
    finally:
        provider.delete(f"{GROUP}/mutatingadmissionpolicybindings/paints")
        provider.delete(f"{GROUP}/mutatingadmissionpolicies/paints")
    says(consumer, "")


def test_parameters_beyond_the_bound_are_not_replicated_and_the_refusal_says_so(provider: Api, consumer: Api) -> None:
    provider.post(CONFIGMAPS, configmap("large", {"text": "x" * MAX_BYTES}))
    with installed(provider, "large", CONFIGMAP, "params.data.text", name="large", namespace="default"):
        says(consumer, "those of a logical cluster exceed")
        metrics = provider.at("").get("/metrics").body.decode()
        assert re.search(r"^atoll_policy_parameters_refused_total [1-9]", metrics, re.MULTILINE)
        provider.patch(f"{CONFIGMAPS}/large", {"data": {"text": "small"}})
        says(consumer, "says small")
    says(consumer, "")


async def state_of(site: Site, shard: str) -> bytes:
    """All that the state stream of a shard holds."""
    access = read_access(site.nats.url, str(site.layout.credential(CACHE_USER))).for_reading
    connection = await Connection.open(access.at(shard), "reading")
    reader = PullConsumer(connection, stream_name(STATE, shard), follower_consumer(access.user))
    found = bytearray()
    try:
        await reader.open({"filter_subjects": list(all_subjects(STATE, shard)), "deliver_policy": "all"})
        while batch := await reader.batch(wait_s=0):
            found += b"\n".join(message.data for message in batch)
    finally:
        await reader.close()
        await connection.close()
    return bytes(found)


async def test_a_secret_is_never_on_the_stream_and_the_refusal_says_so(
    site: Site, provider: Api, consumer: Api
) -> None:
    secret, public = "c2VhbGVkLTRiMWU=", "public-4b1e"
    kind = {"apiVersion": "v1", "kind": "Secret"}

    def refused() -> None:
        """Read the stream while a Secret is the parameter of one binding, and a ConfigMap of another."""
        provider.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}, "data": {"text": secret}})
        provider.post(CONFIGMAPS, configmap("public", {"text": public}))
        with installed(provider, "open", CONFIGMAP, "params.data.text", name="public", namespace="default"):
            says(consumer, f"says {public}")
            with installed(provider, "closed", kind, "string(params.data.text)", name="s", namespace="default"):
                says(consumer, "parameters of kind Secret are not replicated")
                states.append(asyncio.run(state_of(site, "shard-1")))
        says(consumer, "")

    states: list[bytes] = []
    await asyncio.to_thread(refused)
    (state,) = states
    assert public.encode() in state
    assert secret.encode() not in state
    assert b"sealed-4b1e" not in state


async def test_the_rows_of_a_workspace_go_with_it(site: Site, admin: Api) -> None:
    made = ready(admin, workspace(admin, selector=on("shard-1")))
    api, text = site.shards["shard-1"].api(made["spec"]["cluster"]), "leaving-9c2e"

    def provide() -> None:
        make_export(api, "shapes", schema("circles"))
        api.post(CONFIGMAPS, configmap("named", {"text": text}))
        bound = policy_binding("p", "p", paramRef={"name": "named", "parameterNotFoundAction": "Deny"})
        Policies(api).add(policy("p", "true", rules=RULES, paramKind=CONFIGMAP), bound)
        eventually(lambda: text.encode() in asyncio.run(state_of(site, "shard-1")), "it is published", PATIENCE_S)
        path = f"{WORKSPACES}/{made['metadata']['name']}"
        admin.delete(path)
        eventually(lambda: admin.get(path, expect=0).code == 404, "the workspace is gone", PATIENCE_S)
        eventually(lambda: text.encode() not in asyncio.run(state_of(site, "shard-1")), "so is its row", PATIENCE_S)
        api.close()

    await asyncio.to_thread(provide)


def test_nobody_reads_parameters_through_any_door_of_another_shard(
    site: Site, admin: Api, provider: Api, consumer: Api
) -> None:
    provider.post(CONFIGMAPS, configmap("kept", {"text": HIDDEN}, labels={"kept": HIDDEN}))
    tenant = ready(admin, workspace(admin, selector=on("shard-2")))["spec"]["cluster"]
    bind_role(site.shards["shard-2"].api(tenant), "cluster-admin", user("tenant"))
    resources = ("api/v1/configmaps", "api/v1/namespaces/default/configmaps/kept", f"apis/{PARAMETERS}")
    clusters = (provider.cluster, consumer.cluster, tenant, "*", "root")
    prefixes = [f"/clusters/{each}" for each in clusters]
    prefixes += [f"/services/cache/shards/{shard}/clusters/{each}" for shard in ("*", "shard-1") for each in clusters]
    prefixes += [f"/services/apiexport/{provider.cluster}/shapes/clusters/{each}" for each in clusters]
    with installed(provider, "kept", CONFIGMAP, "params.data.text", name="kept", namespace="default"):
        says(consumer, f"says {HIDDEN}")
        for who in ("nobody", "tenant", "kcp-admin", "shard-admin"):
            api = site.shards["shard-2"].api("", who)
            for path in (f"{prefix}/{resource}" for prefix in prefixes for resource in resources):
                answer = api.send("GET", path)
                assert HIDDEN not in answer.body.decode(), (who, path)
                assert answer.code != 500, (who, path)
            api.close()
        assert HIDDEN in provider.get(CONFIGMAPS).body.decode()
        stranger = site.proxy.api("", "tenant")
        for path in (f"/clusters/{provider.cluster}/{resource}" for resource in resources):
            assert stranger.send("GET", path).code == 403
    says(consumer, "")


@pytest.mark.long
async def test_a_cache_server_neither_keeps_nor_serves_parameters(
    site: Site, provider: Api, consumer: Api, tmp_path: Path
) -> None:
    text, access = "cached-4c1d", read_access(site.nats.url, str(site.layout.credential(CACHE_USER)))
    inside = f"/shards/shard-1/clusters/{provider.cluster}"
    provider.post(CONFIGMAPS, configmap("cached", {"text": text}))
    with installed(provider, "cached-policy", CONFIGMAP, "params.data.text", name="cached", namespace="default"):
        says(consumer, f"says {text}")
        with CacheProcess(tmp_path / "cache", access) as cache:
            await cache.ready()
            assert (await cache.get(f"{inside}{POLICY_BINDINGS}/cached-policy")).code == 200
            for path in ("/api/v1/configmaps", f"/apis/{PARAMETERS}"):
                for prefix in (inside, "/shards/*/clusters/*"):
                    assert (await cache.get(prefix + path)).code == 404
        (stored,) = (tmp_path / "cache").rglob("data.mdb")
        data = stored.read_bytes()
        assert b"cached-policy" in data
        assert text.encode() not in data
