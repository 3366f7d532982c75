"""A webhook server of the tests: real HTTPS on 127.0.0.1 with an authority of its own, in a thread.

    with WebhookServer(answer) as webhook:
        webhook.url, webhook.ca_bundle, webhook.calls

`answer` takes a parsed body and gives what to send: JSON, bytes, or an `Odd` answer. Calls are kept with their paths,
headers and bodies.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from atoll.machinery.process.pki import make_ca, make_serving
from atoll.machinery.process.private_files import Pair

Object = dict[str, Any]


class Odd(NamedTuple):
    """An answer beside 200: status, headers, body."""

    status: int
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b""


#: An answer that is none: the connection is closed.
HANG_UP = Odd(0)


class WebhookCall(NamedTuple):
    """One received request."""

    path: str
    headers: dict[str, str]
    body: Object


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Handshakes that fail are part of the tests."""


class WebhookServer:
    """One server; starts and ends with its context, its connections too. `names` are those of its certificate."""

    def __init__(
        self,
        answer: Callable[[Object], Object | bytes | Odd],
        names: tuple[str, ...] = ("127.0.0.1",),
        *,
        again: WebhookServer | None = None,
    ):
        """`again`: a server that ended, whose address and authority this one takes over."""
        self.answer = answer
        self.calls: list[WebhookCall] = []
        self._connections: set[socket.socket] = set()
        self.ca: Pair = again.ca if again else make_ca("webhook test")
        self.ca_bundle = base64.b64encode(self.ca.certificate).decode()
        self._server = _Quiet(("127.0.0.1", again.port if again else 0), self._handler())
        self.port: int = self._server.server_address[1]
        self.url = f"https://127.0.0.1:{self.port}/convert"
        self._wrap(names)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def _wrap(self, names: tuple[str, ...]) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pair = make_serving(self.ca, names)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pair.pem"
            path.write_bytes(pair.key + b"\n" + pair.certificate)
            context.load_cert_chain(path)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def answered(self, path: str, body: Object) -> Object | bytes | Odd:
        """The answer to one request."""
        return self.answer(body)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            #: Head and body are two writes: the second would wait for a delayed acknowledgement of the first.
            disable_nagle_algorithm = True
            timeout = 20

            def setup(self) -> None:
                super().setup()
                server._connections.add(self.connection)

            def finish(self) -> None:
                server._connections.discard(self.connection)
                super().finish()

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"null")
                server.calls.append(WebhookCall(self.path, dict(self.headers.items()), body))
                answer = server.answered(self.path, body)
                if answer is HANG_UP:
                    self.close_connection = True
                    return
                odd = answer if isinstance(answer, Odd) else Odd(200, {}, _bytes(answer))
                self.send_response(odd.status)
                for name, value in odd.headers.items():
                    self.send_header(name, value)
                if "Content-Length" in odd.headers:
                    # Another length than the body's: the rest never comes.
                    self.close_connection = True
                else:
                    self.send_header("Content-Length", str(len(odd.body)))
                self.end_headers()
                self.wfile.write(odd.body)

            def log_message(self, *args: Any) -> None:
                """Suppress the log."""

        return Handler


def _bytes(answer: Object | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


def converted(review: Object, convert: Callable[[Object, str], Object]) -> Object:
    """The answer of a well-behaved conversion webhook; `convert` makes one object of another version."""
    request = review["request"]
    objects = [convert(obj, request["desiredAPIVersion"]) for obj in request["objects"]]
    response = {"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
