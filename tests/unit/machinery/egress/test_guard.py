"""Calls to tenants' URLs: over real sockets and TLS, with DNS answers that the test chooses."""

from __future__ import annotations

import asyncio
import gc
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from atoll.machinery.egress import Egress, EgressError, Outbound, breakers, guard, policy, resolver
from atoll.machinery.egress.call_slots import SlotBounds
from atoll.machinery.egress.resolver import Resolver
from harness.servers.stand_ins.webhook import HANG_UP, Odd, WebhookServer

OPEN = policy("127.0.0.0/8")


@pytest.fixture
def webhook() -> Iterator[WebhookServer]:
    with WebhookServer(lambda body: {"echo": body}, ("127.0.0.1", "hook.example.com")) as server:
        yield server


def outbound(webhook: WebhookServer, **more: Any) -> Outbound:
    settings: dict[str, Any] = {"purpose": "test", "url": webhook.url, "ca_pem": webhook.ca.certificate, **more}
    return Outbound(body=b'{"a":1}', **settings)


def named(webhook: WebhookServer, **more: Any) -> Outbound:
    return outbound(webhook, url=f"https://hook.example.com:{webhook.port}/x", **more)


async def refused(egress: Egress, call: Outbound) -> EgressError:
    with pytest.raises(EgressError) as caught:
        await egress.send(call)
    return caught.value


async def test_a_call_is_answered_over_tls(webhook: WebhookServer) -> None:
    egress = Egress(OPEN)
    answer = await egress.send(outbound(webhook, query="timeout=10s"))
    assert answer.body == b'{"echo": {"a": 1}}'
    (call,) = webhook.calls
    assert call.path == "/convert?timeout=10s"
    assert call.headers["Content-Type"] == "application/json"
    await egress.close()


async def test_loopback_is_refused_unless_it_was_opened(webhook: WebhookServer) -> None:
    registry = CollectorRegistry()
    egress = Egress(policy(), registry)
    error = await refused(egress, outbound(webhook))
    assert error.result == "refused"
    assert str(error) == f'Post "{webhook.url}": 127.0.0.1 must not be called: 127.0.0.1 is a loopback address'
    assert webhook.calls == []
    labels = {"purpose": "test", "result": "refused"}
    assert registry.get_sample_value("atoll_egress_requests_total", labels) == 1


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_other_spellings_of_loopback_are_seen_through(webhook: WebhookServer, host: str) -> None:
    error = await refused(Egress(policy()), outbound(webhook, url=f"https://{host}:{webhook.port}/"))
    assert error.result in {"refused", "unresolved"}
    assert webhook.calls == []


async def test_a_name_is_judged_by_every_address_it_has(webhook: WebhookServer) -> None:
    egress = Egress(policy(), resolver=Resolver(lambda host, port: ["8.8.8.8", "169.254.169.254"]))
    error = await refused(egress, named(webhook))
    assert error.result == "refused"
    assert "169.254.169.254" in str(error)


async def test_the_connection_goes_to_the_address_that_was_judged(webhook: WebhookServer) -> None:
    # The name exists only in this answer: a second resolution would reach no server.
    egress = Egress(OPEN, resolver=Resolver(lambda host, port: ["127.0.0.1"]))
    await egress.send(named(webhook))
    (call,) = webhook.calls
    assert call.headers["Host"] == f"hook.example.com:{webhook.port}"
    await egress.close()


async def test_the_certificate_must_name_the_host(webhook: WebhookServer) -> None:
    egress = Egress(OPEN, resolver=Resolver(lambda host, port: ["127.0.0.1"]))
    error = await refused(egress, outbound(webhook, url=f"https://other.example.com:{webhook.port}/"))
    assert error.result == "untrusted"
    assert "other.example.com" in str(error)
    assert webhook.calls == []


async def test_the_certificate_must_be_of_the_bundle(webhook: WebhookServer) -> None:
    with WebhookServer(lambda body: {}) as other:
        egress = Egress(OPEN)
        assert (await refused(egress, outbound(webhook, ca_pem=other.ca.certificate))).result == "untrusted"
        assert (await refused(egress, outbound(webhook, ca_pem=b""))).result == "untrusted"
        assert (await refused(egress, outbound(webhook, ca_pem=b"nothing"))).result == "untrusted"
    assert webhook.calls == []


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "ftp://example.com/",
        "https:///x",
        "https://user@example.com/",
        "https://a b/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://[::1/",
    ],
)
async def test_only_plain_https_urls_are_called(webhook: WebhookServer, url: str) -> None:
    assert (await refused(Egress(OPEN), outbound(webhook, url=url))).result == "refused"


async def test_redirects_are_answers_not_orders(webhook: WebhookServer) -> None:
    webhook.answer = lambda body: Odd(302, {"Location": "https://169.254.169.254/latest"})
    egress = Egress(OPEN)
    error = await refused(egress, outbound(webhook))
    assert (error.result, len(webhook.calls)) == ("status", 1)
    assert str(error).endswith("the server responded with status 302")
    await egress.close()


