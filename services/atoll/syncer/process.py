"""`atoll syncer`: makes both clients, runs the syncer, serves health, stops on SIGTERM.

Invariant: what is served says whether the edge is cared for; a lost link to the center is a detail of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector

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
from atoll.syncer.metrics import SyncerMetrics
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
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        SyncerMetrics(syncer, registry)
        server = Server(HealthServer(registry, ready, details), Limits())
        port = await server.start(config.bind_address, config.port)
        sys.stdout.write(f"atoll syncer serves http://{url_host(config.bind_address)}:{port}\n")
        sys.stdout.flush()
        life.run_in_background(syncer.run(), tokens.run({center: up, cluster: down}), return_freed_memory())
        await life.stopped()
        await server.drain(DRAIN_S)
        await life.close()
        await syncer.close()
        life.check()
