"""`atoll syncer`: makes both clients, runs the syncer, serves health, stops on SIGTERM.

Invariant: what is served says whether the edge is cared for; a lost link to the center is a detail of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge

from atoll.machinery.client.client import Client
from atoll.machinery.edge.names import SYNCER
from atoll.machinery.process.freed_memory import return_freed_memory
from atoll.machinery.process.lifetime import Lifetime
from atoll.machinery.process.listen_address import url_host
from atoll.machinery.wire.limits import Limits
from atoll.machinery.wire.pending_response import ClientLimits
from atoll.machinery.wire.server import Server
from atoll.syncer.config import SyncerConfig
from atoll.syncer.credentials import Tokens, target
from atoll.syncer.health import HealthServer
from atoll.syncer.syncer import Options, Syncer

DRAIN_S = 5.0
_LIMITS = ClientLimits(connections=8)


async def start(config: SyncerConfig, environment: Mapping[str, str] = os.environ) -> None:
    """Run until SIGTERM or SIGINT. Raises KubeconfigError, OSError, BackgroundWorkFailed."""
    up, down = (config.from_kubeconfig, config.from_context), (config.to_kubeconfig, config.to_context)
    state_file = Path(config.state_file) if config.state_file else None
    options = Options(config.sync_target_uid, config.qps, config.burst, state_file)
    async with (
        Client(target(*up), manager=SYNCER, limits=_LIMITS) as center,
        Client(target(*down, environment), manager=SYNCER, limits=_LIMITS) as cluster,
    ):
        tokens = Tokens(center, cluster, config.secret, environment.get("NAMESPACE") or "default")
        syncer, life = Syncer(center, cluster, options), Lifetime()
        life.stop_on_signals()
        details = {"center": lambda: syncer.mailbox.failure, "edge": lambda: syncer.edge.failure}
        ready = {"syncer": lambda: syncer.waits_for and f"waits for {syncer.waits_for}"}
        server = Server(HealthServer(_metrics(syncer), ready, details), Limits())
        port = await server.start(config.bind_address, config.port)
        sys.stdout.write(f"atoll syncer serves http://{url_host(config.bind_address)}:{port}\n")
        sys.stdout.flush()
        life.run_in_background(syncer.run(), tokens.run({center: up, cluster: down}), return_freed_memory())
        await life.stopped()
        await server.drain(DRAIN_S)
        await life.close()
        await syncer.close()
        life.check()


def _metrics(syncer: Syncer) -> CollectorRegistry:
    """Return metrics that read the syncer when they are scraped; none names an object."""
    registry = CollectorRegistry()
    read: dict[str, tuple[str, Callable[[], float]]] = {
        "queue_depth": ("Objects to look at.", lambda: len(syncer.downsync.queue) if syncer.downsync else 0),
        "applies": ("Applies to the edge.", lambda: syncer.downsync.applies if syncer.downsync else 0),
        "deletions": ("Deletions at the edge.", lambda: syncer.downsync.deletions if syncer.downsync else 0),
        "status_writes": ("Writes of status to the mailbox.", lambda: syncer.returns.writes if syncer.returns else 0),
        "failing_objects": ("Objects that fail.", lambda: len(syncer.failures) if syncer.downsync else 0),
        "mailbox_revision": ("Revision of the mailbox that was read.", lambda: syncer.mailbox.revision),
        "applied_revision": ("Revision up to which all was tried.", lambda: syncer.applied),
        "center_connected": ("Whether the mailbox is followed.", lambda: not syncer.mailbox.failure),
        "edge_connected": ("Whether all kinds are followed.", lambda: not syncer.edge.failure),
    }
    for name, (text, value) in read.items():
        Gauge(f"syncer_{name}", text, registry=registry).set_function(value)
    return registry
