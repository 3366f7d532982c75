"""Frames of published messages: the bytes that the NATS client sends, and headers without line breaks."""

from __future__ import annotations

import pytest
from nats.protocol.command import hpub_cmd

from atoll.machinery.stream.connection import encode_publish


def test_a_frame_is_what_the_client_would_send() -> None:
    head = bytearray(b"NATS/1.0\r\nce-id: 1\r\nce-subject: a/\xc3\xa4\r\n\r\n")
    frame = encode_publish("atoll.x", b"{}\r\n", "_INBOX.1", ["ce-id: 1", "ce-subject: a/\u00e4"])
    assert frame == hpub_cmd("atoll.x", "_INBOX.1", head, b"{}\r\n")


@pytest.mark.parametrize("bad", ["a\r\nb: c", "a\nb", "a\r"])
def test_a_header_that_breaks_out_of_its_line_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        encode_publish("atoll.x", b"", "_INBOX.1", [f"ce-id: {bad}"])
    with pytest.raises(ValueError, match="line break"):
        encode_publish(f"atoll.{bad}", b"", "_INBOX.1", ["ce-id: 1"])
