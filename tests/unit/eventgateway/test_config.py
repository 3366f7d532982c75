"""Settings that an event gateway rejects."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.eventgateway.config import EventGatewayConfig
from harness.servers.processes import atoll

WHOLE: dict[str, Any] = {
    "nats_url": "nats://x",
    "nats_credentials_file": "a",
    "keys_file": "b",
    "service_account_key_file": ("c",),
}


def test_with_everything_it_needs_it_is_content() -> None:
    EventGatewayConfig(**WHOLE).check_complete()


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_what_has_no_default_must_be_told(name: str) -> None:
    with pytest.raises(ValueError, match=name.replace("_", "-")):
        EventGatewayConfig(**{**WHOLE, name: ""}).check_complete()


@pytest.mark.parametrize("wrong", [{"secure_port": 70000}, {"log_level": "loud"}, {"tls_cert_file": "x"}], ids=str)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong)).replace("_", "-")):
        EventGatewayConfig(**wrong)  # type: ignore[arg-type]


def test_the_command_says_what_is_missing_in_one_line() -> None:
    done = atoll("event-gateway", "--nats-url", "nats://127.0.0.1:1")
    assert (done.code, done.stderr) == (1, "atoll: nats-credentials-file must not be empty\n")
