"""A workspace of type `kubernetes`, which serves Kubernetes' own kinds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.clients.api import Api, workspace_under


@pytest.fixture
def kube(admin: Api) -> Iterator[Api]:
    """kcp-admin in a new workspace of type `kubernetes`."""
    here = admin.at(workspace_under(admin, type_="kubernetes"))
    yield here
    here.close()
