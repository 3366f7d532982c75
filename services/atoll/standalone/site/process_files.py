"""The certificates, keys and credentials that each kind of process of a site is given, and by which settings.

`processes` names the files where they are made, for processes on this machine; `certificates` copies them into one
directory a process. Invariant: a process is given what it needs and no more: no authority's key, no secret of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from atoll.machinery.meta.names import ROOT
from atoll.machinery.stream.tenants.key_files import GATEWAY_KEYS_FILE, SUBSCRIPTIONS_FILE
from atoll.replication.peers import EXTERNAL_LOGICAL_CLUSTER_ADMIN, LOGICAL_CLUSTER_ADMIN
from atoll.standalone.site.credentials import ACCOUNT_KEY, CLIENT_CA, PROXY_CA, ROOT_SHARD, SERVING_CA
from atoll.standalone.site.layout import Layout


class ProcessFile(msgspec.Struct, frozen=True):
    """A file of a process: its setting, its name in the process's directory, and the file that it is a copy of.

    A file without a setting is named by another file.
    """

    setting: str
    name: str
    source: Path


def sources(files: list[ProcessFile]) -> dict[str, object]:
    """The settings of a process that reads the files where they are made."""
    return {file.setting: file.source for file in files if file.setting}


def shard_files(layout: Layout, name: str, credential: Path) -> list[ProcessFile]:
    """The files of a shard. `credential` is that of its NATS user."""
    joining = layout.kubeconfig(f"{ROOT_SHARD}-{name}")
    return [
        *_served(layout, name),
        _revoked(layout),
        ProcessFile("requestheader_client_ca_file", "requestheader-ca.crt", layout.certificate(PROXY_CA)),
        *_forwarding(layout, name, "shard_client"),
        ProcessFile("root_ca_file", "serving-ca.crt", layout.certificate(SERVING_CA)),
        ProcessFile("shard_virtual_workspace_ca_file", "serving-ca.crt", layout.certificate(SERVING_CA)),
        ProcessFile("service_account_signing_key_file", "service-account.key", layout.key(ACCOUNT_KEY)),
        _account_keys(layout),
        *(
            ProcessFile(f"{user.replace('-', '_')}_kubeconfig", f"{user}.kubeconfig", layout.kubeconfig(user))
            for user in (LOGICAL_CLUSTER_ADMIN, EXTERNAL_LOGICAL_CLUSTER_ADMIN)
        ),
        *([] if name == ROOT else [ProcessFile("root_shard_kubeconfig_file", "root-shard.kubeconfig", joining)]),
        _nats(credential),
    ]


def proxy_files(layout: Layout, name: str, credential: Path) -> list[ProcessFile]:
    """The files of a front proxy."""
    return [
        *_served(layout, name),
        _revoked(layout),
        *_forwarding(layout, name, "proxy_client"),
        ProcessFile("root_ca_file", "serving-ca.crt", layout.certificate(SERVING_CA)),
        _account_keys(layout),
        _nats(credential),
    ]


def cache_server_files(layout: Layout, name: str, credential: Path) -> list[ProcessFile]:
    """The files of a cache server, which asks shards with a certificate of system:masters."""
    user = cache_user(name)
    return [
        *_served(layout, name),
        _revoked(layout),
        ProcessFile("shard_client_cert_file", "client.crt", layout.certificate(user)),
        ProcessFile("shard_client_key_file", "client.key", layout.key(user)),
        ProcessFile("shard_virtual_workspace_ca_file", "serving-ca.crt", layout.certificate(SERVING_CA)),
        _nats(credential),
    ]


def gateway_files(layout: Layout, name: str, credential: Path) -> list[ProcessFile]:
    """The files of an event gateway."""
    keys = credential.parent / GATEWAY_KEYS_FILE
    return [
        *_served(layout, name),
        _nats(credential),
        ProcessFile("keys_file", GATEWAY_KEYS_FILE, keys),
        _account_keys(layout),
    ]


def edge_files(layout: Layout, name: str, credential: Path) -> list[ProcessFile]:
    """The files of a process of the edge controllers."""
    return [*_served(layout, name), _nats(credential)]


def nats_server_files(layout: Layout, name: str) -> list[ProcessFile]:
    """The files of a NATS server, whose configuration names them."""
    return [
        ProcessFile("", "serving.crt", layout.certificate(f"serving-{name}")),
        ProcessFile("", "serving.key", layout.key(f"serving-{name}")),
        ProcessFile("", "serving-ca.crt", layout.certificate(SERVING_CA)),
    ]


def subscriptions_file(directory: Path) -> ProcessFile:
    """What a shard needs for event subscribers."""
    return ProcessFile("event_subscriptions_file", SUBSCRIPTIONS_FILE, directory / SUBSCRIPTIONS_FILE)


def cache_user(name: str) -> str:
    """The client certificate of a cache server."""
    return f"cache-server-{name}"


def settings_of(files: list[ProcessFile], directory: Path) -> Mapping[str, str]:
    """The settings of a process whose files are in `directory`."""
    return {file.setting: str(directory / file.name) for file in files if file.setting}


def _served(layout: Layout, name: str) -> list[ProcessFile]:
    return [
        ProcessFile("tls_cert_file", "serving.crt", layout.certificate(f"serving-{name}")),
        ProcessFile("tls_private_key_file", "serving.key", layout.key(f"serving-{name}")),
        ProcessFile("client_ca_file", "client-ca.crt", layout.certificate(CLIENT_CA)),
    ]


def _revoked(layout: Layout) -> ProcessFile:
    return ProcessFile("client_crl_file", "client.crl", layout.revoked)


def _forwarding(layout: Layout, name: str, setting: str) -> list[ProcessFile]:
    """The certificate with which a process names users in headers."""
    return [
        ProcessFile(f"{setting}_cert_file", "proxy.crt", layout.certificate(f"proxy-{name}")),
        ProcessFile(f"{setting}_key_file", "proxy.key", layout.key(f"proxy-{name}")),
    ]


def _account_keys(layout: Layout) -> ProcessFile:
    return ProcessFile("service_account_key_file", "service-account.pub", layout.account_key)


def _nats(credential: Path) -> ProcessFile:
    return ProcessFile("nats_credentials_file", "nats.json", credential)
