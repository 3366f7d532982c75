"""The configured issuers: those of the operator's file, and those of WorkspaceTypes.

A shard and a front proxy assemble their authenticators with it. Invariant: an issuer of the operator is fetched from
any address, an issuer of a tenant only from the addresses that `egress` allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from atoll.machinery.apiserver.authentication.oidc.config import InvalidConfig
from atoll.machinery.apiserver.authentication.oidc.source import ConfiguredIssuers, WorkspaceIssuers
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.egress import Egress, EgressError, Outbound
from atoll.machinery.kcp.workspaces.workspacetypes import WorkspaceType
from atoll.machinery.meta import paths
from atoll.machinery.meta.names import ObjectKey, ResourceType
from atoll.machinery.meta.objects import annotations_of, decode
from atoll.machinery.meta.types import LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import SINGLETON, TYPE
from atoll.machinery.process.private_files import InvalidCredentials
from atoll.machinery.storage.contract import Record

#: A WorkspaceType by path (or cluster name) and name; None if there is none.
FindType = Callable[[View, str, str], WorkspaceType | None]


async def _fetch(egress: Egress, vouched: bool, url: str, ca_pem: bytes, timeout_s: float) -> bytes:
    call = Outbound(purpose="oidc", url=url, ca_pem=ca_pem, timeout_s=timeout_s, method="GET", trusted=vouched)
    try:
        return (await egress.send(call)).body
    except EgressError as error:
        raise ConnectionError(str(error)) from error


def configured(file: str, audiences: tuple[str, ...], egress: Egress) -> ConfiguredIssuers:
    """Issuers of the operator's file. Raises InvalidCredentials."""
    try:
        return ConfiguredIssuers(Path(file), audiences, partial(_fetch, egress, True))
    except (InvalidConfig, OSError) as error:
        raise InvalidCredentials(f"{file}: {error}") from error


class WorkspaceTypeConfigurations:
    """Finds the WorkspaceAuthenticationConfigurations of a logical cluster's type, on any shard."""

    def __init__(self, find_type: FindType, tenancy: Callable[[View], str]) -> None:
        self._find_type, self._tenancy = find_type, tenancy

    def __call__(self, view: View, cluster: str) -> Iterable[Record]:
        """In the order of the type's list; absent objects are skipped."""
        view = federated(view)
        record = view.get(ObjectKey(LOGICAL_CLUSTERS, cluster, "", SINGLETON))
        annotations = annotations_of(decode(record.value)) if record is not None else {}
        path, name = paths.split(annotations.get(TYPE, ""))
        found = self._find_type(view, path, name) if path and name else None
        of = ResourceType("tenancy.kcp.io", "workspaceauthenticationconfigurations", self._tenancy(view))
        for reference in found.spec.authentication_configurations if found is not None else ():
            assert found is not None
            configuration = view.get(ObjectKey(of, found.cluster, "", reference.name))
            if configuration is not None:
                yield configuration


def of_workspaces(find_type: FindType, tenancy: Callable[[View], str], egress: Egress) -> WorkspaceIssuers:
    """Return the issuers that workspaces have by their type; `tenancy` returns the identity these are stored under."""
    return WorkspaceIssuers(WorkspaceTypeConfigurations(find_type, tenancy), partial(_fetch, egress, False))
