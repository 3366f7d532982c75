"""A syncer that starts leaves what belongs to a placed object as it is until it has read what that is."""

from __future__ import annotations

from pathlib import Path

from atoll.machinery.client.client import Client
from atoll.machinery.edge.associated import query_row
from atoll.machinery.edge.associated_states import associated_state, state_key
from atoll.machinery.edge.names import ObjectRef
from atoll.machinery.edge.syncerconfigs import plan_parts, specs_of
from atoll.machinery.meta.objects import Object
from atoll.syncer.associated import Associated
from atoll.syncer.credentials import target
from atoll.syncer.edge import Edge
from atoll.syncer.mailbox import Mailbox, item_name
from atoll.syncer.rate import RateLimit
from harness.clients.api import configmap
from harness.servers.stand_ins.canned_api import CannedApi, serving
from harness.waits import until
from unit.syncer.test_applied import CONFIG, CONFIGMAPS, REF, SERVED, item

ROOT = "/clusters/root"
STATES = f"{ROOT}/apis/edge.kubestellar.io/v2alpha1"


def listed(*items: Object) -> Object:
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "9"}, "items": list(items)}


async def test_the_state_of_an_object_goes_once_the_edge_was_read_and_has_none(tmp_path: Path) -> None:
    state = associated_state(REF, (), {}, {}, {})
    state["metadata"]["resourceVersion"] = "3"
    row = query_row("", {"associated": [{"resource": "secrets"}]})
    (config,) = plan_parts(specs_of({REF: "v1"}, [], associated=[row]), (), 1).create
    deletion = f"DELETE {STATES}/namespaces/default/associatedstates/{state_key(REF)[1]}"
    async with serving(CannedApi()) as api, Client(target(str(api.kubeconfig(tmp_path)), "")) as client:
        api.on(f"GET {STATES}/associatedstates", listed(state))
        api.on(f"GET {ROOT}/api/v1/configmaps", listed())
        api.on(deletion, {"kind": "Status", "metadata": {}})
        mailbox, edge = Mailbox(client), Edge(client, "uid", RateLimit(100.0, 100))
        mailbox.changed(item(REF, configmap("c", namespace="default"), "5"))
        mailbox.changed(item(CONFIG, config, "6"))
        mailbox.complete({("", item_name(REF)), ("", item_name(CONFIG))})
        associated = Associated(client, mailbox, edge, lambda: True)
        await associated.reconcile(REF)
        assert api.paths() == [f"GET {STATES}/associatedstates"], "the kind was not read yet"
        edge.follow({REF.kind: CONFIGMAPS}, ())

        async def is_read() -> bool:
            return edge.is_read(REF.kind)

        await until(is_read, "the kind was read")
        await associated.reconcile(REF)
        assert api.paths().count(deletion) == 1
        await edge.close()


async def test_the_first_objects_of_a_placed_one_come_up_whole_once_it_was_looked_at(tmp_path: Path) -> None:
    row = query_row("", {"associated": [{"resource": "secrets", "label": "of", "copies": True, "maxObjects": 2}]})
    refs = {REF: "v1", secret("s1"): "v1"}
    (config,) = plan_parts(specs_of(refs, [], associated=[row]), (), 1).create
    placed = configmap("c", namespace="default", uid="u", resourceVersion="4")
    secrets = [
        {"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "4", "labels": {"of": of}}}
        for name, of in (("s3", "c"), ("s2", "c"), ("s1", "c"), ("s0", "other"), ("s4", "c"))
    ]
    resources = [SERVED, {**SERVED, "name": "secrets", "kind": "Secret"}]
    async with serving(CannedApi()) as api, Client(target(str(api.kubeconfig(tmp_path)), "")) as client:
        api.on(f"GET {ROOT}/apis", {"groups": []})
        api.on(f"GET {ROOT}/api/v1", {"kind": "APIResourceList", "resources": resources})
        api.on(f"GET {STATES}/associatedstates", listed())
        api.on(f"POST {STATES}/namespaces/default/associatedstates", {"metadata": {"resourceVersion": "1"}})
        api.on(f"GET {ROOT}/api/v1/configmaps", listed(placed))
        api.on(f"GET {ROOT}/api/v1/secrets", listed(*secrets))
        mailbox, edge = Mailbox(client), Edge(client, "uid", RateLimit(100.0, 100))
        mailbox.changed(item(REF, configmap("c", namespace="default"), "5"))
        mailbox.changed(item(CONFIG, config, "6"))
        mailbox.complete({("", item_name(REF)), ("", item_name(CONFIG))})
        associated = Associated(client, mailbox, edge, lambda: True)
        associated.all()
        assert not associated.copies.is_complete
        edge.follow({REF.kind: CONFIGMAPS}, ())
        await associated.follow()

        async def is_complete() -> bool:
            await associated.reconcile(REF)
            return associated.copies.is_complete

        await until(is_complete, "it was looked at")
        up = [name for name in ("s0", "s1", "s2", "s3", "s4") if associated.copies.placed(secret(name)) == REF]
        assert up == ["s2", "s3"], "s1 is placed itself"
        await associated.close()
        await edge.close()


def secret(name: str) -> ObjectRef:
    return ObjectRef("", "secrets", "default", name)
