"""The audit log: fields of an event, no secrets in it, no lost writes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll.machinery.apiserver.authorization.attributes import Decision, Outcome, Step
from atoll.machinery.apiserver.call.requestinfo import parse
from atoll.machinery.apiserver.serving import audit
from atoll.machinery.apiserver.serving.audit import COMPLETE, STARTED, AuditedRequest, AuditLog, event_of, line_of
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.user import User
from atoll.machinery.wire.exchange import HttpRequest, Peer

ALICE = User("alice", ("devs",), "u1", {"k": ("v",)})
GET = "/clusters/root:web/apis/apps/v1/namespaces/n/deployments/d/status?watch=0"


def audited(method: str = "GET", target: str = GET, **more: Any) -> AuditedRequest:
    headers = {"user-agent": ["kubectl/1"], "authorization": ["Bearer hush-hush"]}
    http = HttpRequest(method, target.encode(), headers, b'{"data": "hush-hush"}', Peer("10.0.0.9", 7))
    info = parse(method, target.encode())
    return AuditedRequest(
        audit_id="id-1", http=http, info=info, user=ALICE, received_s=1_800_000_000.25, cluster="2web", **more
    )


def decoded(event: audit.Event) -> Object:
    found: Object = json.loads(line_of(event))
    return found


def test_an_event_says_who_did_what_where() -> None:
    step = Step("02-content", Outcome.ALLOW, "because")
    request = audited(decision=Decision(True, reason="RBAC: x", steps=(step,)), path="root:web")
    event = decoded(event_of(request, COMPLETE, 200))
    stamp = event.pop("stageTimestamp")
    assert stamp.endswith("Z")
    assert len(stamp) == len("2027-01-15T08:00:00.250000Z")
    assert event == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": "id-1",
        "stage": "ResponseComplete",
        "requestURI": GET,
        "verb": "get",
        "user": {"username": "alice", "uid": "u1", "groups": ["devs"], "extra": {"k": ["v"]}},
        "sourceIPs": ["10.0.0.9"],
        "userAgent": "kubectl/1",
        "objectRef": {
            "resource": "deployments",
            "namespace": "n",
            "name": "d",
            "apiGroup": "apps",
            "apiVersion": "v1",
            "subresource": "status",
        },
        "responseStatus": {"metadata": {}, "code": 200},
        "requestReceivedTimestamp": "2027-01-15T08:00:00.250000Z",
        "annotations": {
            "authorization.k8s.io/decision": "allow",
            "authorization.k8s.io/reason": "RBAC: x",
            "request.auth.kcp.io/02-content-decision": "Allowed",
            "request.auth.kcp.io/02-content-reason": "because",
            "kcp.io/cluster": "2web",
            "tenancy.kcp.io/workspace": "2web",
            "kcp.io/path": "root:web",
        },
    }


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (404, "NotFound", 'secrets "s" not found'),
        (409, "Conflict", "the object has been modified"),
        (403, "Forbidden", 'User "alice" cannot get resource'),
        (410, "Expired", "too old resource version: 1 (2)"),
    ],
)
def test_a_failure_has_its_code_reason_and_message(code: int, reason: str, message: str) -> None:
    event = decoded(event_of(audited(), COMPLETE, code, reason, message))
    assert event["responseStatus"] == {
        "metadata": {},
        "code": code,
        "status": "Failure",
        "reason": reason,
        "message": message,
    }


@pytest.mark.parametrize(("code", "reason"), [(422, "Invalid"), (400, "BadRequest")])
def test_a_message_that_quotes_what_was_sent_stays_out(code: int, reason: str) -> None:
    event = decoded(event_of(audited(), COMPLETE, code, reason, 'data: Invalid value: "hush-hush"'))
    assert event["responseStatus"] == {"metadata": {}, "code": code, "status": "Failure", "reason": reason}


@pytest.mark.parametrize(
    ("method", "body", "expected"),
    [
        (
            "POST",
            b'{"metadata": {"name": "a", "namespace": "other", "uid": "u"}, "data": {"k": "hush"}}',
            {"name": "a", "uid": "u"},
        ),
        ("POST", b'{"metadata": {"generateName": "a-"}}', {}),
        ("POST", b"k8s\0...", {}),
        ("POST", b"[]", {}),
        ("POST", b'{"metadata": null}', {}),
        ("POST", b'{"metadata": {"name": 7}}', {}),
        ("DELETE", b'{"metadata": {"name": "a"}}', {}),
    ],
)
def test_a_created_object_is_named_by_its_metadata(method: str, body: bytes, expected: dict[str, str]) -> None:
    target = "/api/v1/namespaces/n/secrets"
    http = HttpRequest(method, target.encode(), {}, body, Peer("10.0.0.9", 7))
    request = AuditedRequest(audit_id="x", http=http, info=parse(method, target.encode()), user=ALICE, received_s=0.0)
    event = decoded(event_of(request, COMPLETE, 201))
    assert event["objectRef"] == {"resource": "secrets", "namespace": "n", "apiVersion": "v1", **expected}
    assert "hush" not in json.dumps(event)


def test_an_updated_object_is_told_with_uid_and_revision() -> None:
    target = "/api/v1/namespaces/n/secrets/a"
    body = b'{"metadata": {"name": "b", "uid": "u", "resourceVersion": "7"}}'
    http = HttpRequest("PUT", target.encode(), {}, body, Peer("10.0.0.9", 7))
    request = AuditedRequest(audit_id="x", http=http, info=parse("PUT", target.encode()), user=ALICE, received_s=0.0)
    found = decoded(event_of(request, COMPLETE, 200))["objectRef"]
    assert (found["name"], found["uid"], found["resourceVersion"]) == ("a", "u", "7")


def test_impersonation_shows_both() -> None:
    event = decoded(event_of(audited(impersonator=User("root")), STARTED))
    assert event["user"] == {"username": "root"}
    assert event["impersonatedUser"]["username"] == "alice"
    assert "responseStatus" not in event


def test_a_front_proxy_is_named_and_believed_about_where_a_request_came_from() -> None:
    http = HttpRequest("GET", b"/api", {"x-forwarded-for": ["192.0.2.1, 192.0.2.2"]}, b"", Peer("10.0.0.9", 7))
    plain = AuditedRequest(audit_id="x", http=http, info=parse("GET", b"/api"), user=ALICE, received_s=0.0)
    assert decoded(event_of(plain, COMPLETE, 200))["sourceIPs"] == ["10.0.0.9"]
    found = decoded(event_of(msgspec.structs.replace(plain, through="front-proxy"), COMPLETE, 200))
    assert found["sourceIPs"] == ["192.0.2.1", "192.0.2.2", "10.0.0.9"]
    assert found["annotations"]["authentication.atoll.dev/front-proxy"] == "front-proxy"


def test_paths_that_are_no_resource_have_no_object() -> None:
    assert "objectRef" not in decoded(event_of(audited(target="/healthz"), COMPLETE, 200))


def test_tokens_and_bodies_are_never_in_an_event() -> None:
    assert b"hush" not in line_of(event_of(audited("POST"), COMPLETE, 201))


def test_what_is_no_text_is_escaped_instead_of_ending_the_log() -> None:
    request = audited()
    odd = HttpRequest("GET", b"/\xff", {"user-agent": ["\udcff"]}, b"", Peer("::1", 1))
    event = event_of(
        AuditedRequest(audit_id="x", http=odd, info=request.info, user=User("\udce9"), received_s=0.0), COMPLETE, 200
    )
    assert json.loads(line_of(event))["user"]["username"] == "\udce9"


# --- the file -----------------------------------------------------------------------------------------------


@pytest.fixture
def opened() -> Iterator[Callable[..., AuditLog]]:
    logs: list[AuditLog] = []

    def make(path: Path, **options: int) -> AuditLog:
        logs.append(AuditLog(str(path), **options))
        return logs[-1]

    yield make
    for log in logs:
        log.close()


def lines(path: Path) -> list[Object]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events_are_in_the_file_in_order_after_a_flush(tmp_path: Path, opened: Callable[..., AuditLog]) -> None:
    log = opened(tmp_path / "audit.log")
    for number in range(2500):
        log.record(event_of(audited(annotations={"n": str(number)}), COMPLETE, 200))
    assert log.flush(30)
    assert [line["annotations"]["n"] for line in lines(tmp_path / "audit.log")] == [str(n) for n in range(2500)]


def test_the_file_is_private_and_appended_to(tmp_path: Path, opened: Callable[..., AuditLog]) -> None:
    path = tmp_path / "audit.log"
    path.write_text('{"before": true}\n')
    path.chmod(0o644)
    log = opened(path)
    log.record(event_of(audited(), COMPLETE, 200))
    log.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [line.get("before") for line in lines(path)] == [True, None]


def test_closing_writes_what_is_left(tmp_path: Path, opened: Callable[..., AuditLog]) -> None:
    log = opened(tmp_path / "audit.log")
    for _ in range(100):
        log.record(event_of(audited(), COMPLETE, 200))
    log.close()
    assert len(lines(tmp_path / "audit.log")) == 100


def fill(pipe: Path) -> None:
    """Write empty lines until a pipe takes no more."""
    writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"\n")
    os.close(writer)


class TestFullBuffer:
    """A pipe without a reader stands for a slow disk."""

    @pytest.fixture
    def stuck(self, tmp_path: Path, opened: Callable[..., AuditLog]) -> Iterator[tuple[AuditLog, int]]:
        path = tmp_path / "pipe"
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        fill(path)
        # Not one byte is written from here on, so nothing leaves the buffer.
        log = opened(path, max_events=300)
        while log.dropped == 0:
            log.record(event_of(audited(), COMPLETE, 200))
        yield log, reader
        os.close(reader)

    def drained(self, log: AuditLog, reader: int) -> list[Object]:
        found = b""
        os.set_blocking(reader, False)
        # The last line may be readable before the log reports it: no further line follows then.
        while not log.flush(0) or select.select([reader], [], [], 0)[0]:
            if select.select([reader], [], [], 0.01)[0]:
                found += os.read(reader, 65536)
        return [json.loads(line) for line in found.splitlines() if line]

    def test_drops_reads_and_counts_them_but_no_write(self, stuck: tuple[AuditLog, int]) -> None:
        log, reader = stuck
        dropped = log.dropped
        log.record(event_of(audited(), COMPLETE, 200))
        assert log.dropped == dropped + 1
        writes = {
            "create": ("POST", "/api/v1/namespaces"),
            "update": ("PUT", "/api/v1/namespaces/a"),
            "patch": ("PATCH", "/api/v1/namespaces/a"),
            "delete": ("DELETE", "/api/v1/namespaces/a"),
            "deletecollection": ("DELETE", "/api/v1/namespaces/a/configmaps"),
        }
        for _ in range(10):
            for method, target in writes.values():
                log.record(event_of(audited(method, target), COMPLETE, 201))
        for target in ("/api/v1/configmaps?watch=1", "/x"):
            log.record(event_of(audited("GET", target), COMPLETE, 200))
        assert log.dropped == dropped + 3
        written = Counter(line["verb"] for line in self.drained(log, reader))
        assert {verb: written[verb] for verb in writes} == dict.fromkeys(writes, 10)

    async def test_holds_up_what_changes_something_until_there_is_room(self, stuck: tuple[AuditLog, int]) -> None:
        log, reader = stuck
        waiting = [asyncio.create_task(log.room()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        await asyncio.to_thread(self.drained, log, reader)
        await asyncio.wait_for(asyncio.gather(*waiting), 30)
        await log.room()
