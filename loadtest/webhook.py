"""An admission webhook in a process of its own: it allows everything, after a time of its own.

It costs a fraction of what a call costs the server that is measured: one event loop, one field read of each review.
Scenarios configure it by `configuration`.
"""

from __future__ import annotations

import asyncio
import base64
import multiprocessing
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing.connection import Connection

import msgspec
import uvloop

from atoll.machinery.meta.objects import Object
from atoll.machinery.process import pki, tls
from atoll.machinery.wire.exchange import Exchange
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.server import Server

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CREATES: Object = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
_ADDRESS = "127.0.0.1"
_ALLOWED = b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"%s","allowed":true}}'


class _Request(msgspec.Struct):
    uid: str


class _Review(msgspec.Struct):
    request: _Request


class Webhook(msgspec.Struct, frozen=True):
    """The address of one that runs, and the bundle of its authority."""

    url: str
    ca_bundle: str

    def configuration(self, **more: object) -> Object:
        """A configuration that asks it about each new ConfigMap; `more` are fields of the webhook."""
        webhook = {
            "name": "measured.example.com",
            "clientConfig": {"url": self.url, "caBundle": self.ca_bundle},
            "rules": [CREATES],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "measured"},
            "webhooks": [webhook],
        }


@asynccontextmanager
async def running(takes_s: float = 0.0) -> AsyncIterator[Webhook]:
    """A webhook that takes so long; ended with the context."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_process, args=(theirs, takes_s))
    process.start()
    try:
        yield Webhook(*await asyncio.to_thread(ours.recv))
    finally:
        process.terminate()
        await asyncio.to_thread(process.join)


def _process(output: Connection, takes_s: float) -> None:
    uvloop.run(_serve(output, takes_s))


async def _serve(output: Connection, takes_s: float) -> None:
    ca = pki.make_ca("measured webhook")
    server = Server(partial(_answer, takes_s), Limits(), tls.server_context(pki.make_serving(ca, [_ADDRESS])))
    port = await server.start(_ADDRESS, 0)
    output.send((f"https://{_ADDRESS}:{port}/", base64.b64encode(ca.certificate).decode()))
    await asyncio.Event().wait()


def _answer(takes_s: float, exchange: Exchange) -> None:
    """Allow what is asked about, in due time."""
    uid = msgspec.json.decode(exchange.request.body, type=_Review).request.uid
    reply = partial(exchange.reply, 200, [("Content-Type", "application/json")], _ALLOWED % uid.encode())
    if takes_s:
        asyncio.get_running_loop().call_later(takes_s, reply)
    else:
        reply()
