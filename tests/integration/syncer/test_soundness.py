"""What no status in a mailbox tells is reported: Namespaces that end, definitions that do not begin, and what waits."""

from __future__ import annotations

import uuid

import pytest

from atoll.machinery.client.client import Client
from atoll.syncer import soundness
from harness.clients.api import configmap, crd
from harness.servers.in_process.mailbox_view import MailboxView
from harness.servers.in_process.syncer import Run
from harness.waits import until
from integration.syncer.test_refusals import CRDS, NAMESPACES, has, reports


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong is reported at once, not after a while."""
    monkeypatch.setattr(soundness, "HOLD_S", 0.0)


@pytest.mark.long
async def test_a_namespace_that_ends_and_what_waits_for_it(view: MailboxView, edge: Client, run: Run) -> None:
    name = f"s{uuid.uuid4().hex[:8]}"
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await edge.create(NAMESPACES, {**space, "metadata": {"name": name, "finalizers": ["example.com/held"]}})
    async with run():
        view.place(space, resource="namespaces")
        view.place(configmap("first", {"a": "1"}, namespace=name))
        await until(has(edge, name, "first", {"a": "1"}), "it is there")
        await edge.delete(NAMESPACES, name)
        view.place(configmap("second", namespace=name))
        rows = [
            (each, name_, "status", "Missing") for each, name_ in (("configmaps", "first"), ("configmaps", "second"))
        ]
        await until(reports(view, ("namespaces", name, "status", "Terminating"), *rows), "it is told")
        await edge.patch(NAMESPACES, name, {"metadata": {"finalizers": None}})
        await until(has(edge, name, "first", {"a": "1"}), "it is made again")
        await until(reports(view), "nothing is left to report")


@pytest.mark.long
async def test_a_definition_whose_names_are_taken(view: MailboxView, edge: Client, run: Run) -> None:
    group = f"s{uuid.uuid4().hex[:8]}.example.com"
    mine, theirs = crd("cogs", group), crd("wheels", group)
    theirs["spec"]["names"]["shortNames"] = ["c"]
    mine["spec"]["names"]["shortNames"] = ["c"]
    await edge.create(CRDS, theirs)
    async with run():
        view.place(mine, resource="customresourcedefinitions")
        row = ("customresourcedefinitions", f"cogs.{group}", "status", "NamesNotAccepted")
        await until(reports(view, row), "it is told")
        await edge.delete(CRDS, f"wheels.{group}")
        await until(reports(view), "nothing is left to report")
