"""Policies of a provider on another shard than its consumer."""

from __future__ import annotations

from functools import partial

from harness.clients.api import Api, Object, eventually
from harness.clients.changed_configurations import CHANGES, counts_everywhere
from harness.clients.exports import BINDINGS, an_object, bind, binding, make_export, schema
from harness.clients.policies import Policies, denial, rule
from harness.clients.site_workspaces import on, ready, workspace
from harness.servers.site import Site

CIRCLES = "/apis/shapes.example.com/v1/namespaces/default/circles"
RULES = [rule("circles", group="shapes.example.com")]
PATIENCE_S = 60.0


def circle(name: str) -> Object:
    return an_object(schema("circles"), name)


def test_a_policy_reaches_consumers_on_other_shards(site: Site, admin: Api) -> None:
    made = {shard: ready(admin, workspace(admin, selector=on(shard))) for shard in ("shard-1", "shard-2")}
    provider, consumer = (site.shards[shard].api(each["spec"]["cluster"]) for shard, each in made.items())
    path = f"root:{made['shard-1']['metadata']['name']}"
    make_export(provider, "shapes", schema("circles"))
    probe, dry = binding(path, "shapes", called="probe"), f"{BINDINGS}?dryRun=All"
    eventually(lambda: consumer.post(dry, probe, expect=0).code == 201, "the export is known", PATIENCE_S)
    bind(consumer, path, "shapes")
    Policies(provider).deny(
        "p", {"expression": "!object.metadata.name.startsWith('bad')", "message": "bad"}, rules=RULES
    )
    refused = partial(consumer.post, f"{CIRCLES}?dryRun=All", circle("bad"), expect=0)
    eventually(lambda: refused().code == 422, "the policy has arrived", PATIENCE_S)
    assert refused().message.endswith(denial("p", "bad"))
    consumer.post(CIRCLES, circle("good"))


def test_a_change_of_a_policy_or_its_binding_counts_on_each_of_three_shards(site: Site, admin: Api) -> None:
    made = {shard: ready(admin, workspace(admin, selector=on(shard))) for shard in site.shards}
    consumers = [site.shards[shard].api(each["spec"]["cluster"]) for shard, each in made.items()]
    provider = site.shards["shard-1"].api(ready(admin, workspace(admin, selector=on("shard-1")))["spec"]["cluster"])
    make_export(provider, "shapes", schema("circles"))
    probe, dry = binding(provider.cluster, "shapes", called="probe"), f"{BINDINGS}?dryRun=All"
    for each in consumers:
        eventually(lambda: each.post(dry, probe, expect=0).code == 201, "the export is known", PATIENCE_S)  # noqa: B023
        bind(each, provider.cluster, "shapes")
    for name in ("policy", "binding"):
        counts_everywhere(CHANGES[name], provider, consumers)
    for each in (provider, *consumers):
        each.close()
