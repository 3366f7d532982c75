"""`kubectl atoll shards`: each shard of a site, and what it needs: health, load, disk, lag, certificates.

Called by `atoll`. What a Shard object says is the shard's own last word; the rest is asked of the shard itself, by its
health checks and its metrics. Invariant: what a shard does not answer is shown as unknown, never as good.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from atoll.cli.kubectl.plugin import Failure, columns, common_flags, run, say
from atoll.cli.kubectl.root import SHARDS, address_of, direct_target
from atoll.machinery.client.client import Client
from atoll.machinery.client.target import Target
from atoll.machinery.kcp.sharding import shards
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.objects import Object, annotations_of, labels_of
from atoll.machinery.meta.wellknown import REGION
from atoll.machinery.wire.client import ClientError, ClientLimits, HttpClient, Origin

#: Heartbeats come each ten seconds; scheduling prefers others after two that are missing.
SILENT_S = 25.0
ANSWER_S = 5.0
NEAR_END_DAYS, FULL_PERCENT, LAG_S = 30, 85, 10.0
_HEADER = ("NAME", "REGION", "STATUS", "HEARTBEAT", "WORKSPACES", "OBJECTS", "DISK", "LAG", "CERTIFICATES", "LACKS")
_STREAM_LAG, _STREAM_AGE = "atoll_stream_lag_events", "atoll_stream_lag_seconds"
_BEHIND, _BEHIND_S = "atoll_replication_lag_messages", "atoll_replication_lag_seconds"
_END = "atoll_certificate_expiration_timestamp_seconds"
_USED, _ROOM = "atoll_store_used_bytes", "atoll_store_room_bytes"
#: The health check of a shard that writes a heartbeat, as those of a site do.
_REGISTRATION = "registration"
UNKNOWN = "?"


class Answers(NamedTuple):
    """What a shard said: the health checks that failed, and its series by name and label value; None: no answer.

    `in_site` is False for a shard that runs without a site: it writes no heartbeat.
    """

    failed: tuple[str, ...] | None
    series: dict[str, dict[str, float]] | None
    in_site: bool = True


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command. Return its exit code."""
    parser = argparse.ArgumentParser(
        prog="kubectl atoll shards",
        parents=[common_flags()],
        allow_abbrev=False,
        description="Show the shards of this site. The exit code is 1 if one of them needs somebody.",
    )
    return run(_show(parser.parse_args(list(arguments))))


async def _show(options: argparse.Namespace) -> None:
    # Metrics of other shards are for system:masters.
    target = direct_target(options)
    async with Client(target, ROOT) as client:
        found = sorted((await client.list(SHARDS))["items"], key=lambda each: each["metadata"]["name"])
    answers = await asyncio.gather(*(ask(target, each) for each in found))
    now_s = time.time()
    for line in columns([_HEADER, *(row(each, said, now_s) for each, said in zip(found, answers, strict=True))]):
        say(line)
    troubles = [line for each, said in zip(found, answers, strict=True) for line in needs(each, said, now_s)]
    if troubles:
        raise Failure("\n".join(troubles))


async def ask(target: Target, shard: Object) -> Answers:
    """Ask a shard for its health and its metrics."""
    try:
        place = address_of(target, shard)
    except Failure:
        return Answers(None, None)
    http = HttpClient(
        Origin(place.host, place.port, place.tls, place.server_name), ClientLimits(request_timeout_s=ANSWER_S)
    )
    try:
        health = await http.request("GET", f"{place.path}/readyz?verbose", place.headers)
        metrics = await http.request("GET", f"{place.path}/metrics", place.headers)
    except (ClientError, OSError, TimeoutError):
        return Answers(None, None)
    finally:
        await http.close()
    series = _series(metrics.body.decode(errors="replace")) if metrics.status == 200 else None
    lines = health.body.decode(errors="replace").splitlines()
    failed = tuple(line[3:].split()[0] for line in lines if line.startswith("[-]"))
    checks = {line[3:].split()[0] for line in lines if line.startswith(("[+]", "[-]"))}
    failed = failed or (() if health.status == 200 else (f"HTTP {health.status}",))
    return Answers(failed, series, not checks or _REGISTRATION in checks)


