"""What processes of a site show when they are scraped, and the alerts that it fires."""

from __future__ import annotations

from atoll.machinery.apiserver.authorization.groups import KCP_ADMIN
from atoll.machinery.meta.user import MASTERS
from harness.clients.prometheus import begun_to_fire
from harness.servers.site import ServingProcess

MAPS = "/api/v1/namespaces/default/configmaps"
WAIT_S = 90.0
#: Of whoever reads metrics: of the first shards, of the second proxies take notice.
GROUPS = (MASTERS, KCP_ADMIN)
#: Of this machine, whose disk may be full.
DISK = {"AtollDiskAt70", "AtollDiskAt85", "AtollDiskAt95"}


def scrape(process: ServingProcess) -> str:
    return process.api("", "prometheus", *GROUPS).get("/metrics").body.decode()


def has(process: ServingProcess, line: str) -> bool:
    return f"\n{line}" in scrape(process)


def value(process: ServingProcess, series: str) -> float:
    """The number of a series; -1 if it is not there."""
    return next((float(line.split()[-1]) for line in scrape(process).splitlines() if line.startswith(series)), -1.0)


def fires(texts: list[str | None], every_s: int = 120) -> dict[str, int]:
    return {alert: count for alert, count in begun_to_fire(texts, every_s).items() if alert not in DISK}
