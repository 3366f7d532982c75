"""`kubectl kubestellar prep-for-syncer`, `prep-for-cluster`, `syncer-gen`: the manifest that registers an edge cluster.

In the mailbox of the SyncTarget they make the account of the syncer, with the one right that opens the mailbox's view,
and a token of it. Invariant: names derive from the SyncTarget's UID, so another run changes the token alone.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from importlib import metadata
from pathlib import Path

import yaml

from atoll.cli.kubectl.kubestellar import account, flags, locations
from atoll.cli.kubectl.kubestellar.account import Account
from atoll.cli.kubectl.kubestellar.manifest import Registration, manifests, syncer_id
from atoll.cli.kubectl.plugin import Failure, duration_s
from atoll.cli.kubectl.root import CLUSTERS
from atoll.cli.kubectl.workspaces import EXPORTS, phase_of
from atoll.edge.kinds import SYNC_TARGETS
from atoll.edge.mailboxes import mailbox_name
from atoll.edge.objects import service
from atoll.machinery.client.client import Client
from atoll.machinery.client.kubeconfig import Kubeconfig
from atoll.machinery.client.resource import WORKSPACES
from atoll.machinery.meta import wellknown
from atoll.machinery.meta.objects import Object, annotations_of
from atoll.machinery.meta.status import Forbidden, NotFound
from atoll.machinery.process.private_files import write_private

MAILBOX_TIMEOUT_S = 30.0
ASK_AGAIN_S = 0.5
_RESOURCE = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9][a-z0-9.-]*)?")
#: Exit codes: the workspace of the service is none; there is no mailbox in time.
NO_SERVICE, NO_MAILBOX = 2, 5


def add_commands(commands: flags.Commands[argparse.ArgumentParser]) -> None:
    """Add the three commands."""
    found = flags.command(commands, "prep-for-syncer", "the manifest of an edge cluster's syncer", _for_syncer)
    found.add_argument("name", metavar="NAME", help="the SyncTarget")
    _add_flags(found)
    found = flags.command(commands, "prep-for-cluster", "ensure location, then prep-for-syncer", _for_cluster)
    locations.add_arguments(found)
    _add_flags(found)
    about = "the manifest of a syncer, where the current workspace is the mailbox"
    found = flags.command(commands, "syncer-gen", about, _syncer_gen)
    found.add_argument("name", metavar="NAME", help="the SyncTarget")
    found.add_argument("--syncer-image", required=True, metavar="IMAGE", help="image of the syncer")
    found.add_argument("-o", "--output-file", required=True, metavar="FILE", help="file to write, - for the output")
    _add_deployment(found)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    flags.inventory(parser)
    flags.service(parser)
    parser.add_argument(
        "--syncer-image", default=f"atoll:{metadata.version('atoll')}", metavar="IMAGE", help="image of the syncer"
    )
    parser.add_argument(
        "-o", "--output-file", default="", metavar="FILE", help="file to write, - for the output (NAME-syncer.yaml)"
    )
    parser.add_argument("-s", "--silent", action="store_true", help="say nothing but errors")
    _add_deployment(parser)


def _add_deployment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--namespace", default="", help="namespace of the syncer; its ID if left out")
    parser.add_argument("--kcp-namespace", default="default", help="namespace of its account in the mailbox (default)")
    parser.add_argument("--labels", dest="labelled", default="", metavar="K=V,...", help="labels of the account")
    parser.add_argument("--replicas", type=int, default=1, help="how many syncers run, of which one works (1)")
    parser.add_argument("--qps", type=float, default=20.0, help="requests a second to either side (20)")
    parser.add_argument("--burst", type=int, default=30, help="requests at once (30)")
    parser.add_argument(
        "--resources", type=_resources, default=(), metavar="LIST", help="all it may write, as plural.group,... (any)"
    )
    parser.add_argument("--lifetime", type=duration_s, default=720 * 3600.0, metavar="720h", help="of the token")


def _resources(text: str) -> tuple[str, ...]:
    """Return the resources of a list. Raises ArgumentTypeError."""
    found = tuple(each.strip() for each in text.split(","))
    if not all(_RESOURCE.fullmatch(each) for each in found):
        raise argparse.ArgumentTypeError(f'"{text}" is no list of resources such as configmaps,deployments.apps')
    return found


async def _for_cluster(options: argparse.Namespace) -> None:
    client, _, _ = flags.connect(options, options.imw)
    async with client:
        await locations.ensure(client, options.espw, options.name, options.labels)
    await _for_syncer(options)


async def _for_syncer(options: argparse.Namespace) -> None:
    client, kubeconfig, context = flags.connect(options, options.imw)
    async with client:
        await _require_service(client.cluster(options.espw), options.espw)
        target = await _sync_target(client, options.name)
        mailbox = mailbox_name(annotations_of(target)[wellknown.CLUSTER], target["metadata"]["uid"])
        cluster = await _mailbox(client.cluster(options.espw), mailbox)
        registration = await _register(client.cluster(cluster), options, target["metadata"]["uid"], cluster)
    _write(registration, kubeconfig, context, options)


async def _syncer_gen(options: argparse.Namespace) -> None:
    client, kubeconfig, context = flags.connect(options)
    async with client:
        mine = annotations_of(await client.get(CLUSTERS, wellknown.SINGLETON))
        cluster, path = mine[wellknown.CLUSTER], mine.get(wellknown.PATH, "")
        _, marked, uid = path.rpartition("-mb-")
        if not marked:
            raise Failure(f'workspace "{path or cluster}" is not the mailbox of a SyncTarget')
        registration = await _register(client, options, uid, cluster)
    options.silent = False
    _write(registration, kubeconfig, context, options)


async def _require_service(client: Client, path: str) -> None:
    try:
        await client.get(EXPORTS, service().export)
    except (Forbidden, NotFound) as error:
        raise Failure(f"workspace {path} does not have the edge service: {error}", NO_SERVICE) from error


async def _sync_target(client: Client, name: str) -> Object:
    try:
        return await client.get(SYNC_TARGETS, name)
    except NotFound as error:
        raise Failure(f'there is no SyncTarget "{name}" in workspace {client.target.workspace}') from error


async def _mailbox(parent: Client, name: str) -> str:
    """Return the logical cluster of a mailbox once it is Ready. Raises Failure."""
    try:
        async with asyncio.timeout(MAILBOX_TIMEOUT_S):
            while True:
                try:
                    found = await parent.get(WORKSPACES, name)
                    if phase_of(found) == "Ready":
                        return str(found["spec"]["cluster"])
                except NotFound:
                    pass
                await asyncio.sleep(ASK_AGAIN_S)
    except TimeoutError:
        raise Failure(f"mailbox {name} is not ready; do the edge controllers run?", NO_MAILBOX) from None


async def _register(client: Client, options: argparse.Namespace, uid: str, cluster: str) -> Registration:
    """Make the account of the syncer in its mailbox. Return what the manifest says."""
    silent = getattr(options, "silent", False)
    labels = flags.labels_of(options.labelled.split(",") if options.labelled else ())
    wanted = Account(options.kcp_namespace, labels, options.lifetime)
    token = await account.ensure(client, wanted, silent=silent)
    name = syncer_id(options.name, uid)
    return Registration(
        id=name,
        namespace=options.namespace or name,
        target=options.name,
        uid=uid,
        cluster=cluster,
        token=token,
        image=options.syncer_image,
        replicas=options.replicas,
        qps=options.qps,
        burst=options.burst,
        resources=options.resources,
    )


def _write(registration: Registration, kubeconfig: Kubeconfig, context: str, options: argparse.Namespace) -> None:
    text = yaml.safe_dump_all(manifests(registration, kubeconfig.cluster_of(context)), sort_keys=False)
    file = options.output_file or f"{options.name}-syncer.yaml"
    if file == "-":
        sys.stdout.write(text)
        return
    # It holds a token.
    write_private(Path(file), text.encode())
    if not options.silent:
        sys.stderr.write(
            f'Wrote workload execution cluster manifest to {file} for namespace "{registration.namespace}".'
            f" Use\n\n  KUBECONFIG=<kubeconfig of the cluster> kubectl apply -f {file}\n\nto apply it. Use\n\n"
            f"  KUBECONFIG=<kubeconfig of the cluster> kubectl get deployment -n {registration.namespace}"
            f" {registration.id}\n\nto see the syncer.\n"
        )
