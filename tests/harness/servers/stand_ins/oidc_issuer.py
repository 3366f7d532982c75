"""An OpenID Connect issuer of the tests: real HTTPS on 127.0.0.1, an authority of its own, real keys.

with Issuer() as issuer:
    issuer.url, issuer.ca_pem
    token = issuer.token(sub="alice", aud=["me"])
"""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from atoll.machinery.process.pki import make_ca, make_serving

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8))


class Issuer:
    """One issuer. `keys` are by id; `requests` are the requested paths."""

    def __init__(self) -> None:
        self.authority = make_ca("issuer test")
        self.ca_pem = self.authority.certificate.decode()
        self.keys: dict[str, Key] = {"first": rsa.generate_private_key(65537, 2048)}
        self.requests: list[str] = []
        self.down = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}/realm"
        self.named = self.url
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = make_serving(self.authority, ("127.0.0.1",))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pair.pem"
            path.write_bytes(pair.key + b"\n" + pair.certificate)
            context.load_cert_chain(path)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)

    def __enter__(self) -> Issuer:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def curve(self, id: str) -> None:
        """Add a key on P-256."""
        self.keys[id] = ec.generate_private_key(ec.SECP256R1())

    def token(self, key: str = "first", header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A signed token, good for ten minutes unless the claims say otherwise."""
        private = self.keys[key]
        algorithm = "RS256" if isinstance(private, rsa.RSAPrivateKey) else "ES256"
        now = int(time.time())
        whole = {"iss": self.url, "iat": now, "nbf": now, "exp": now + 600, **claims}
        whole = {name: value for name, value in whole.items() if value is not None}
        head = {"alg": algorithm, "kid": key, **(header or {})}
        signed = f"{encoded(json.dumps(head).encode())}.{encoded(json.dumps(whole).encode())}"
        return f"{signed}.{encoded(_signature(private, signed.encode()))}"

    def _documents(self) -> dict[str, Any]:
        return {
            "/realm/.well-known/openid-configuration": {"issuer": self.named, "jwks_uri": f"{self.url}/keys"},
            "/realm/keys": {"keys": [_jwk(id, key) for id, key in self.keys.items()]},
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 20

            def log_message(self, format: str, *arguments: object) -> None:
                """Suppress the log."""

            def do_GET(self) -> None:
                issuer.requests.append(self.path)
                found = None if issuer.down else issuer._documents().get(self.path)
                body = json.dumps(found or {}).encode()
                self.send_response(200 if found else 503 if issuer.down else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler


def _signature(key: Key, data: bytes) -> bytes:
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32) + s.to_bytes(32)


def _jwk(id: str, key: Key) -> dict[str, str]:
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = key.public_key().public_numbers()
        return {"kty": "RSA", "kid": id, "use": "sig", "alg": "RS256", "n": _number(numbers.n), "e": _number(numbers.e)}
    point = key.public_key().public_numbers()
    return {
        "kty": "EC",
        "kid": id,
        "crv": "P-256",
        "x": encoded(point.x.to_bytes(32)),
        "y": encoded(point.y.to_bytes(32)),
    }