def _series(text: str) -> dict[str, dict[str, float]]:
    """Return the series that are shown, by the value of their one label, which is empty where there is none."""
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        name, brace, rest = line.partition("{")
        if brace:
            label, _, value = rest.rpartition("} ")
            label = label.partition('="')[2].removesuffix('"')
        else:
            name, _, value = line.partition(" ")
            label = ""
        if name in {_STREAM_LAG, _STREAM_AGE, _BEHIND, _BEHIND_S, _END, _USED, _ROOM}:
            found.setdefault(name, {})[label] = float(value)
    return found


def row(shard: Object, said: Answers, now_s: float) -> tuple[str, ...]:
    """Return the line of a shard."""
    load, name = shards.load_of(shard), shard["metadata"]["name"]
    beat = f"{max(now_s - load.heartbeat_s, 0):.0f}s ago" if load.heartbeat_s else "never" if said.in_site else "-"
    counted = (str(load.workspaces), str(load.objects)) if load.heartbeat_s else (UNKNOWN, UNKNOWN)
    full = _fullness(load, said)
    disk = f"{full.percent}% of {_size(full.capacity_bytes)}" if full is not None else UNKNOWN
    return (
        name,
        labels_of(shard).get(REGION, "-"),
        _status(shard, said),
        beat,
        *counted,
        disk,
        *_measured(said, now_s),
    )


def needs(shard: Object, said: Answers, now_s: float) -> Iterator[str]:
    """Yield what somebody has to look at."""
    load, name = shards.load_of(shard), shard["metadata"]["name"]
    if said.failed is None:
        yield f"{name} does not answer: look at its process and its machine"
    for check in said.failed or ():
        yield f"{name}: its health check {check} fails"
    if said.failed is not None and said.in_site and now_s - load.heartbeat_s > SILENT_S:
        yield f"{name} does not write its heartbeat: does it reach the root shard?"
    full = _fullness(load, said)
    if full is not None and full.percent >= FULL_PERCENT:
        yield f"{name}: its store is {full.percent}% full"
    if said.series is None:
        return
    for setting, end_s in said.series.get(_END, {}).items():
        if end_s - now_s < NEAR_END_DAYS * 86400:
            yield f"{name}: a certificate of {setting} ends in {_days(end_s, now_s)} days"
    for other, seconds in said.series.get(_BEHIND_S, {}).items():
        if seconds > LAG_S:
            yield f"{name} lacks what {other} wrote in the last {seconds:.0f} s"
    if (age_s := said.series.get(_STREAM_AGE, {}).get("", 0.0)) > LAG_S:
        yield f"{name}: its changes wait for NATS since {age_s:.0f} s"


def _status(shard: Object, said: Answers) -> str:
    if said.failed is None:
        return "Unreachable"
    if said.failed:
        return f"Failing({','.join(said.failed)})"
    return "Cordoned" if shards.UNSCHEDULABLE in annotations_of(shard) else "Ready"


def _measured(said: Answers, now_s: float) -> tuple[str, str, str]:
    """Return lag, certificates and what is lacking, of the metrics."""
    if said.series is None:
        return UNKNOWN, UNKNOWN, UNKNOWN
    lag = f"{said.series.get(_STREAM_LAG, {}).get('', 0):.0f} events"
    ends = said.series.get(_END, {})
    first = min(ends, key=lambda each: ends[each], default="")
    certificates = f"{_days(ends[first], now_s)} days ({first})" if first else "-"
    behind = {other: count for other, count in said.series.get(_BEHIND, {}).items() if count > 0}
    lacks = ", ".join(f"{count:.0f} of {other}" for other, count in sorted(behind.items()))
    return lag, certificates, lacks or "nothing"


class _Fullness(NamedTuple):
    capacity_bytes: float
    percent: int


def _fullness(load: shards.Load, said: Answers) -> _Fullness | None:
    """Return how full a store is: by the last heartbeat, without one by the metrics; None if neither tells."""
    used, capacity = float(load.storage_bytes), float(load.capacity_bytes)
    if not capacity and said.series is not None:
        used = said.series.get(_USED, {}).get("", 0.0)
        capacity = used + said.series.get(_ROOM, {}).get("", 0.0)
    return _Fullness(capacity, int(used * 100 / capacity)) if capacity else None


def _days(end_s: float, now_s: float) -> int:
    return int((end_s - now_s) // 86400)


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.0f} GiB"
