"""`atoll certs secrets`: a site's certificates and credentials as Secrets in a namespace of Kubernetes.

Called by `certs`, in a job of the chart `infra/helm/atoll` or by hand. A run takes up what an earlier one stored,
renews what is due, takes out processes that are not named any more, and writes what differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping

from atoll.machinery.apiserver.authorization.groups import KCP_ADMIN
from atoll.machinery.client.client import Client
from atoll.machinery.client.in_cluster import in_cluster
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.meta.user import MASTERS
from atoll.standalone.site import certificates, credentials, inventory
from atoll.standalone.site.credentials import SERVING_CA
from atoll.standalone.site.inventory import Inventory, InventoryError
from atoll.standalone.site.layout import Layout
from atoll.standalone.site.secrets import MONITORING, RESERVED, SiteSecrets


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that the other commands do not have."""
    parser.add_argument("--namespace", required=True, help="namespace of the Secrets")
    parser.add_argument("--name-prefix", required=True, help="what their names begin with, before -PROCESS")
    parser.add_argument("--kubeconfig", default="", help="kubeconfig of the cluster; empty: the one around this pod")
    parser.add_argument(
        "--with-monitoring", action="store_true", help="a Secret more, with a certificate of system:masters for metrics"
    )


async def write(here: Layout, found: argparse.Namespace, wanted: Callable[[], Inventory]) -> int:
    """Bring the Secrets up to date; `wanted` gives the site with the named processes. Return the exit code.

    Raises ApiError, ClientError, TimeoutError, KubeconfigError, PkiError, InventoryError, OSError.
    """
    named = {inventory.parse(each).name for each in found.processes}
    if clash := named & RESERVED:
        raise InventoryError(f"{min(clash)!r} cannot be the name of a process")
    target = Kubeconfig.load(found.kubeconfig).target() if found.kubeconfig else in_cluster()
    client = Client(target)
    try:
        secrets = SiteSecrets(client, found.namespace, found.name_prefix)
        await secrets.load(here)
        site = wanted()
        for process in site.processes:
            if process.name not in named:
                site = certificates.remove(here, site, process.name)
        inventory.write(here.root, site)
        certificates.write(here, site)
        written = await secrets.store(here, site, _monitoring(here) if found.with_monitoring else {})
    finally:
        await client.close()
    sys.stdout.write("".join(f"{name}\n" for name in written))
    return 0


def _monitoring(here: Layout) -> Mapping[str, bytes]:
    """What reads the metrics of every process."""
    cas = credentials.authorities(here)
    pair = credentials.client_pair(here, cas, MONITORING, MASTERS, KCP_ADMIN)
    authority = here.certificate(SERVING_CA).read_bytes()
    return {"client.crt": pair.certificate, "client.key": pair.key, "serving-ca.crt": authority}
