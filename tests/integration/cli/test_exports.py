"""A provider and its consumers with kubectl: export, bind, claims, list of consumers."""

from __future__ import annotations

import contextlib
import copy
import json
import re
import secrets
from pathlib import Path

import pytest
import yaml

from harness.clients.api import Api, crd, workspace_under
from harness.clients.exports import claim, export, make_export, schema
from harness.clients.kubectl import Kubectl, Result
from harness.data.manifests import definition_files
from harness.servers.shard_process import ShardProcess

CLAIMS = [claim("secrets", "", "get", "list"), claim("configmaps")]


class Bay:
    """A provider's workspace with an export of boats, and a parent of its consumers."""

    def __init__(self, kubectl: Kubectl, shard: ShardProcess) -> None:
        self.server, self.kubectl = shard.url, kubectl
        with contextlib.closing(Api(shard, "root")) as root:
            self.top = workspace_under(root)
            self.provider = workspace_under(root, self.top, "universal")
            with contextlib.closing(root.at(self.provider)) as provider:
                make_export(provider, "boats", schema("boats", "sea.example.com", "v1"), claims=CLAIMS)

    def enter(self, name: str) -> None:
        """Enter a new consumer's workspace."""
        self.kubectl.ok("ws", self.top)
        self.kubectl.ok("create", "workspace", name, "--enter", "--type", "root:universal")

    def bind(self, *flags: str) -> Result:
        return self.kubectl.run("kcp", "bind", "apiexport", f"{self.provider}:boats", *flags)

    def acting_as(self, user: str) -> Bay:
        """The same workspace for another user with a token of that name.
        An impersonated user has rights in that one workspace only, and could bind no export of another.
        """
        other = copy.copy(self)
        own = self.kubectl.home / f"{user}.kubeconfig"
        document = yaml.safe_load(self.kubectl.kubeconfig.read_text())
        for each in document["users"]:
            each["user"] = {"token": f"{user}-token"}
        own.write_text(yaml.safe_dump(document))
        own.chmod(0o600)
        other.kubectl = Kubectl(self.kubectl.home / user, own, self.kubectl.binary)
        return other

    def published(self) -> None:
        """Wait until the virtual workspace has a URL, which the first binding brings."""
        slice = f"--server={self.server}/clusters/{self.provider}", "apiexportendpointslice/boats"
        self.kubectl.ok("wait", "--for=jsonpath={.status.endpoints[0].url}", *slice)

    def export(self) -> str:
        """Export the API; return the output."""
        return self.kubectl.ok("atoll", "export", "boats", "-w", self.provider)


@pytest.fixture
def bay(kubectl: Kubectl, shard: ShardProcess) -> Bay:
    return Bay(kubectl, shard)


def test_an_api_is_made_of_a_definition(kubectl: Kubectl) -> None:
    kubectl.ok("create", "workspace", f"provider-{secrets.token_hex(3)}", "--enter", "--type", "root:universal")
    definition = json.dumps(crd("boats", "sea.example.com"))
    printed = kubectl.ok("kcp", "crd", "snapshot", "-f", "-", "--prefix", "v1", stdin=definition)
    kubectl.ok("create", "-f", "-", stdin=printed)
    offer = export("boats", schema("boats", "sea.example.com", "v1"), claims=CLAIMS)
    kubectl.ok("create", "-f", "-", stdin=json.dumps(offer))
    kubectl.ok("wait", "--for=condition=IdentityValid", "apiexport/boats")


