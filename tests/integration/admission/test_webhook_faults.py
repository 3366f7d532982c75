"""Webhooks that die, hang, flap and lie, and servers that die while one holds a write."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.clients.api import Answer, Api, configmap, eventually, workspace_under
from harness.clients.exports import bind, make_export, schema
from harness.oracles.audit_log import audit_events
from harness.servers.shard_process import ShardProcess
from harness.servers.stand_ins.admission import (
    CONFIGMAPS,
    IN_FORCE_S,
    MAPS,
    AdmissionServer,
    allow,
    answer,
    configuration,
    configurations,
    deny,
    patched,
    register,
)
from harness.servers.stand_ins.webhook import HANG_UP

Object = dict[str, Any]
STAMP = {"op": "add", "path": "/data/stamped", "value": "yes"}
#: A webhook that is back is called within a second; a busy machine takes longer, and a patient breaker ten.
BACK_S = 9.0


@pytest.fixture
def server() -> Iterator[AdmissionServer]:
    with AdmissionServer({"/allow": allow, "/stamp": lambda review: patched(review, STAMP)}) as running:
        yield running


class Held:
    """A webhook that answers once it is released."""

    def __init__(self) -> None:
        self._released = threading.Event()
        self.release = self._released.set

    def __call__(self, review: Object) -> Object:
        self._released.wait(25)
        return allow(review)


@pytest.fixture
def held() -> Iterator[Held]:
    """Released when the test is over, at the latest."""
    held = Held()
    yield held
    held.release()


def create(api: Api, name: str) -> Answer:
    return api.send("POST", MAPS, configmap(name))


def names(api: Api) -> set[str]:
    return {item["metadata"]["name"] for item in api.get(MAPS).json["items"]} - {"kube-root-ca.crt"}


def test_a_dead_webhook_refuses_what_it_must_see_and_is_called_once_it_is_back(api: Api) -> None:
    with AdmissionServer({"/allow": allow}) as server:
        register(api, server, "Validating", server.webhook("/allow"))
        assert create(api, "a").code == 201
    refused = [create(api, f"refused-{index}") for index in range(12)]
    assert {answer.code for answer in refused} == {500}
    # Also those that an open circuit did not let through.
    text = f"dial tcp 127.0.0.1:{server.port}: connect: connection refused"
    assert {answer.message.endswith(text) for answer in refused} == {True}
    assert names(api) == {"a"}
    with AdmissionServer({"/allow": allow}, again=server) as back:
        eventually(lambda: create(api, "b").code == 201, "called again", BACK_S)
        assert back.requests("/allow")


@pytest.mark.long
def test_a_slow_webhook_is_given_up_in_the_same_words_again_and_again(
    api: Api, server: AdmissionServer, held: Held
) -> None:
    server.webhooks["/held"] = held
    register(api, server, "Validating", server.webhook("/held", timeoutSeconds=1))
    for index in range(8):
        refused = create(api, f"a-{index}")
        assert refused.message.endswith(f'Post "{server.base}/held?timeout=1s": context deadline exceeded')
    held.release()
    eventually(lambda: create(api, "b").code == 201, "called again", BACK_S)
    assert names(api) == {"b"}


def test_a_flapping_webhook_refuses_exactly_what_it_did_not_see(api: Api, server: AdmissionServer) -> None:
    seen: set[str] = set()

    def flap(review: Object) -> Any:
        if len(server.requests("/flap")) % 2:
            return HANG_UP
        seen.add(review["request"]["name"])
        return allow(review)

    server.webhooks["/flap"] = flap
    register(api, server, "Validating", server.webhook("/flap"))
    seen.clear()
    answers = {f"a-{index}": create(api, f"a-{index}").code for index in range(40)}
    assert {name for name, code in answers.items() if code == 201} == names(api) == seen
    assert set(answers.values()) == {201, 500}


def test_a_webhook_that_answers_for_another_request_admits_nothing(api: Api, server: AdmissionServer) -> None:
    stale: list[Object] = []

    def lie(review: Object) -> Object:
        stale.append(answer(review, allowed=True))
        return stale[max(len(stale) - 2, 0)]

    server.webhooks["/lie"] = lie
    register(api, server, "Validating", server.webhook("/lie"), name="lying")
    stale.clear()
    assert [create(api, name).code for name in "abc"] == [201, 500, 500]
    assert names(api) == {"a"}


def test_a_webhook_restarted_between_mutation_and_validation_is_asked_on_a_new_connection(api: Api) -> None:
    first = AdmissionServer({"/stamp": lambda review: patched(review, STAMP), "/check": allow})
    second: list[AdmissionServer] = []

    def restart(review: Object) -> Object:
        """Ends the server of the other webhook, and starts another one in its place."""
        if not second and review["request"]["name"] == "a":
            first.__exit__()
            second.append(AdmissionServer({"/check": allow}, again=first))
            second[0].__enter__()
        return allow(review)

    with first, AdmissionServer({"/restart": restart}) as other:
        mutating = [{**first.webhook("/stamp"), "name": "a.example.com"}, other.webhook("/restart")]
        register(api, other, "Mutating", *mutating, name="mutating")
        register(api, first, "Validating", first.webhook("/check"), name="validating")
        stored = create(api, "a")
        assert (stored.code, stored.json["data"]) == (201, {"stamped": "yes"})
        (asked,) = second[0].requests("/check")
        assert asked["object"]["data"] == {"stamped": "yes"}
        second[0].__exit__()


def test_a_configuration_that_refuses_everything_is_deleted(api: Api, server: AdmissionServer) -> None:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    server.webhooks["/never"] = deny("never")
    register(api, server, "Validating", server.webhook("/never", rule))
    assert create(api, "a").code == 400
    assert api.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"a": "b"}}}, expect=400).message
    api.delete(f"{configurations('Validating')}/hooks")
    eventually(lambda: create(api, "a").code == 201, "allowed", IN_FORCE_S)


def hang(api: Api, path: str, body: Object, count: int, pool: ThreadPoolExecutor) -> list[Future[int]]:
    """Send writes that a webhook holds, each on its own connection; their codes."""

    def post(index: int) -> int:
        mine = api.at(api.cluster)
        named = {**body, "metadata": {**body["metadata"], "name": f"held-{index}"}}
        code = mine.send("POST", path, named).code
        mine.close()
        return code

    return [pool.submit(post, index) for index in range(count)]


@pytest.mark.long
def test_writes_that_wait_for_a_webhook_leave_another_workspace_alone(
    api: Api, admin: Api, server: AdmissionServer, held: Held
) -> None:
    server.webhooks["/held"] = held
    register(api, server, "Validating", server.webhook("/held", timeoutSeconds=30), server.webhook("/allow"))
    there = admin.at(workspace_under(admin, type_="universal"))
    register(there, server, "Validating", server.webhook("/allow"))
    with ThreadPoolExecutor(80) as pool:
        waiting = hang(api, MAPS, configmap("held"), 80, pool)
        eventually(lambda: len(server.requests("/held")) >= 30, "as many as may wait at once")
        for index in range(20):
            assert create(there, f"a-{index}").code == 201
        assert not any(each.done() for each in waiting)
        held.release()
        assert {each.result() for each in waiting} == {201}
    there.close()


@pytest.mark.long
def test_consumers_of_an_export_share_its_webhook_fairly(
    provider: Api, consumer: Api, api: Api, server: AdmissionServer, held: Held
) -> None:
    server.webhooks["/shared"] = lambda review: (
        held(review) if review["request"]["name"].startswith("held-") else allow(review)
    )
    make_export(provider, "shapes", schema("squares"))
    for each in (consumer, api):
        bind(each, provider.cluster, "shapes")
    rule = {**CONFIGMAPS, "apiGroups": ["shapes.example.com"], "resources": ["squares"]}
    register(provider, server, "Validating", server.webhook("/shared", rule, timeoutSeconds=30))
    path = "/apis/shapes.example.com/v1/namespaces/default/squares"
    square = {"apiVersion": "shapes.example.com/v1", "kind": "Square", "metadata": {"name": "a"}}
    with ThreadPoolExecutor(80) as pool:
        waiting = hang(consumer, path, square, 80, pool)
        eventually(lambda: len(server.requests("/shared")) >= 30, "as many as may wait at once")
        assert api.post(path, square).code == 201
        assert not any(each.done() for each in waiting)
        held.release()
        assert {each.result() for each in waiting} == {201}
    clusters = {asked["object"]["metadata"]["annotations"]["kcp.io/cluster"] for asked in server.requests("/shared")}
    assert len(clusters) == 2, "it is told the consumer's"


@pytest.mark.long
def test_nothing_is_there_after_a_shard_is_killed_while_a_webhook_holds_a_write(tmp_path: Path, held: Held) -> None:
    with (
        AdmissionServer({"/held": held}) as server,
        ShardProcess(tmp_path, "--egress-allow-cidr", "127.0.0.0/8") as shard,
    ):
        api = Api(shard, "root")
        register(api, server, "Validating", server.webhook("/held", timeoutSeconds=30))
        api.post(MAPS.replace("configmaps", "secrets"), {"metadata": {"name": "before"}})

        def write() -> None:
            with pytest.raises((http.client.HTTPException, OSError)):
                create(api.at("root"), "held")

        thread = threading.Thread(target=write)
        thread.start()
        eventually(lambda: server.requests("/held"), "the webhook holds it")
        shard.kill()
        held.release()
        thread.join()
        shard.restart()
        api.close()
        api.get(f"{MAPS}/held", expect=404)
        api.get(MAPS.replace("configmaps", "secrets") + "/before")
        assert create(api, "held").code == 201
        api.close()


@pytest.mark.long
def test_a_change_counts_on_the_writer_and_on_every_worker(tmp_path: Path, server: AdmissionServer) -> None:
    server.webhooks["/never"] = deny("never")
    with ShardProcess(tmp_path, "--workers", "2", "--egress-allow-cidr", "127.0.0.0/8") as shard:
        connections = [Api(shard, "root") for _ in range(8)]
        path = configurations("Validating")

        def codes() -> set[int]:
            return {each.send("POST", f"{MAPS}?dryRun=All", configmap("a")).code for each in connections}

        for _ in range(3):
            connections[0].post(path, configuration("Validating", "hooks", server.webhook("/never")))
            eventually(lambda: codes() == {400}, "refused by all", IN_FORCE_S)
            connections[0].delete(f"{path}/hooks")
            eventually(lambda: codes() == {201}, "allowed by all", IN_FORCE_S)
        for each in connections:
            each.close()


def test_metrics_count_calls_rejections_and_failing_open(api: Api, server: AdmissionServer) -> None:
    server.webhooks["/denies"] = deny("no", code=403)
    server.webhooks["/broken"] = lambda review: HANG_UP
    label = {"matchLabels": {"kind": "denied"}}
    register(
        api,
        server,
        "Validating",
        server.webhook("/denies", objectSelector=label),
        server.webhook("/broken", failurePolicy="Ignore"),
    )
    assert create(api, "a").code == 201
    api.post(MAPS, configmap("b", labels=label["matchLabels"]), expect=403)
    text = api.at("").get("/metrics").body.decode()
    common = 'operation="CREATE",rejected="true",type="validating"'
    assert f'apiserver_admission_webhook_request_total{{code="403",name="denies.example.com",{common}}} 1.0' in text
    assert 'apiserver_admission_webhook_fail_open_count_total{name="broken.example.com",type="validating"}' in text
    assert 'apiserver_admission_webhook_rejection_count_total{error_type="no_error",name="denies.example.com"' in text
    assert "apiserver_admission_webhook_admission_duration_seconds_bucket" in text


def counted(api: Api, name: str, labels: str) -> int:
    """The number of observations of a histogram."""
    text = api.at("").get("/metrics").body.decode()
    line = next((line for line in text.splitlines() if line.startswith(f"{name}_count{{{labels}}} ")), " 0")
    return int(float(line.rpartition(" ")[2]))


@pytest.mark.long
def test_steps_and_controllers_are_timed_once_for_each_write(api: Api, server: AdmissionServer) -> None:
    register(api, server, "Mutating", server.webhook("/stamp"), name="mutating")
    register(api, server, "Validating", server.webhook("/allow"), name="validating")
    wanted = [
        ("step", 'operation="CREATE",rejected="false",type="admit"'),
        ("step", 'operation="CREATE",rejected="false",type="validate"'),
        ("controller", 'name="MutatingAdmissionWebhook",operation="CREATE",rejected="false",type="admit"'),
        ("controller", 'name="ValidatingAdmissionWebhook",operation="CREATE",rejected="false",type="validate"'),
        ("step", 'operation="CREATE",rejected="true",type="validate"'),
    ]
    metrics = [(f"apiserver_admission_{kind}_admission_duration_seconds", labels) for kind, labels in wanted]
    before = [counted(api, *metric) for metric in metrics]
    for index in range(5):
        assert create(api, f"timed-{index}").code == 201
    server.webhooks["/allow"] = deny("no")
    assert create(api, "denied").code == 400
    assert [counted(api, *metric) - was for metric, was in zip(metrics, before, strict=True)] == [6, 5, 6, 5, 1]


def test_the_audit_log_says_what_webhooks_did(api: Api, shard: ShardProcess, server: AdmissionServer) -> None:
    server.webhooks["/broken"] = lambda review: HANG_UP
    server.webhooks["/stamp"] = lambda review: {
        **patched(review, STAMP),
        "response": {**patched(review, STAMP)["response"], "auditAnnotations": {"why": "because"}},
    }
    webhooks = [server.webhook("/stamp"), server.webhook("/broken", failurePolicy="Ignore")]
    register(api, server, "Mutating", *webhooks, name="mutating")
    assert create(api, "audited").code == 201
    log = shard.root.parent / "audit.log"

    def annotations() -> Object:
        for event in audit_events(log):
            reference = event.get("objectRef") or {}
            if reference.get("name") == "audited" and event["stage"] == "ResponseComplete":
                return dict(event["annotations"])
        return {}

    found = eventually(annotations, "the event")
    assert found["stamp.example.com/why"] == "because"
    first = json.loads(found["mutation.webhook.admission.k8s.io/round_0_index_0"])
    assert first == {"configuration": "mutating", "webhook": "stamp.example.com", "mutated": True}
    assert not [key for key in found if key.startswith("patch.")], "only from level Request on"
    assert found["failed-open.mutation.webhook.admission.k8s.io/round_0_index_1"] == "broken.example.com"
