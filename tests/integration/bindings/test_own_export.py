"""A workspace that binds its own export, deletes it and makes it again."""

from __future__ import annotations

from harness.clients.api import Api, eventually
from harness.clients.exports import (
    BINDINGS,
    EXPORTS,
    SECRETS,
    SLICES,
    bind,
    export,
    make_export,
    schema,
    wait_bound,
    wait_condition,
)

SHAPES = schema("rings")


def urls(api: Api, name: str) -> list[str]:
    """The addresses of an export's view, in its endpoint slice."""
    status = api.get(f"{SLICES}/{name}").json.get("status") or {}
    return [each["url"] for each in status.get("endpoints") or []]


def test_an_export_made_anew_in_its_own_workspace_serves_the_binding_that_is_there(provider: Api) -> None:
    first = make_export(provider, "own", SHAPES)
    bind(provider, provider.cluster, "own")
    eventually(lambda: urls(provider, "own"), "the view has an address")
    provider.delete(f"{EXPORTS}/own")
    eventually(lambda: provider.send("GET", f"{EXPORTS}/own").code == 404, "it is gone")
    # With its identity's Secret it would be the same export again.
    provider.delete(f"{SECRETS}/own")
    provider.post(EXPORTS, export("own", SHAPES))
    again = wait_condition(provider, f"{EXPORTS}/own", "IdentityValid")["status"]["identityHash"]
    assert again != first["status"]["identityHash"]

    def follows() -> bool:
        resources = provider.get(f"{BINDINGS}/own").json["status"]["boundResources"]
        return [each["schema"]["identityHash"] for each in resources] == [again]

    eventually(follows, "the binding has the new identity")
    wait_bound(provider, "own")
    (address,) = eventually(lambda: urls(provider, "own"), "the view has an address again")
    assert address.endswith("/own")