def test_an_api_is_offered_bound_and_used(bay: Bay, kubectl: Kubectl) -> None:
    assert f"kubectl kcp bind apiexport {bay.provider}:boats" in bay.export()
    bay.enter("shop")
    bound = bay.bind("--accept-permission-claim", "secrets.core", "--reject-permission-claim", "configmaps")
    assert bound == (
        0,
        ('APIBinding "boats" created. Waiting for it to be bound...\nAPIBinding "boats" is bound.\n'),
        "",
    )
    boat = {"apiVersion": "sea.example.com/v1", "kind": "Boat", "metadata": {"name": "blue"}, "spec": {}}
    assert kubectl.ok("create", "-f", "-", stdin=json.dumps(boat)) == "boat.sea.example.com/blue created\n"
    shown = [line.split() for line in kubectl.ok("kcp", "claims", "get", "apibinding", "boats").splitlines()]
    assert shown == [
        ["NAME", "CLAIM", "VERBS", "SELECTOR", "STATE"],
        ["boats", "configmaps", "*", "all", "Rejected"],
        ["boats", "secrets", "get,list", "all", "Accepted"],
    ]
    bay.published()
    *facts, titles, row = bay.export().splitlines()
    assert any(re.fullmatch(r"  stream     \d+ events behind, the oldest \d+\.\d s old", line) for line in facts), facts
    assert titles.split() == ["CONSUMER", "BINDING", "PHASE", "CLAIMS"]
    assert re.split(r"\s{2,}", row) == [f"{bay.top}:shop", "boats", "Bound", "secrets accepted, configmaps rejected"]
    assert kubectl.ok("atoll", "export", "-w", bay.provider).splitlines()[1].split() == ["boats", "1", "2", "1", "1"]


@pytest.mark.long
def test_claims_are_warned_of_and_answered_later(bay: Bay, kubectl: Kubectl) -> None:
    bay.enter("shop")
    warnings = [
        f'Warning: APIBinding "boats" neither accepts nor rejects the claim on {name}'
        for name in ("secrets", "configmaps")
    ]
    bound = bay.bind()
    assert (bound.code, sorted(bound.stderr.splitlines())) == (0, sorted(warnings))
    assert sorted(kubectl.run("ws", ".").stderr.splitlines()) == sorted(warnings)
    assert kubectl.ok("kcp", "claims", "accept", "boats", "--resource", "secrets") == "secrets accepted\n"
    assert kubectl.run("ws", ".").stderr.splitlines() == [warnings[1]]
    assert set(kubectl.ok("kcp", "claims", "reject", "boats").splitlines()) == {
        "secrets rejected",
        "configmaps rejected",
    }
    assert kubectl.run("ws", ".").stderr == ""


@pytest.mark.long
def test_what_went_wrong_is_told_with_a_way_on(bay: Bay, kubectl: Kubectl) -> None:
    bay.enter("shop")
    lost = kubectl.run("kcp", "bind", "apiexport", f"{bay.top}:nowhere:cars")
    assert lost.code == 1
    assert "no permission to bind to export" in lost.stderr
    missing = kubectl.run("kcp", "bind", "apiexport", f"{bay.provider}:cars", "--timeout", "1s")
    assert missing.code == 1
    assert f"APIExport {bay.provider}|cars not found" in missing.stderr
    assert bay.bind("--reject-all-permission-claims").code == 0
    again = bay.bind()
    assert (again.code, "choose another with --name" in again.stderr) == (1, True)
    twice = bay.bind("--name", "second", "--timeout", "1s", "--reject-all-permission-claims")
    assert twice.code == 1
    assert 'APIBinding "second" is not bound after 1 s' in twice.stderr
    unheard = kubectl.run("atoll", "export", "cars", "-w", bay.provider)
    assert unheard.stderr == f'Error: no APIExport "cars" in workspace {bay.provider}; there are: boats\n'


