"""`atoll edge-init`: writes the edge service into its workspace, and the kubeconfig of its controllers.

Called by `main`; `edge.install` does the work. Invariant: another run changes nothing but what somebody changed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from atoll.cli.atoll.output import fail
from atoll.edge import credentials
from atoll.edge.install import Wanted, install
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig, KubeconfigError
from atoll.machinery.meta.names import ROOT
from atoll.machinery.meta.status import ApiError
from atoll.machinery.process.config import comma_separated
from atoll.machinery.wire.pending_response import ClientError


def run(arguments: Sequence[str]) -> int:
    """Write what is missing or differs. Return the exit code."""
    found = _parser().parse_args(list(arguments))
    inventories, workloads = comma_separated(found.ensure_imw), comma_separated(found.ensure_wmw)
    wanted = Wanted(found.espw_path, inventories, workloads)
    for path in (wanted.service, *inventories, *workloads):
        if not path.startswith(f"{ROOT}:"):
            return fail(f"{path!r} is no path below {ROOT}")
    try:
        administrator = Kubeconfig.load(found.kubeconfig)
        if found.context:
            administrator.use(found.context)
        written = asyncio.run(_run(administrator, wanted, Path(found.output)))
    except TimeoutError:
        return fail("the server was not ready in time")
    except (KubeconfigError, ApiError, ClientError, OSError) as error:
        return fail(str(error))
    sys.stdout.write(f"{wanted.service} has the edge service ({written} objects written).\n{found.output}\n")
    return 0


async def _run(administrator: Kubeconfig, wanted: Wanted, output: Path) -> int:
    async with Client(administrator.target(), ROOT, manager="edge-init") as client:
        done = await install(client, wanted)
    credentials.write(output, administrator, wanted.service, done.tokens)
    return done.written


def _parser() -> argparse.ArgumentParser:
    text = "Write the edge service into its workspace, and the kubeconfig of its controllers. May be repeated."
    parser = argparse.ArgumentParser(prog="atoll edge-init", description=text, allow_abbrev=False)
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="kubeconfig of an administrator of root")
    parser.add_argument("--context", default="", metavar="NAME", help="context in it; by default the current one")
    parser.add_argument("--espw-path", default="root:espw", metavar="PATH", help="workspace of the service")
    parser.add_argument(
        "--ensure-imw", default="root:imw1", metavar="PATHS", help="comma separated workspaces for inventories"
    )
    parser.add_argument(
        "--ensure-wmw", default="root:wmw1", metavar="PATHS", help="comma separated workspaces for workloads"
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="kubeconfig to write")
    return parser
