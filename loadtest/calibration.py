"""What this machine does in a microsecond: five small measures that do not touch the server.

Machines differ by a factor of three in plain Python and by little in compiled code, so a cost in microseconds says
little elsewhere. The runner measures these first and prints times as so many Python calls besides.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from atoll.machinery.process.pki import make_ca, make_serving
from atoll.machinery.process.private_files import Pair

_RUNS, _SYNCS = 15, 20
_RECORD = b"x" * 1400


class Calibration(msgspec.Struct, frozen=True):
    """Microseconds each: a Python call, 1 KB of JSON decoded and encoded, a TLS record both ways, an fsync, SHA-256
    of 1 KB.
    """

    python_call: float
    json: float
    tls_record: float
    fsync: float
    sha256: float

    def text(self) -> str:
        """Return one line for people."""
        return (
            f"a Python call {self.python_call:.3f} us, JSON of 1 KB both ways {self.json:.1f} us, "
            f"a TLS record both ways {self.tls_record:.1f} us, fsync {self.fsync:.0f} us, "
            f"SHA-256 of 1 KB {self.sha256:.1f} us"
        )


def calibrate() -> Calibration:
    """Measure. Takes about a second."""
    metadata = {"name": "calibration", "namespace": "default"}
    data = msgspec.json.encode(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "y" * 900}}
    )
    with _joined() as (one, other):

        def record() -> None:
            one.write(_RECORD)
            other.read(len(_RECORD))

        tls = _us(record, 200)
    return Calibration(
        python_call=_us(_calls, 20) / _CALLS,
        json=_us(lambda: msgspec.json.encode(msgspec.json.decode(data), order="sorted"), 500),
        tls_record=tls,
        fsync=_fsync_us(),
        sha256=_us(lambda: hashlib.sha256(data).digest(), 1000),
    )


_CALLS = 1000


def _one(value: dict[str, int], name: str) -> int:
    """Do about what a short function of a server does: look up, compare, add."""
    found = value.get(name)
    return found + 1 if found is not None else 0


def _calls() -> None:
    value = {"a": 1, "b": 2}
    for _ in range(_CALLS):
        _one(value, "a")


def _us(work: Callable[[], object], times: int) -> float:
    """Return the microseconds of one call: the median of some runs."""
    found = []
    for _ in range(_RUNS):
        began = time.perf_counter()
        for _ in range(times):
            work()
        found.append((time.perf_counter() - began) / times)
    return statistics.median(found) * 1e6


def _fsync_us() -> float:
    with tempfile.TemporaryFile() as file:
        found = []
        for _ in range(_SYNCS):
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            found.append(time.perf_counter() - began)
    return statistics.median(found) * 1e6


@contextmanager
def _joined() -> Iterator[tuple[ssl.SSLObject, ssl.SSLObject]]:
    """Give both ends of a TLS connection in memory."""
    ca = make_ca("calibration")
    pair = make_serving(ca, ["localhost"])
    with tempfile.TemporaryDirectory() as place:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(*_files(Path(place), pair))
    client = ssl.create_default_context(cadata=ca.certificate.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    other = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [one, other]
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    yield one, other


def _files(place: Path, pair: Pair) -> tuple[Path, Path]:
    certificate, key = place / "cert", place / "key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return certificate, key