@pytest.mark.long
def test_a_binding_for_one_identity_alone(bay: Bay, kubectl: Kubectl) -> None:
    export = f"--server={bay.server}/clusters/{bay.provider}", "apiexport/boats"
    identity = kubectl.ok("get", *export, "-o", "jsonpath={.status.identityHash}")
    bay.enter("pinned")
    assert "no identity hash" in bay.bind("--identity", "x").stderr
    late = bay.bind("--identity", "0" * 64, "--timeout", "3s")
    assert late.code != 0
    assert f"has the identity {identity}" in late.stderr
    kubectl.ok("delete", "apibinding", "boats")
    assert bay.bind("--identity", identity).code == 0
    pinned = kubectl.ok(
        "get", "apibinding", "boats", "-o", r"jsonpath={.metadata.annotations.bindings\.atoll\.dev/identity}"
    )
    assert pinned == identity


@pytest.mark.long
def test_a_consumer_needs_the_verb_bind_and_nothing_else_of_the_provider(bay: Bay, kubectl: Kubectl) -> None:
    bay.enter("shop")
    allow(kubectl, "bob", "cluster-admin")
    bob = bay.acting_as("bob")
    refused = bob.bind("--accept-all-permission-claims")
    assert (refused.code, "has not allowed you the verb bind" in refused.stderr) == (1, True)
    kubectl.ok("ws", bay.provider)
    rules = [{"apiGroups": ["apis.kcp.io"], "resources": ["apiexports"], "resourceNames": ["boats"], "verbs": ["bind"]}]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "buyer"}}
    kubectl.ok("create", "-f", "-", stdin=json.dumps({**role, "rules": rules}))
    allow(kubectl, "bob", "buyer")
    kubectl.ok("ws", f"{bay.top}:shop")
    # bob may not read the claims of the export, but the binding lists them.
    bound = bob.bind("--accept-all-permission-claims", "--timeout", "60s")
    assert (bound.code, bound.stderr) == (0, "")
    states = [line.split()[4] for line in bob.kubectl.ok("kcp", "claims", "get", "apibinding", "boats").splitlines()]
    assert states == ["STATE", "Accepted", "Accepted"]
    blind = bob.kubectl.run("atoll", "export", "-w", bay.provider)
    assert (blind.code, "list on apiexports" in blind.stderr) == (1, True)


def allow(kubectl: Kubectl, user: str, role: str) -> None:
    """A role in the current workspace, with the access that a binding of it gives."""
    kubectl.ok("create", "clusterrolebinding", f"{user}-{role}", f"--clusterrole={role}", f"--user={user}")


@pytest.mark.long
def test_kubectl_completes_exports_and_claims(bay: Bay, kubectl: Kubectl) -> None:
    def completed(*words: str) -> list[str]:
        *found, directive = kubectl.ok("__complete", *words).splitlines()
        return [line.partition("\t")[0] for line in found] + [directive]

    bay.enter("shop")
    assert completed("kcp", "bi") == ["bind", ":4"]
    assert completed("kcp", "bind", "apiexport", f"{bay.provider}:") == [f"{bay.provider}:boats", ":6"]
    assert bay.bind("--reject-all-permission-claims").code == 0
    assert completed("kcp", "claims", "accept", "b") == ["boats", ":4"]
    assert completed("kcp", "claims", "accept", "boats", "--resource", "s") == ["secrets", ":4"]
    kubectl.ok("ws", bay.provider)
    assert completed("atoll", "export", "") == ["boats", ":4"]


@pytest.mark.long
def test_every_definition_of_real_projects_is_accepted_as_a_schema(kubectl: Kubectl, manifests: Path) -> None:
    kubectl.ok("create", "workspace", f"real-{secrets.token_hex(3)}", "--enter", "--type", "root:universal")
    text = "\n---\n".join(path.read_text() for path in definition_files(manifests))
    made = kubectl.ok("kcp", "crd", "snapshot", "-f", "-", "--prefix", "v1", stdin=text)
    names = kubectl.ok("create", "-f", "-", "-o", "name", stdin=made).splitlines()
    assert len(names) == text.count("\nkind: CustomResourceDefinition\n") >= 16
    assert set(kubectl.ok("get", "apiresourceschemas", "-o", "name").splitlines()) == set(names)
