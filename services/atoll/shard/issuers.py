"""Where the issuers of tokens come from: the operator's file, and what WorkspaceTypes name; and how they are fetched.

What the operator names is fetched wherever it is, what a tenant names through every guard of `egress`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from atoll.controllers.facts import Facts
from atoll.machinery.apiserver.authentication.oidc.config import ConfigRefused
from atoll.machinery.apiserver.authentication.oidc.source import ConfiguredIssuers, WorkspaceIssuers
from atoll.machinery.apiserver.call import View
from atoll.machinery.apiserver.egress import Egress, EgressError, Outbound
from atoll.machinery.kcp.shapes import SINGLETON, TYPE
from atoll.machinery.meta import paths
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import decode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.storage.contract import Record
from atoll.shard.identity import CredentialsRefused


async def _fetch(egress: Egress, vouched: bool, url: str, ca_pem: bytes, timeout_s: float) -> bytes:
    call = Outbound(purpose="oidc", url=url, ca_pem=ca_pem, timeout_s=timeout_s, method="GET", vouched=vouched)
    try:
        return (await egress.send(call)).body
    except EgressError as error:
        raise ConnectionError(str(error)) from error


def configured(file: str, audiences: tuple[str, ...], egress: Egress) -> ConfiguredIssuers:
    """Issuers of the operator's file. Raises CredentialsRefused."""
    try:
        return ConfiguredIssuers(Path(file), audiences, partial(_fetch, egress, True))
    except (ConfigRefused, OSError) as error:
        raise CredentialsRefused(f"{file}: {error}") from error


class OfWorkspaces:
    """Finds the WorkspaceAuthenticationConfigurations of a logical cluster's type."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._type = ResourceType("tenancy.kcp.io", "workspaceauthenticationconfigurations", facts.identities.tenancy)

    def __call__(self, view: View, cluster: str) -> Iterable[Record]:
        """In the order of the type's list; what is not there is passed over."""
        record = view.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON))
        annotations = decode(record.value)["metadata"].get("annotations") or {} if record is not None else {}
        path, name = paths.split(annotations.get(TYPE, ""))
        found = self._facts.workspace_type(view, path, name) if path and name else None
        for reference in found.spec.authentication_configurations if found is not None else ():
            assert found is not None
            configuration = view.get(ObjectKey(self._type, found.cluster, "", reference.name))
            if configuration is not None:
                yield configuration


def of_workspaces(facts: Facts, egress: Egress) -> WorkspaceIssuers:
    """Issuers that workspaces have by their type."""
    return WorkspaceIssuers(OfWorkspaces(facts), partial(_fetch, egress, False))
