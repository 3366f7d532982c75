"""Service account tokens: issued tokens are accepted where they are valid, and forged ones never are."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator

import msgspec
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from atoll.machinery.apiserver.authentication import jwt
from atoll.machinery.apiserver.authentication.routing import token_cluster
from atoll.machinery.apiserver.authentication.service_account_claims import Reference
from atoll.machinery.apiserver.authentication.service_account_keys import (
    KeySet,
    jwks,
    key_id,
    load_keys,
    openid_configuration,
)
from atoll.machinery.apiserver.authentication.service_accounts import ServiceAccountIssuers, ServiceAccountTokens
from atoll.machinery.apiserver.authentication.token_issuer import Account, TokenIssuer, account_key
from atoll.machinery.apiserver.authentication.tokens import token_digest
from atoll.machinery.meta.objects import Object
from atoll.machinery.meta.status import BadRequest, Conflict, Invalid, NotFound, Unauthorized
from atoll.machinery.meta.user import User
from atoll.machinery.process.pki import make_rsa_key, public_key_pem
from atoll.machinery.wire.exchange import HttpRequest, Peer
from harness.models.rbac_snapshot import FakeStore

ISSUER = "https://kcp.default.svc"
WEB = "2web"
NOW = 1_800_000_000
ACCOUNT = Account(WEB, "ns", "builder", "uid-1")


class Clock:
    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def keys() -> KeySet:
    return load_keys(make_rsa_key())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> FakeStore:
    made = FakeStore()
    put_account(made)
    return made


@pytest.fixture
def tokens(keys: KeySet, clock: Clock) -> ServiceAccountTokens:
    return ServiceAccountTokens(keys, ServiceAccountIssuers(), clock)


@pytest.fixture
def issuer(keys: KeySet, clock: Clock) -> TokenIssuer:
    return TokenIssuer(keys, ServiceAccountIssuers(), clock=clock)


def put_account(store: FakeStore, uid: str = "uid-1", **metadata: str) -> None:
    full = {"name": "builder", "namespace": "ns", "uid": uid, **metadata}
    store.put(WEB, {"kind": "ServiceAccount", "metadata": full})


def put_secret(store: FakeStore, uid: str = "s-1", token: str = "") -> None:
    data = {"token": base64.b64encode(token.encode()).decode()} if token else {}
    store.put(WEB, {"kind": "Secret", "metadata": {"name": "s", "namespace": "ns", "uid": uid}, "data": data})


def check(tokens: ServiceAccountTokens, token: str, store: FakeStore, audience: str = ISSUER) -> User | None:
    return tokens.user_of(token, token_digest(token), (audience,), store)


def test_a_token_names_its_account_cluster_and_groups(
    tokens: ServiceAccountTokens, issuer: TokenIssuer, store: FakeStore
) -> None:
    token, expires = issuer.issue(ACCOUNT, (ISSUER,), 3600)
    assert expires == NOW + 3600
    for _ in range(2):
        user = check(tokens, token, store)
        assert user is not None
        assert user.name == "system:serviceaccount:ns:builder"
        assert user.uid == "uid-1"
        assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
        assert user.extra["authentication.kcp.io/cluster-name"] == (WEB,)
        assert user.extra["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")


def test_a_token_ends_when_it_says_also_when_it_was_used_before(
    tokens: ServiceAccountTokens, issuer: TokenIssuer, store: FakeStore, clock: Clock
) -> None:
    token, expires = issuer.issue(ACCOUNT, (ISSUER,), 600)
    assert check(tokens, token, store)
    clock.now = expires
    with pytest.raises(Unauthorized):
        check(tokens, token, store)


def test_a_token_is_not_good_before_it_begins_but_for_a_little_skew(
    tokens: ServiceAccountTokens, issuer: TokenIssuer, store: FakeStore, clock: Clock
) -> None:
    token, _ = issuer.issue(ACCOUNT, (ISSUER,), 600)
    clock.now = NOW - 5
    assert check(tokens, token, store)
    clock.now = NOW - 60
    with pytest.raises(Unauthorized):
        check(tokens, token, store)


def test_a_token_is_good_for_its_audiences_only(
    tokens: ServiceAccountTokens, issuer: TokenIssuer, store: FakeStore
) -> None:
    token, _ = issuer.issue(ACCOUNT, ("vault",), 600)
    with pytest.raises(Unauthorized):
        check(tokens, token, store)
    assert check(tokens, token, store, "vault")


class TestLiveCheck:
    def test_a_deleted_account_takes_its_tokens_along_at_once(
        self, tokens: ServiceAccountTokens, issuer: TokenIssuer, store: FakeStore
    ) -> None:
        token, _ = issuer.issue(ACCOUNT, (ISSUER,), 600)
        assert check(tokens, token, store)
        store.delete(WEB, "ServiceAccount", "builder", "ns")
        with pytest.raises(Unauthorized):
            check(tokens, token, store)

    def test_an_account_made_anew_does_not_inherit_tokens(
        self, tokens: ServiceAccountTokens, issuer: TokenIssuer, store: FakeStore
    ) -> None:
        token, _ = issuer.issue(ACCOUNT, (ISSUER,), 600)
        assert check(tokens, token, store)
        put_account(store, uid="uid-2")
        with pytest.raises(Unauthorized):
            check(tokens, token, store)

    def test_an_account_that_is_being_deleted_is_none(
        self, tokens: ServiceAccountTokens, issuer: TokenIssuer, store: FakeStore
    ) -> None:
        token, _ = issuer.issue(ACCOUNT, (ISSUER,), 600)
        put_account(store, deletionTimestamp="2026-01-01T00:00:00Z")
        with pytest.raises(Unauthorized):
            check(tokens, token, store)

    def test_an_unrelated_change_leaves_it_good(
        self, tokens: ServiceAccountTokens, issuer: TokenIssuer, store: FakeStore
    ) -> None:
        token, _ = issuer.issue(ACCOUNT, (ISSUER,), 600)
        assert check(tokens, token, store)
        put_account(store, resourceVersion="7")
        assert check(tokens, token, store)

    def test_a_token_bound_to_a_secret_dies_with_it(
        self, tokens: ServiceAccountTokens, issuer: TokenIssuer, store: FakeStore
    ) -> None:
        put_secret(store)
        token, _ = issuer.issue(ACCOUNT, (ISSUER,), 600, Reference("s", "s-1"))
        assert check(tokens, token, store)
        put_secret(store, uid="s-2")
        for _ in range(2):
            with pytest.raises(Unauthorized):
                check(tokens, token, store)
        store.delete(WEB, "Secret", "s", "ns")
        with pytest.raises(Unauthorized):
            check(tokens, token, store)

    def test_a_secrets_own_token_is_good_while_the_secret_keeps_it(
        self, tokens: ServiceAccountTokens, issuer: TokenIssuer, store: FakeStore, clock: Clock
    ) -> None:
        token = issuer.legacy(ACCOUNT, "s")
        with pytest.raises(Unauthorized):
            check(tokens, token, store)
        put_secret(store, token=token)
        clock.now += 10**9
        user = check(tokens, token, store)
        assert user is not None
        assert user.extra["authentication.kcp.io/cluster-name"] == (WEB,)
        put_secret(store, token="another")
        with pytest.raises(Unauthorized):
            check(tokens, token, store)


def test_a_retired_key_still_verifies_and_a_foreign_one_never_does(
    issuer: TokenIssuer, store: FakeStore, clock: Clock
) -> None:
    old, new = make_rsa_key(), make_rsa_key()
    token, _ = TokenIssuer(load_keys(old), ServiceAccountIssuers(), clock=clock).issue(ACCOUNT, (ISSUER,), 600)
    both = ServiceAccountTokens(load_keys(new, [public_key_pem(old)]), ServiceAccountIssuers(), clock)
    assert check(both, token, store)
    with pytest.raises(Unauthorized):
        check(ServiceAccountTokens(load_keys(new), ServiceAccountIssuers(), clock), token, store)


def test_keys_are_replaced_for_everybody_who_has_them_and_what_they_verified_counts_no_more(
    store: FakeStore, clock: Clock
) -> None:
    old, new = curve_key(ec.SECP256R1()), curve_key(ec.SECP256R1())
    keys = load_keys(old)
    tokens, issuer = (
        ServiceAccountTokens(keys, ServiceAccountIssuers(), clock),
        TokenIssuer(keys, ServiceAccountIssuers(), clock=clock),
    )
    before, _ = issuer.issue(ACCOUNT, (ISSUER,), 600)
    assert check(tokens, before, store)
    keys.replace(load_keys(new, [old]))
    after, _ = issuer.issue(ACCOUNT, (ISSUER,), 600)
    assert check(tokens, before, store)
    assert check(tokens, after, store)
    keys.replace(load_keys(new))
    assert check(tokens, after, store)
    with pytest.raises(Unauthorized):
        check(tokens, before, store)


def curve_key(curve: ec.EllipticCurve) -> bytes:
    return ec.generate_private_key(curve).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def small_rsa_key() -> bytes:
    return rsa.generate_private_key(public_exponent=65537, key_size=1024).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def damaged_rsa_key() -> bytes:
    """One whose private exponents are not those of its public one."""
    whole = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_numbers()
    d, p, q = whole.d + 2, whole.p, whole.q
    numbers = rsa.RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), whole.iqmp, whole.public_numbers)
    return numbers.private_key(unsafe_skip_rsa_key_validation=True).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def test_a_damaged_key_does_not_sign() -> None:
    with pytest.raises(ValueError):
        load_keys(damaged_rsa_key())


@pytest.mark.parametrize("pem", [curve_key(ec.SECP384R1()), small_rsa_key(), b"", b"hush"], ids=range(4))
def test_a_key_that_is_neither_a_good_rsa_key_nor_of_our_curve_is_refused(pem: bytes) -> None:
    with pytest.raises(ValueError):
        load_keys(pem)
    with pytest.raises(ValueError):
        load_keys(make_rsa_key(), [pem])


def test_a_key_of_the_curve_signs_and_its_tokens_outlive_it_in_a_file_of_several_keys(
    store: FakeStore, clock: Clock
) -> None:
    old, new, older = curve_key(ec.SECP256R1()), make_rsa_key(), make_rsa_key()
    token, _ = TokenIssuer(load_keys(old), ServiceAccountIssuers(), clock=clock).issue(ACCOUNT, (ISSUER,), 600)
    assert msgspec.json.decode(jwt.decode_base64(token.partition(".")[0]))["alg"] == "ES256"
    assert len(jwt.decode_base64(token.rpartition(".")[2])) == 64
    keys = load_keys(new, [public_key_pem(older) + old])
    assert check(ServiceAccountTokens(keys, ServiceAccountIssuers(), clock), token, store)
    assert len(keys.verifying) == 3
    with pytest.raises(Unauthorized):
        check(ServiceAccountTokens(load_keys(new, [older]), ServiceAccountIssuers(), clock), token, store)


def signed_as(claims: str, key: ec.EllipticCurvePrivateKey, algorithm: str, key_id: str, between: bytes = b"") -> str:
    """A token with a valid signature and any header; `between` is put between the two numbers of the signature."""
    head = f"{jwt.encode_base64(msgspec.json.encode({'alg': algorithm, 'kid': key_id}))}.{claims}"
    r, s = decode_dss_signature(key.sign(head.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{head}.{jwt.encode_base64(r.to_bytes(32, 'big') + between + s.to_bytes(32, 'big'))}"


def test_a_key_counts_with_its_own_algorithm_alone(store: FakeStore, clock: Clock) -> None:
    mine = load_keys(curve_key(ec.SECP256R1()), [make_rsa_key()])
    key = mine.signing
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    token, _ = TokenIssuer(mine, ServiceAccountIssuers(), clock=clock).issue(ACCOUNT, (ISSUER,), 600)
    claims = token.split(".")[1]
    tokens = ServiceAccountTokens(mine, ServiceAccountIssuers(), clock)
    assert check(tokens, signed_as(claims, key, "ES256", mine.signing_id), store)
    other = next(name for name in mine.verifying if name != mine.signing_id)
    for algorithm, name, between in (
        ("RS256", mine.signing_id, b""),
        ("none", mine.signing_id, b""),
        ("ES384", mine.signing_id, b""),
        ("ES256", other, b""),
        ("RS256", other, b""),
        ("ES256", "", b""),
        ("ES256", mine.signing_id, b"\0"),
    ):
        with pytest.raises(Unauthorized):
            check(tokens, signed_as(claims, key, algorithm, name, between), store)


def test_tokens_of_other_issuers_are_left_to_others(
    keys: KeySet, tokens: ServiceAccountTokens, store: FakeStore, clock: Clock
) -> None:
    other = TokenIssuer(keys, ServiceAccountIssuers(("https://elsewhere",), (ISSUER,)), clock=clock)
    assert check(tokens, other.issue(ACCOUNT, (ISSUER,), 600)[0], store) is None
    for text in ("", "a", "a.b", "a.b.c", "...", "x" * 20_000):
        assert check(tokens, text, store) is None


# --- forgeries: each is a token that a caller without the key could send ----------------------------------


def _b64(value: object) -> str:
    return jwt.encode_base64(value if isinstance(value, bytes) else msgspec.json.encode(value))


def _good(keys: KeySet) -> tuple[Object, Object, str]:
    clock = Clock()
    token, _ = TokenIssuer(keys, ServiceAccountIssuers(), clock=clock).issue(ACCOUNT, (ISSUER,), 3600)
    header, payload, signature = token.split(".")
    return _json(header), _json(payload), signature


def _json(text: str) -> Object:
    decoded: Object = msgspec.json.decode(jwt.decode_base64(text))
    return decoded


def _headers(keys: KeySet, good: Object) -> Iterator[Object]:
    kid = keys.signing_id
    yield from (
        {**good, "alg": alg}
        for alg in (
            "none",
            "None",
            "NONE",
            "nOnE",
            "",
            "HS256",
            "HS384",
            "HS512",
            "RS384",
            "RS512",
            "PS256",
            "ES256",
            "EdDSA",
            "rs256",
            "RS256 ",
            None,
            256,
            ["RS256"],
        )
    )
    yield from (
        {**good, "kid": value}
        for value in (
            "",
            "unknown",
            kid[:-1],
            kid + "=",
            kid + " ",
            kid.upper(),
            "../../sa.key",
            "/dev/null",
            "' OR 1=1 --",
            0,
            None,
            [kid],
            {"kid": kid},
            "\x00" + kid,
        )
    )
    yield {"alg": "RS256"}
    yield {"kid": kid}
    yield {}
    for name in ("jwk", "jku", "x5u", "x5c", "crit", "b64", "zip", "cty", "enc", "x5t"):
        yield {**good, name: jwks(keys)["keys"][0] if name == "jwk" else ["x"]}


def _payloads(good: Object) -> Iterator[Object]:
    bound = good["kubernetes.io"]
    for cluster in ("root", "other", "system:admin", "", "*", "a:b", None, 1):
        yield {**good, "kubernetes.io": {**bound, "clusterName": cluster}}
    for name in ("admin", "", "builder:x", None):
        yield {**good, "kubernetes.io": {**bound, "serviceaccount": {"name": name, "uid": "uid-1"}}}
    for uid in ("", "uid-2", None):
        yield {**good, "kubernetes.io": {**bound, "serviceaccount": {"name": "builder", "uid": uid}}}
    for sub in ("system:admin", "system:serviceaccount:ns:other", "alice", "", "system:kcp:admin"):
        yield {**good, "sub": sub}
    for exp in (0, -1, NOW - 1, "later", None, 2**70, NOW + 10**9):
        yield {**good, "exp": exp}
    for nbf in (NOW + 10**6, "soon", None):
        yield {**good, "nbf": nbf}
    for aud in ([], "vault", ["vault"], None, ISSUER):
        yield {**good, "aud": aud}
    yield {**good, "groups": ["system:masters"]}
    yield {**good, "kubernetes.io": {**bound, "pod": {"name": "p", "uid": "u"}}}
    yield {key: value for key, value in good.items() if key != "exp"}


def forgeries(keys: KeySet) -> Iterator[tuple[str, str]]:
    header, payload, signature = _good(keys)
    public = keys.signing.public_key()
    attacker = load_keys(make_rsa_key())
    secrets = [
        public.public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
        for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER)
    ]
    secrets += [b"", b"secret", keys.signing_id.encode()]
    parts = {"header": _headers(keys, header), "payload": _payloads(payload)}
    for kind, changes in parts.items():
        for number, changed in enumerate(changes):
            first = _b64(changed if kind == "header" else header)
            second = _b64(changed if kind == "payload" else payload)
            signed = f"{first}.{second}".encode()
            yield f"{kind} {number}, signature kept", f"{first}.{second}.{signature}"
            yield f"{kind} {number}, no signature", f"{first}.{second}."
            stolen = rsa_key(attacker).sign(signed, PKCS1v15(), hashes.SHA256())
            yield f"{kind} {number}, other key", f"{first}.{second}.{_b64(stolen)}"
            secret = secrets[number % len(secrets)]
            yield (f"{kind} {number}, hmac", f"{first}.{second}.{_b64(hmac.digest(secret, signed, hashlib.sha256))}")
    good = f"{_b64(header)}.{_b64(payload)}.{signature}"
    for place in range(0, len(good), 4):
        swapped = "A" if good[place] != "A" else "B"
        yield f"character {place}", good[:place] + swapped + good[place + 1 :]
    # The last character has bits that no byte of the signature uses: another one decodes to the same bytes.
    unused = _ALPHABET[_ALPHABET.index(good[-1]) + 1]
    for spelled in ("=", "==", "\n", ".", ".x"):
        yield "another spelling", good + spelled
    for spelled in (" " + good, good[:-1], good[:-1] + unused, good.replace(".", "..")):
        yield "another spelling", spelled


_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def test_no_forged_token_is_ever_accepted(keys: KeySet, tokens: ServiceAccountTokens, store: FakeStore) -> None:
    good = TokenIssuer(keys, ServiceAccountIssuers(), clock=Clock()).issue(ACCOUNT, (ISSUER,), 3600)[0]
    assert check(tokens, good, store)
    seen = set()
    for what, token in forgeries(keys):
        assert token != good, what
        seen.add(token)
        try:
            user = check(tokens, token, store)
        except Unauthorized:
            user = None
        assert user is None, what
    assert len(seen) >= 500


def rsa_key(keys: KeySet) -> rsa.RSAPrivateKey:
    """The signing key of a set that was made with an RSA key."""
    assert isinstance(keys.signing, rsa.RSAPrivateKey)
    return keys.signing


def test_even_with_our_key_a_header_that_says_anything_else_is_refused(
    keys: KeySet, tokens: ServiceAccountTokens, store: FakeStore
) -> None:
    header, payload, _ = _good(keys)
    for changed in _headers(keys, header):
        signed = f"{_b64(changed)}.{_b64(payload)}"
        signature = rsa_key(keys).sign(signed.encode(), PKCS1v15(), hashes.SHA256())
        with pytest.raises(Unauthorized):
            check(tokens, f"{signed}.{_b64(signature)}", store)


def test_an_account_without_a_uid_has_no_tokens(
    tokens: ServiceAccountTokens, issuer: TokenIssuer, store: FakeStore
) -> None:
    put_account(store, uid="")
    token, _ = issuer.issue(Account(WEB, "ns", "builder", ""), (ISSUER,), 600)
    with pytest.raises(Unauthorized):
        check(tokens, token, store)


def test_even_with_our_key_claims_that_contradict_themselves_are_refused(
    keys: KeySet, tokens: ServiceAccountTokens, store: FakeStore
) -> None:
    _, payload, _ = _good(keys)
    for changed in _payloads(payload):
        if changed.get("exp") in (2**70, NOW + 10**9) or "groups" in changed:
            continue  # late expiry is valid, and claims with groups are not read
        token = jwt.sign(msgspec.json.encode(changed), keys.signing, keys.signing_id)
        with pytest.raises(Unauthorized):
            check(tokens, token, store)


# --- TokenRequest -------------------------------------------------------------------------------------------


class TestTokenRequest:
    KEY = account_key(WEB, "ns", "builder")

    def test_answers_with_a_good_token_and_its_end(
        self, issuer: TokenIssuer, tokens: ServiceAccountTokens, store: FakeStore
    ) -> None:
        answer, warnings = issuer.token_request({"spec": {}}, self.KEY, store)
        assert warnings == []
        assert answer["spec"] == {"audiences": [ISSUER], "expirationSeconds": 3600}
        assert answer["status"]["expirationTimestamp"] == "2027-01-15T09:00:00Z"
        assert check(tokens, answer["status"]["token"], store)

    def test_takes_audiences_and_a_secret_to_be_bound_to(
        self, issuer: TokenIssuer, tokens: ServiceAccountTokens, store: FakeStore
    ) -> None:
        put_secret(store)
        reference = {"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": "s-1"}
        spec = {"audiences": ["vault"], "expirationSeconds": 700, "boundObjectRef": reference}
        answer, _ = issuer.token_request({"spec": spec}, self.KEY, store)
        assert check(tokens, answer["status"]["token"], store, "vault")
        store.delete(WEB, "Secret", "s", "ns")
        with pytest.raises(Unauthorized):
            check(tokens, answer["status"]["token"], store, "vault")

    @pytest.mark.parametrize("seconds", [599, 0, -1, (1 << 32) + 1])
    def test_refuses_lifetimes_out_of_range(self, issuer: TokenIssuer, store: FakeStore, seconds: int) -> None:
        with pytest.raises(Invalid, match=r"TokenRequest.authentication.k8s.io .* spec.expirationSeconds"):
            issuer.token_request({"spec": {"expirationSeconds": seconds}}, self.KEY, store)

    def test_shortens_what_is_longer_than_the_operator_allows(
        self, keys: KeySet, clock: Clock, store: FakeStore
    ) -> None:
        issuer = TokenIssuer(keys, ServiceAccountIssuers(), 1000, clock)
        answer, warnings = issuer.token_request({"spec": {"expirationSeconds": 5000}}, self.KEY, store)
        assert answer["spec"]["expirationSeconds"] == 1000
        assert warnings == ["requested expiration of 5000 seconds shortened to 1000 seconds"]

    @pytest.mark.parametrize(
        ("reference", "error"),
        [
            ({"kind": "Pod", "name": "p"}, NotFound),
            ({"kind": "Node", "name": "n"}, NotFound),
            ({"kind": "Secret", "name": "absent"}, NotFound),
            ({"kind": "ConfigMap", "name": "c"}, BadRequest),
            ({"kind": "Secret", "name": "s", "uid": "other"}, Conflict),
        ],
    )
    def test_refuses_objects_it_cannot_be_bound_to(
        self, issuer: TokenIssuer, store: FakeStore, reference: Object, error: type[Exception]
    ) -> None:
        put_secret(store)
        with pytest.raises(error):
            issuer.token_request({"spec": {"boundObjectRef": reference}}, self.KEY, store)

    def test_is_for_an_account_that_exists_and_that_it_names(self, issuer: TokenIssuer, store: FakeStore) -> None:
        with pytest.raises(NotFound, match='serviceaccounts "ghost" not found'):
            issuer.token_request({"spec": {}}, account_key(WEB, "ns", "ghost"), store)
        with pytest.raises(BadRequest):
            issuer.token_request({"metadata": {"name": "other"}, "spec": {}}, self.KEY, store)


def test_discovery_documents_let_others_verify(keys: KeySet) -> None:
    document = openid_configuration(ISSUER, "https://shard/openid/v1/jwks", keys)
    assert document["issuer"] == ISSUER
    assert document["id_token_signing_alg_values_supported"] == ["RS256"]
    (key,) = jwks(keys)["keys"]
    assert key["kid"] == key_id(keys.signing.public_key())
    assert (key["kty"], key["use"], key["alg"], key["e"]) == ("RSA", "sig", "RS256", "AQAB")
    modulus = int.from_bytes(jwt.decode_base64(key["n"]), "big")
    assert modulus == rsa_key(keys).public_key().public_numbers().n
    assert set(key) == {"use", "kty", "kid", "alg", "n", "e"}  # no private components


def test_keys_of_the_curve_are_told_with_their_point() -> None:
    keys = load_keys(curve_key(ec.SECP256R1()), [make_rsa_key()])
    assert openid_configuration(ISSUER, "https://shard", keys)["id_token_signing_alg_values_supported"] == [
        "ES256",
        "RS256",
    ]
    first, second = jwks(keys)["keys"]
    assert (first["kid"], first["alg"], first["crv"], second["alg"]) == (keys.signing_id, "ES256", "P-256", "RS256")
    x, y = (int.from_bytes(jwt.decode_base64(first[name]), "big") for name in ("x", "y"))
    public = keys.verifying[keys.signing_id]
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert (x, y) == (public.public_numbers().x, public.public_numbers().y)
    assert set(first) == {"use", "kty", "kid", "alg", "crv", "x", "y"}


class TestRoutingByToken:
    def request(self, token: str, **more: str) -> HttpRequest:
        headers = {"authorization": [f"Bearer {token}"], **{k.replace("_", "-"): [v] for k, v in more.items()}}
        return HttpRequest("GET", b"/api", headers, b"", Peer("::1", 1))

    def test_reads_the_cluster_of_both_kinds_of_token(self, issuer: TokenIssuer) -> None:
        token, _ = issuer.issue(ACCOUNT, (ISSUER,), 600)
        assert token_cluster(self.request(token)) == WEB
        assert token_cluster(self.request(issuer.legacy(ACCOUNT, "s"))) == WEB

    def test_stays_out_of_the_way_of_what_was_routed_already(self, issuer: TokenIssuer) -> None:
        token, _ = issuer.issue(ACCOUNT, (ISSUER,), 600)
        assert token_cluster(self.request(token, x_kubernetes_sharded_request="1")) == ""

    @pytest.mark.parametrize("claims", [{}, [], {"kubernetes.io": {"clusterName": "a/../b"}}, {"kubernetes.io": 3}])
    def test_claims_that_name_no_cluster_route_nowhere(self, claims: object) -> None:
        assert token_cluster(self.request(f"e30.{_b64(claims)}.x")) == ""
        assert token_cluster(self.request("opaque")) == ""
