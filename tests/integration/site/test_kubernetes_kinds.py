"""Kubernetes' kinds in a site: a shard that binds root's export first has the root shard write the schemas."""

from __future__ import annotations

import pytest

from harness.clients.api import Api, eventually
from harness.clients.exports import EXPORTS, SCHEMAS
from harness.clients.site_workspaces import on, ready, workspace
from harness.data.kubernetes_objects import DEPLOYMENTS, deployment
from harness.servers.site import Site

pytestmark = pytest.mark.long

REQUESTED = "internal.atoll.dev/schemas-requested"


def test_a_workspace_on_another_shard_serves_them(site: Site, admin: Api) -> None:
    """The first one of the site; nothing of the 40 schemas is in root before."""
    other = next(name for name in site.shards if name != "root")
    assert not [each for each in admin.get(SCHEMAS).json["items"] if each["spec"]["group"] == "apps"]
    made = ready(admin, workspace(admin, type="kubernetes", selector=on(other)))
    there = site.shards[other].api(made["spec"]["cluster"])
    created = there.post(DEPLOYMENTS, deployment()).json
    assert "rollingUpdate" in created["spec"]["strategy"]
    export = admin.get(f"{EXPORTS}/kubernetes").json
    assert export["metadata"]["annotations"][REQUESTED] == "true"
    names = {each["schema"] for each in export["spec"]["resources"]}
    assert names <= {each["metadata"]["name"] for each in admin.get(SCHEMAS).json["items"]}
    here = ready(admin, workspace(admin, type="kubernetes", selector=on("root")))
    at_root = site.root.api(here["spec"]["cluster"])
    eventually(lambda: at_root.send("POST", DEPLOYMENTS, deployment()).code == 201, "a workspace of the root shard too")