async def test_a_response_above_the_bound_is_cut(webhook: WebhookServer) -> None:
    webhook.answer = lambda body: b"x" * (guard.MAX_RESPONSE + 1)
    egress = Egress(OPEN)
    assert (await refused(egress, outbound(webhook))).result == "broken"
    await egress.close()


async def test_silence_ends_with_the_deadline(webhook: WebhookServer) -> None:
    release = threading.Event()
    webhook.answer = lambda body: Odd(200, {}, b"late") if release.wait(60) else Odd(500)
    egress = Egress(OPEN)
    error = await refused(egress, outbound(webhook, timeout_s=0.2))
    release.set()
    assert (error.result, str(error)) == ("timeout", f'Post "{webhook.url}": context deadline exceeded')
    await egress.close()


async def test_a_call_that_waited_most_of_its_time_for_a_slot_is_no_failure_of_the_peer(
    webhook: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BOUNDS", SlotBounds(total=1, per_host=1, per_tenant=1, per_lane=1, waiting=9))
    release = threading.Event()
    webhook.answer = lambda body: Odd(200, {}, b"late") if release.wait(60) else Odd(500)
    egress = Egress(OPEN)
    first = asyncio.create_task(refused(egress, outbound(webhook, timeout_s=0.8)))
    await asyncio.sleep(0)
    # It gets the slot when the first call gives up.
    second = await refused(egress, outbound(webhook, timeout_s=1.0))
    release.set()
    assert ((await first).result, second.result) == ("timeout", "busy")
    assert str(second) == f'Post "{webhook.url}": context deadline exceeded'
    assert {breaking.results & {"busy"} for breaking in (breakers.PATIENT, breakers.EAGER)} == {frozenset()}
    await egress.close()


async def test_a_dead_peer_is_not_asked_after_failing_again_and_again(webhook: WebhookServer) -> None:
    looked_up: list[str] = []

    def lookup(host: str, port: int) -> list[str]:
        looked_up.append(host)
        raise OSError("no such host")

    egress = Egress(OPEN, resolver=Resolver(lookup))
    results = [(await refused(egress, named(webhook))).result for _ in range(breakers.FAILURES + 3)]
    assert results == ["unresolved"] * breakers.FAILURES + ["open"] * 3
    assert len(looked_up) == breakers.FAILURES
    # Another URL, or another CA bundle for the same host, has a circuit of its own.
    assert (await refused(egress, named(webhook, ca_pem=b"other"))).result != "open"
    assert (await refused(egress, named(webhook))).result == "open", "for as long as the pause"


async def test_a_wrong_status_does_not_open_the_circuit(webhook: WebhookServer) -> None:
    webhook.answer = lambda body: Odd(500, {}, b"out of order" + b"." * 4096)
    egress = Egress(OPEN)
    errors = [await refused(egress, outbound(webhook)) for _ in range(breakers.FAILURES + 2)]
    assert {(error.result, error.status, error.body[:12]) for error in errors} == {("status", 500, b"out of order")}
    assert len(errors[0].body) == 2048, "as much as client-go quotes"
    await egress.close()


async def test_the_circuit_of_an_admission_webhook_repeats_the_last_words_and_tries_again_within_a_second(
    webhook: WebhookServer,
) -> None:
    up = asyncio.Event()
    egress = Egress(OPEN)
    # Long enough for a handshake on a busy machine.
    call = outbound(webhook, timeout_s=0.25, breaking=breakers.EAGER)
    hang = threading.Event()
    webhook.answer = lambda body: Odd(200) if hang.wait(60) else Odd(500)
    errors = [await refused(egress, call) for _ in range(breakers.FAILURES + 1)]
    assert [error.result for error in errors] == ["timeout"] * breakers.FAILURES + ["open"]
    assert {str(error) for error in errors} == {f'Post "{webhook.url}": context deadline exceeded'}
    hang.set()
    async with asyncio.timeout(breakers.PAUSE_S):
        while not up.is_set():
            try:
                await egress.send(call)
                up.set()
            except EgressError:
                await asyncio.sleep(0.01)
    await egress.close()


async def test_a_probe_that_hangs_does_not_keep_the_next_one_waiting(webhook: WebhookServer) -> None:
    hang = threading.Event()
    webhook.answer = lambda body: Odd(200) if hang.wait(60) else Odd(500)
    guarded = breakers.Breakers()

    async def probe(answered: asyncio.Event) -> None:
        with guarded.guard("peer", breakers.EAGER):
            await answered.wait()

    for _ in range(breakers.FAILURES):
        with pytest.raises(EgressError), guarded.guard("peer", breakers.EAGER):
            raise EgressError("timeout", "context deadline exceeded")
    silent, soon = asyncio.Event(), asyncio.Event()
    soon.set()
    async with asyncio.timeout(60):
        while True:
            first = asyncio.create_task(probe(silent))
            await asyncio.wait([first], timeout=0.01)
            if not first.done():
                break
            assert isinstance(first.exception(), EgressError)
        while True:
            try:
                await probe(soon)
                break
            except EgressError:
                await asyncio.sleep(0.01)
    silent.set()
    await first
    hang.set()


@pytest.mark.parametrize("odd", [Odd(500), HANG_UP, Odd(302)])
async def test_only_silence_opens_the_circuit_of_an_admission_webhook(webhook: WebhookServer, odd: Odd) -> None:
    webhook.answer = lambda body: odd
    egress = Egress(OPEN)
    call = outbound(webhook, breaking=breakers.EAGER)
    results = {(await refused(egress, call)).result for _ in range(breakers.FAILURES + 2)}
    assert results <= {"status", "broken"}
    assert len(webhook.calls) == breakers.FAILURES + 2
    await egress.close()


async def test_failures_are_told_in_the_words_of_go(webhook: WebhookServer) -> None:
    webhook.answer = lambda body: HANG_UP
    egress = Egress(OPEN)
    assert str(await refused(egress, outbound(webhook))) == f'Post "{webhook.url}": EOF'
    await egress.close()
    with WebhookServer(lambda body: {}) as gone:
        dead = outbound(gone)
        untrusted = await refused(egress, outbound(gone, ca_pem=webhook.ca.certificate))
    assert str(untrusted).endswith("tls: failed to verify certificate: x509: certificate signed by unknown authority")
    assert str(await refused(egress, dead)).endswith(f"dial tcp 127.0.0.1:{gone.port}: connect: connection refused")


async def test_what_may_be_repeated_survives_a_kept_connection_that_ends(webhook: WebhookServer) -> None:
    egress = Egress(OPEN)
    for repeatable in (True, False):
        answers: list[Odd] = [Odd(200), HANG_UP, Odd(200, {}, b"again")]
        webhook.answer = lambda body, answers=answers: answers.pop(0)  # type: ignore[misc]
        await egress.send(outbound(webhook, repeatable=repeatable))
        if repeatable:
            assert (await egress.send(outbound(webhook, repeatable=True))).body == b"again"
        else:
            assert (await refused(egress, outbound(webhook))).result == "broken"
    await egress.close()


async def test_look_ups_are_bounded_kept_and_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "MAX_LOOKUPS", 1)
    release = threading.Event()
    asked: list[str] = []

    def lookup(host: str, port: int) -> list[str]:
        asked.append(host)
        release.wait(60)
        return ["10.0.0.1"]

    found = Resolver(lookup)
    first, second = (asyncio.create_task(found.resolve("a.example.com", 443)) for _ in range(2))
    await asyncio.sleep(0)
    with pytest.raises(resolver.Unresolved, match="too many lookups"):
        await found.resolve("b.example.com", 443)
    release.set()
    assert await first == await second == ("10.0.0.1",)
    assert await found.resolve("a.example.com", 443) == ("10.0.0.1",)
    assert asked == ["a.example.com"]


