"""Fencing tokens on the wire: every verb that writes is refused once the account has written with a newer one."""

from __future__ import annotations

from harness.clients.api import APPLY, MERGE, Api, configmap, workspace_under

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def test_no_verb_writes_with_an_older_token(api: Api, master: Api) -> None:
    old, new = ({"atoll-fencing-token": number} for number in ("6", "7"))
    api.post(CONFIGMAPS, configmap("a"))
    assert api.send("PATCH", f"{CONFIGMAPS}/a", {"data": {"n": "1"}}, kind=MERGE, headers=new).code == 200
    stored = api.get(f"{CONFIGMAPS}/a", headers=old).json
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"n": "2"}}
    for headers in (old, {"atoll-fencing-token": "nine"}, {"atoll-fencing-token": "-8"}):
        for method, path, body, kind in (
            ("POST", CONFIGMAPS, configmap("b"), ""),
            ("PUT", f"{CONFIGMAPS}/a", {**stored, "data": {"n": "2"}}, ""),
            ("PATCH", f"{CONFIGMAPS}/a", {"data": {"n": "2"}}, MERGE),
            ("PATCH", f"{CONFIGMAPS}/a?fieldManager=x&force=true", applied, APPLY),
            ("DELETE", f"{CONFIGMAPS}/a", None, ""),
            ("DELETE", CONFIGMAPS, None, ""),
        ):
            refused = api.send(method, path, body, kind=kind, headers=headers)
            assert refused.code == 412, (method, path)
            assert "newer fencing token" in refused.message
    assert api.get(f"{CONFIGMAPS}/a").json == stored
    assert api.send("DELETE", f"{CONFIGMAPS}/a", headers=new).code == 200
    # Another account has tokens of its own.
    other = master.at(api.cluster)
    assert other.send("POST", CONFIGMAPS, configmap("c"), headers={"atoll-fencing-token": "2"}).code == 201
    assert other.send("DELETE", f"{CONFIGMAPS}/c", headers={"atoll-fencing-token": "1"}).code == 412
    other.close()


def account_of(api: Api) -> Api:
    """A service account of a workspace that may do everything there."""
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": "w", "namespace": "default"}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "w"}}
    api.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "w"}})
    api.post(f"/apis/{group}/v1/clusterrolebindings", {**binding, "subjects": [subject], "roleRef": role})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return Api(api.shard, api.cluster, token=api.post(f"{ACCOUNTS}/w/token", request).json["status"]["token"])


def test_accounts_of_one_name_in_two_workspaces_have_tokens_of_their_own(api: Api, admin: Api) -> None:
    there = admin.at(workspace_under(admin, type_="universal"))
    first, second = account_of(api), account_of(there)
    new, old = {"atoll-fencing-token": "7"}, {"atoll-fencing-token": "6"}
    assert first.send("POST", CONFIGMAPS, configmap("a"), headers=new).code == 201
    assert second.send("POST", CONFIGMAPS, configmap("a"), headers=old).code == 201
    assert first.send("DELETE", f"{CONFIGMAPS}/a", headers=old).code == 412
    for each in (first, second, there):
        each.close()
