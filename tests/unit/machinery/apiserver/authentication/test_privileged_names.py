"""Every reserved name against every kind of credential.

The rows are the code's own lists. A new name in them, or a right that bootstrap gives to a group, fails a test until
the result of each kind of credential is written down.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll.machinery.apiserver.authentication.authenticator import Authenticator, BearerTokens
from atoll.machinery.apiserver.authentication.certificates import Certificates
from atoll.machinery.apiserver.authentication.impersonation import Impersonator
from atoll.machinery.apiserver.authentication.oidc.issuer_keys import AuthenticationPending
from atoll.machinery.apiserver.authentication.oidc.source import ConfiguredIssuers, WorkspaceIssuers
from atoll.machinery.apiserver.authentication.service_account_keys import KeySet, load_keys
from atoll.machinery.apiserver.authentication.service_accounts import ServiceAccountIssuers, ServiceAccountTokens
from atoll.machinery.apiserver.authentication.token_issuer import Account, TokenIssuer
from atoll.machinery.apiserver.authentication.tokens import StaticTokens, parse_token_file, token_digest
from atoll.machinery.apiserver.authorization import effective_users, groups
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.status import ApiError
from atoll.machinery.meta.user import CLUSTER_NAME, User
from atoll.machinery.process.pki import make_ca, make_client, make_rsa_key, pem_to_der
from atoll.machinery.storage.contract import Record
from atoll.machinery.wire.exchange import HttpRequest, Peer
from harness.data.kcp_objects import bootstrapped
from harness.models.rbac_snapshot import FakeStore, bootstrap, workspace
from harness.servers.stand_ins.oidc_issuer import Issuer

WEB, OWN = "2web", "https://kcp.default.svc"
#: The effect of a kind of credential on a name: accepted from a trusted source, dropped, or the request is rejected.
KEPT, DROPPED, REFUSED = "kept", "dropped", "refused"
#: The operator is trusted for his files, his authorities and his issuers; a tenant only for users of the tenant.
VOUCHED = {"token file": KEPT, "certificate": KEPT, "proxy": KEPT, "operator's issuer": KEPT}
GROUP = {**VOUCHED, "impersonation": REFUSED, "workspace's issuer": DROPPED}
LIFECYCLE = dict.fromkeys(VOUCHED, DROPPED) | {"impersonation": REFUSED, "workspace's issuer": DROPPED}
EVERYBODY = {**VOUCHED, "impersonation": KEPT, "workspace's issuer": KEPT}

GROUPS: dict[str, dict[str, str]] = {
    "system:masters": GROUP,
    "system:kcp:admin": GROUP,
    "system:kcp:tenancy:workspace-bootstrapper": GROUP,
    "system:kcp:logical-cluster-admin": GROUP,
    "system:kcp:external-logical-cluster-admin": GROUP,
    "system:authenticated": EVERYBODY,
    "system:kcp:*": GROUP,
    "system:cluster:*": GROUP,
    "apis.kcp.io:binding:*": GROUP,
    "system:kcp:initializer:*": LIFECYCLE,
    "system:kcp:terminator:*": LIFECYCLE,
}
NAME = {**VOUCHED, "impersonation": REFUSED, "workspace's issuer": REFUSED}
NAMES: dict[str, dict[str, str]] = {"system:kcp:*": NAME, "system:cluster:*": NAME, "apis.kcp.io:binding:*": NAME}
#: Certificates and the token file have no extras; the operator's own mappings may not make such either way round.
EXTRAS: dict[str, dict[str, str]] = {
    # They only restrict; the workspace's own is added.
    effective_users.SCOPES: {"impersonation": KEPT, "proxy": KEPT, "workspace's issuer": DROPPED},
    CLUSTER_NAME: {"impersonation": REFUSED, "proxy": KEPT, "workspace's issuer": DROPPED},
    effective_users.WARRANT: {"impersonation": REFUSED, "proxy": KEPT, "workspace's issuer": DROPPED},
}
#: Groups that bootstrap binds to roles and that give no rights over others.
HARMLESS = {"system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:monitoring"}


class Authenticators:
    """One authenticator of each kind. `of` returns the user of a credential with a name, groups and extras."""

    def __init__(self, directory: Path, issuer: Issuer) -> None:
        self.store, self.issuer = FakeStore(), issuer
        bootstrap(self.store)
        workspace(self.store, WEB, owner="alice")
        self._directory = directory
        self._clients, self._proxies = make_ca("clients"), make_ca("proxies")
        self._proxy = pem_to_der(make_client(self._proxies, "front").certificate)
        self.by: dict[str, Callable[[str, list[str], dict[str, str]], User]] = {
            "token file": self._token_file,
            "certificate": self._certificate,
            "proxy": self._spoken_for,
            "impersonation": self._impersonated,
            "operator's issuer": self._operators,
            "workspace's issuer": self._tenants,
        }

    def _come(self, request: HttpRequest, *sources: Any) -> User:
        table = StaticTokens(parse_token_file("alice-token,alice,1"), (OWN,))
        certificates = Certificates(self._clients.certificate, self._proxies.certificate)
        bearers = BearerTokens((table, *sources), (OWN,))
        authenticator = Authenticator(bearers, certificates, Impersonator(Authorizer()))
        return authenticator.authenticate(request, WEB, self.store)

    def _token_file(self, name: str, held: list[str], extra: dict[str, str]) -> User:
        row = f'their-token,{name},1,"{",".join(held)}"'
        request = _request({"authorization": ["Bearer their-token"]})
        return self._come(request, StaticTokens(parse_token_file(row), (OWN,)))

    def _certificate(self, name: str, held: list[str], extra: dict[str, str]) -> User:
        der = pem_to_der(make_client(self._clients, name, held).certificate)
        return self._come(HttpRequest("GET", b"/api", {}, b"", Peer("::1", 1, der)))

    def _spoken_for(self, name: str, held: list[str], extra: dict[str, str]) -> User:
        headers = {"x-remote-user": [name], "x-remote-group": held}
        headers |= {f"x-remote-extra-{key}": [value] for key, value in extra.items()}
        return self._come(HttpRequest("GET", b"/api", headers, b"", Peer("::1", 1, self._proxy)))

    def _impersonated(self, name: str, held: list[str], extra: dict[str, str]) -> User:
        headers = {"authorization": ["Bearer alice-token"], "impersonate-user": [name], "impersonate-group": held}
        headers |= {f"impersonate-extra-{key}": [value] for key, value in extra.items()}
        return self._come(_request({key: values for key, values in headers.items() if values}))

    def _operators(self, name: str, held: list[str], extra: dict[str, str]) -> User:
        file = self._directory / "authentication.json"
        kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
        file.write_text(json.dumps({**kind, "jwt": [self._trusted({})]}))
        return self._resolved(ConfiguredIssuers(file, (OWN,), self._fetch), name, held, extra)

    def _tenants(self, name: str, held: list[str], extra: dict[str, str]) -> User:
        key = ObjectKey(ResourceType("tenancy.kcp.io", "workspaceauthenticationconfigurations"), "2org", "", "own")
        record = Record(key, 1, msgspec.json.encode({"spec": {"jwt": [self._trusted(extra)]}}))
        source = WorkspaceIssuers(lambda view, cluster: [record], self._fetch)
        return self._resolved(source, name, held, extra)

    def _trusted(self, extra: dict[str, str]) -> dict[str, Any]:
        mappings: dict[str, Any] = {
            "username": {"claim": "sub", "prefix": ""},
            "groups": {"claim": "groups", "prefix": ""},
        }
        if extra:
            mappings["extra"] = [{"key": key, "valueExpression": f"'{value}'"} for key, value in extra.items()]
        trust = {"url": self.issuer.url, "audiences": ["us"], "certificateAuthority": self.issuer.ca_pem}
        return {"issuer": trust, "claimMappings": mappings}

    def _resolved(self, source: Any, name: str, held: list[str], extra: dict[str, str]) -> User:
        token = self.issuer.token(sub=name, aud=["us", OWN], groups=held)
        more = (WEB,) if isinstance(source, WorkspaceIssuers) else ()
        return authenticated_user(source, token, self.store, more)

    async def _fetch(self, url: str, ca_pem: bytes, timeout_s: float) -> bytes:
        return json.dumps(self.issuer._documents()[url.removeprefix(self.issuer.url.removesuffix("/realm"))]).encode()


def authenticated_user(source: Any, token: str, store: FakeStore, more: tuple[str, ...]) -> User:
    """The user of a token, after the keys of its issuer were fetched."""
    for _ in range(3):
        try:
            found = source.user_of(token, token_digest(token), (OWN,), store, *more)
        except AuthenticationPending as error:
            asyncio.run(resolved(error))
        else:
            assert isinstance(found, User)
            return found
    raise AssertionError("the keys never came")


async def resolved(error: AuthenticationPending) -> None:
    await error.complete()


def _request(headers: dict[str, list[str]]) -> HttpRequest:
    return HttpRequest("GET", b"/api", headers, b"", Peer("::1", 1))


@pytest.fixture(scope="module")
def authenticators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authenticators]:
    with Issuer() as issuer:
        yield Authenticators(tmp_path_factory.mktemp("doors"), issuer)


def meant(row: str) -> str:
    return row.replace("*", "x")


def outcome(come: Callable[[], bool]) -> str:
    try:
        return KEPT if come() else DROPPED
    except ApiError as error:
        assert error.code in {400, 401, 403}, error
        return REFUSED


def listed(prefixes: tuple[str, ...]) -> set[str]:
    return {f"{prefix}*" for prefix in prefixes}


def test_every_name_the_code_keeps_for_itself_has_its_rules() -> None:
    kept = set(groups.PRIVILEGED_GROUPS) | listed(groups.RESERVED_PREFIXES) | listed(groups.LIFECYCLE_PREFIXES)
    assert set(GROUPS) == kept
    assert set(NAMES) == listed(groups.RESERVED_PREFIXES)
    carried = {value for name, value in vars(effective_users).items() if name.isupper() and isinstance(value, str)}
    assert set(EXTRAS) == {value for value in carried if "/" in value}
    assert all(groups.RESERVED_EXTRA in key for key in EXTRAS)


def test_every_group_that_bootstrap_gives_power_is_one_of_them() -> None:
    bound = {
        subject["name"]
        for manifest in bootstrapped()
        if manifest.type.resource in {"clusterrolebindings", "rolebindings"}
        for subject in manifest.object.get("subjects") or []
        if subject["kind"] == "Group"
    }
    assert bound >= {"system:masters", "system:kcp:admin"}
    assert {name for name in bound if not groups.is_privileged(name)} <= HARMLESS


@pytest.mark.parametrize("via", GROUP)
@pytest.mark.parametrize("row", GROUPS)
def test_a_group_of_power_comes_in_by_no_door_but_its_own(authenticators: Authenticators, row: str, via: str) -> None:
    group = meant(row)
    found = outcome(lambda: group in authenticators.by[via]("carol", ["devs", group], {}).groups)
    assert found == GROUPS[row][via]


@pytest.mark.parametrize("via", NAME)
@pytest.mark.parametrize("row", NAMES)
def test_a_name_the_system_makes_is_nobodys_to_take(authenticators: Authenticators, row: str, via: str) -> None:
    name = meant(row)
    assert outcome(lambda: authenticators.by[via](name, ["devs"], {}).name == name) == NAMES[row][via]


@pytest.mark.parametrize(
    "name",
    [
        "system:masters",
        "system:anonymous",
        "system:apiserver",
        "system:node:x",
        "system:serviceaccount:default:default",
    ],
)
def test_a_tenants_issuer_makes_nobody_of_the_systems(authenticators: Authenticators, name: str) -> None:
    assert outcome(lambda: bool(authenticators.by["workspace's issuer"](name, [], {}))) == REFUSED


@pytest.mark.parametrize(("key", "via"), [(key, via) for key, rules in EXTRAS.items() for via in rules])
def test_an_extra_that_carries_authority_is_nobodys_to_set(authenticators: Authenticators, key: str, via: str) -> None:
    found = outcome(
        lambda: (
            "cluster:elsewhere" in authenticators.by[via]("carol", [], {key: "cluster:elsewhere"}).extra.get(key, ())
        )
    )
    assert found == EXTRAS[key][via]


@pytest.fixture(scope="module")
def keys() -> KeySet:
    return load_keys(make_rsa_key())


@pytest.mark.parametrize("name", ["masters", "kcp-admin", "x"])
def test_a_service_account_is_in_the_groups_of_its_namespace_and_in_no_other(keys: KeySet, name: str) -> None:
    """The account's name and annotations have no effect, as only name and uid of its object are read."""
    store = FakeStore()
    annotations = {"groups": "system:masters", effective_users.WARRANT: "{}"}
    meta = {"name": name, "namespace": "system", "uid": "u", "annotations": annotations, "labels": annotations}
    store.put(WEB, {"kind": "ServiceAccount", "metadata": meta})
    token, _ = TokenIssuer(keys, ServiceAccountIssuers()).issue(Account(WEB, "system", name, "u"), (OWN,), 600)
    found = authenticated_user(ServiceAccountTokens(keys, ServiceAccountIssuers()), token, store, ())
    assert not [group for group in found.groups if groups.is_privileged(group) and group != "system:authenticated"]
    assert found.extra[CLUSTER_NAME] == (WEB,)
    assert {effective_users.SCOPES, effective_users.WARRANT}.isdisjoint(found.extra)
