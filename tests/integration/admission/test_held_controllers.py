"""Webhooks that do not answer hold the writes of controllers in their own workspace, and no other workspace's."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from harness.clients.api import Api, eventually, workspace_under
from harness.servers.stand_ins.admission import AdmissionServer, Object, allow, configurations, deny, register

#: More than there are workers of any controller.
NAMESPACES = 20
ACCOUNTS: Object = {
    "operations": ["CREATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["serviceaccounts"],
}
#: Objects of a new namespace are there within a second; a busy machine takes longer.
PROMPT_S = 60.0


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Set: the webhook answers."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def server(released: threading.Event) -> Iterator[AdmissionServer]:
    def hang(review: Object) -> Object:
        released.wait(60)
        return allow(review)

    with AdmissionServer({"/hang": hang, "/deny": allow}) as running:
        yield running


@pytest.fixture
def other(admin: Api) -> Iterator[Api]:
    """Another workspace."""
    found = admin.at(workspace_under(admin, type_="universal"))
    yield found
    found.close()


def account(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/serviceaccounts/default"


def make(api: Api, name: str) -> None:
    api.post("/api/v1/namespaces", {"metadata": {"name": name}})


def has_account(api: Api, namespace: str) -> bool:
    return api.get(account(namespace), expect=0).code == 200


@pytest.mark.long
def test_a_webhook_that_hangs_holds_no_other_workspace(
    api: Api, other: Api, server: AdmissionServer, released: threading.Event
) -> None:
    register(api, server, "Validating", server.webhook("/hang", ACCOUNTS, timeoutSeconds=30))
    for number in range(NAMESPACES):
        make(api, f"held-{number}")
    eventually(lambda: len(server.requests("/hang")) >= 2, "the webhook is asked", PROMPT_S)
    for number in range(5):
        make(other, f"free-{number}")
    eventually(lambda: all(has_account(other, f"free-{number}") for number in range(5)), "the others'", PROMPT_S)
    assert not has_account(api, "held-0")
    released.set()
    eventually(lambda: all(has_account(api, f"held-{number}") for number in range(NAMESPACES)), "its own", 60)


@pytest.mark.parametrize("reason", ["Forbidden", "Conflict", "NotFound", "AlreadyExists"])
def test_what_a_webhook_denied_is_tried_again_whatever_its_reason_was(
    api: Api, server: AdmissionServer, reason: str
) -> None:
    server.webhooks["/deny"] = deny("no", code=403, reason=reason)
    register(api, server, "Validating", server.webhook("/deny", ACCOUNTS))
    make(api, "denied")
    eventually(lambda: server.requests("/deny"), "the webhook is asked", PROMPT_S)
    api.delete(f"{configurations('Validating')}/hooks")
    eventually(lambda: has_account(api, "denied"), "the account", PROMPT_S)
