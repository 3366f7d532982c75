"""A syncer that starts does not know yet whether a placed object is at the edge, and leaves its state until it does."""

from __future__ import annotations

from pathlib import Path

from atoll.machinery.client.client import Client
from atoll.machinery.edge.associated import query_row
from atoll.machinery.edge.associated_states import associated_state, state_key
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
from unit.syncer.test_applied import CONFIG, CONFIGMAPS, REF, item

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
