"""Keys of service account tokens: both kinds, rotation, the JWKS document; issuers, audiences, lifetimes."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from harness.clients.api import Api, eventually
from harness.servers.processes import atoll
from harness.servers.shard_process import ShardProcess

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/default/secrets"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ISSUER = "https://kcp.default.svc"
NAME = "system:serviceaccount:default:default"


def curve_key(file: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    file.write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    return file


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def header_of(token: str) -> dict[str, Any]:
    return dict(json.loads(decoded(token.partition(".")[0])))


def claims_of(token: str) -> dict[str, Any]:
    return dict(json.loads(decoded(token.split(".")[1])))


def request(api: Api, expect: int = 201, **spec: Any) -> Any:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return api.send("POST", f"{ACCOUNTS}/default/token", body, expect=expect)


def token_of(api: Api, **spec: Any) -> str:
    return str(request(api, **spec).json["status"]["token"])


def who(api: Api, token: str, expect: int = 201) -> str:
    """The user of a token, "" if the token is refused."""
    found = Api(api.shard, api.cluster, token=token).send("POST", REVIEWS, REVIEW, expect=expect).json
    return str(found["status"]["userInfo"]["username"]) if expect == 201 else ""


def published_keys(api: Api) -> dict[str, dict[str, Any]]:
    return {key["kid"]: key for key in api.get("/openid/v1/jwks").json["keys"]}


def signed_by(token: str, jwk: dict[str, Any]) -> bool:
    """Return whether the published key verifies the signature."""
    signed, _, signature = token.rpartition(".")
    number = {name: int.from_bytes(decoded(jwk[name]), "big") for name in ("n", "e", "x", "y") if name in jwk}
    raw = decoded(signature)
    try:
        if jwk["kty"] == "RSA":
            public = rsa.RSAPublicNumbers(number["e"], number["n"]).public_key()
            public.verify(raw, signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        else:
            point = ec.EllipticCurvePublicNumbers(number["x"], number["y"], ec.SECP256R1()).public_key()
            r, s = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
            point.verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def legacy_token(api: Api, name: str) -> str:
    """The token in a Secret."""
    annotations = {"kubernetes.io/service-account.name": "default"}
    secret = {"metadata": {"name": name, "annotations": annotations}, "type": "kubernetes.io/service-account-token"}
    api.post(SECRETS, secret)
    found = eventually(lambda: api.get(f"{SECRETS}/{name}").json.get("data", {}).get("token"), "token in the secret")
    return base64.b64decode(found).decode()


@pytest.mark.long
@pytest.mark.parametrize("workers", ["0", "2"])
def test_tokens_of_the_last_key_count_after_a_restart_with_a_new_one_until_it_is_no_longer_named(
    tmp_path: Path, workers: str
) -> None:
    new = curve_key(tmp_path / "new.pem")
    shard = ShardProcess(tmp_path, "--workers", workers)
    with shard:
        root = Api(shard, "root")
        old_token, kept = token_of(root), legacy_token(root, "kept")
        old_id = header_of(old_token)["kid"]
        assert (header_of(old_token)["alg"], list(published_keys(root))) == ("RS256", [old_id])
    shard.flags = (
        "--workers",
        workers,
        "--service-account-signing-key-file",
        str(new),
        "--service-account-key-file",
        str(shard.root / "sa.key"),
    )
    with shard:
        root = Api(shard, "root")
        new_token = token_of(root)
        new_id = header_of(new_token)["kid"]
        assert (header_of(new_token)["alg"], new_id == old_id) == ("ES256", False)
        assert [who(root, token) for token in (old_token, kept, new_token)] == [NAME] * 3
        published = published_keys(root)
        assert {name: key["alg"] for name, key in published.items()} == {old_id: "RS256", new_id: "ES256"}
        assert signed_by(old_token, published[old_id])
        assert signed_by(new_token, published[new_id])
        assert not signed_by(new_token[:-4] + "AAAA", published[new_id])
        found = root.get("/.well-known/openid-configuration").json
        assert found["id_token_signing_alg_values_supported"] == ["ES256", "RS256"]
        assert (found["issuer"], found["jwks_uri"]) == (ISSUER, f"{shard.url}/openid/v1/jwks")
    shard.flags = ("--workers", workers, "--service-account-signing-key-file", str(new))
    with shard:
        root = Api(shard, "root")
        assert who(root, new_token) == NAME
        assert who(root, old_token, 401) == who(root, kept, 401) == ""
        assert list(published_keys(root)) == [new_id]


def test_a_signing_key_of_ones_own_leaves_no_other_behind(tmp_path: Path) -> None:
    keys = [curve_key(tmp_path / f"{number}.pem") for number in range(3)]
    flags = ["--service-account-signing-key-file", str(keys[0])]
    for key in keys[1:]:
        flags += ["--service-account-key-file", str(key)]
    with ShardProcess(tmp_path, *flags) as shard:
        assert not (shard.root / "sa.key").exists()
        assert len(published_keys(Api(shard, "root"))) == 3


@pytest.mark.parametrize("flag", ["--service-account-signing-key-file", "--service-account-key-file"])
@pytest.mark.parametrize("content", ["hush-this-is-secret\n", None, "P-384"])
def test_a_file_that_holds_no_such_key_is_refused_without_quoting_it(
    tmp_path: Path, flag: str, content: str | None
) -> None:
    file = tmp_path / "given.pem"
    if content == "P-384":
        key, none = ec.generate_private_key(ec.SECP384R1()), serialization.NoEncryption()
        pkcs8 = serialization.PrivateFormat.PKCS8
        file.write_bytes(key.private_bytes(serialization.Encoding.PEM, pkcs8, none))
    elif content is not None:
        file.write_text(content)
    result = atoll(
        "start",
        "--root-directory",
        str(tmp_path / "atoll"),
        "--allow-any-filesystem",
        "--secure-port",
        "0",
        flag,
        str(file),
    )
    assert (result.code, str(file) in result.stderr) == (1, True), result.stderr
    assert not any(word in result.stderr for word in ("hush", "Traceback")), result.stderr


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--service-account-issuer", "://x", "is not a URL"),
        ("--service-account-max-token-expiration", "59m", "between 1 hour and 2^32 seconds"),
        ("--service-account-max-token-expiration", "soon", "is not a duration"),
        ("--service-account-max-token-expiration", "2000000h", "between 1 hour and 2^32 seconds"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, flag: str, value: str, said: str) -> None:
    result = atoll("start", "--root-directory", str(tmp_path / "atoll"), flag, value)
    assert (result.code, said in result.stderr) == (1, True), result.stderr


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    flags = (
        "--service-account-issuer",
        "https://atoll.example.com",
        "--service-account-issuer",
        ISSUER,
        "--api-audiences",
        "atoll,https://api.example.com",
        "--service-account-max-token-expiration",
        "1h30m",
    )
    with ShardProcess(tmp_path_factory.mktemp("told"), *flags) as shard:
        yield shard


@pytest.fixture
def root(published: ShardProcess) -> Api:
    return Api(published, "root")


def test_tokens_name_the_issuer_and_the_audiences_that_were_set(root: Api) -> None:
    said = claims_of(token := token_of(root))
    assert (said["iss"], said["aud"]) == ("https://atoll.example.com", ["atoll", "https://api.example.com"])
    assert root.get("/.well-known/openid-configuration").json["issuer"] == "https://atoll.example.com"
    assert who(root, token) == NAME
    assert who(root, token_of(root, audiences=["https://api.example.com", "vault"])) == NAME
    assert who(root, token_of(root, audiences=[ISSUER]), 401) == ""


def test_a_token_for_others_is_reviewed_for_them_alone(root: Api) -> None:
    token = token_of(root, audiences=["vault"])

    def reviewed(*audiences: str, expect: int = 201) -> dict[str, Any]:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": list(audiences)},
        }
        found = root.post(TOKEN_REVIEWS, body, expect=expect).json
        return dict(found["status"] if expect == 201 else found)

    assert reviewed("vault", "other")["audiences"] == ["vault"]
    assert reviewed(*["vault"] * 101, expect=400)["reason"] == "BadRequest"
    assert not reviewed().get("authenticated")
    assert not reviewed("other").get("authenticated")
    assert who(root, token, 401) == ""


def test_a_life_that_is_too_long_is_shortened_and_that_is_said(root: Api) -> None:
    answer = request(root, expirationSeconds=7200)
    assert answer.warnings == ["requested expiration of 7200 seconds shortened to 5400 seconds"]
    assert answer.json["spec"]["expirationSeconds"] == 5400
    said = claims_of(answer.json["status"]["token"])
    assert (said["exp"] - said["iat"], abs(said["iat"] - time.time()) < 60) == (5400, True)
    assert request(root, expirationSeconds=5400).warnings == []
    for seconds in (599, (1 << 32) + 1):
        assert request(root, 422, expirationSeconds=seconds).json["reason"] == "Invalid"


def test_a_token_bound_to_a_secret_dies_with_it_and_is_of_this_one_only(root: Api) -> None:
    secret = root.post(SECRETS, {"metadata": {"name": "bound"}}).json["metadata"]
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "bound"}
    token = token_of(root, boundObjectRef={**reference, "uid": secret["uid"]})
    assert claims_of(token)["kubernetes.io"]["secret"] == {"name": "bound", "uid": secret["uid"]}
    assert who(root, token) == NAME
    request(root, 409, boundObjectRef={**reference, "uid": "another"})
    request(root, 404, boundObjectRef={**reference, "name": "absent"})
    request(root, 404, boundObjectRef={"apiVersion": "v1", "kind": "Pod", "name": "p"})
    request(root, 400, boundObjectRef={"apiVersion": "v1", "kind": "ConfigMap", "name": "c"})
    root.delete(f"{SECRETS}/bound")
    assert who(root, token, 401) == ""
    root.post(SECRETS, {"metadata": {"name": "bound"}})
    assert who(root, token, 401) == ""
