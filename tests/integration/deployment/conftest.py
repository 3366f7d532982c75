"""The container engine and the image, which all tests of deployments in containers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.servers.container_engine import ContainerEngine


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerEngine]:
    with ContainerEngine(tmp_path_factory.mktemp("engine")) as running:
        yield running


@pytest.fixture(scope="session")
def image(engine: ContainerEngine) -> str:
    return engine.built()