async def test_one_domain_does_not_take_all_look_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "MAX_OF_DOMAIN", 2)
    release = threading.Event()

    def lookup(host: str, port: int) -> list[str]:
        if host.endswith("slow.example"):
            release.wait(60)
        return ["10.0.0.1"]

    found = Resolver(lookup)
    slow = [asyncio.create_task(found.resolve(f"{name}.slow.example", 443)) for name in "ab"]
    await asyncio.sleep(0)
    with pytest.raises(resolver.Unresolved, match="too many lookups"):
        await found.resolve("c.slow.example", 443)
    assert await found.resolve("a.other.example", 443) == ("10.0.0.1",)
    release.set()
    await asyncio.gather(*slow)


async def test_a_name_that_no_resolver_takes_is_told_as_such() -> None:
    for odd in ("a\0b.example.com", "x" * 300 + ".example.com", "a..example.com"):
        with pytest.raises(resolver.Unresolved, match="no such host"):
            await Resolver().resolve(odd, 443)


async def test_a_look_up_that_hangs_ends_with_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "TIMEOUT_S", 0.05)
    release = threading.Event()

    def lookup(host: str, port: int) -> list[str]:
        release.wait(60)
        return ["10.0.0.1"]

    with pytest.raises(resolver.Unresolved, match="timed out"):
        await Resolver(lookup).resolve("a.example.com", 443)
    release.set()


async def test_a_name_with_hundreds_of_addresses_is_not_called() -> None:
    many = [f"10.0.0.{index}" for index in range(resolver.MAX_ADDRESSES + 1)]
    with pytest.raises(resolver.Unresolved, match="17 addresses"):
        await Resolver(lambda host, port: many).resolve("a.example.com", 443)
    with pytest.raises(resolver.Unresolved, match="0 addresses"):
        await Resolver(lambda host, port: []).resolve("a.example.com", 443)


async def test_huge_bundles_of_certificates_are_kept_within_a_bound(webhook: WebhookServer) -> None:
    egress, before = Egress(OPEN), _contexts()
    for number in range(12):
        padding = f"{number} {'x' * 400_000}\n".encode()
        await egress.send(outbound(webhook, ca_pem=padding + webhook.ca.certificate))
    held = 8 * 400_000
    assert _contexts() - before <= (guard.MAX_TRUSTED_BYTES + guard.MAX_PEER_BYTES) / held + 1
    await egress.close()


def _contexts() -> int:
    gc.collect()
    return sum(isinstance(each, ssl.SSLContext) for each in gc.get_objects())
