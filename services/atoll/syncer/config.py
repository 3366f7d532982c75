"""Settings of `atoll syncer`: flags, environment (ATOLL_...) and file, as for every process of Atoll."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from atoll.machinery.process.config import LOG_SETTINGS, ProcessConfig, Subjects
from atoll.machinery.process.listen_address import check_listen_address


class SyncerConfig(ProcessConfig, frozen=True, kw_only=True):
    """Settings of one syncer."""

    from_kubeconfig: str = ""
    from_context: str = ""
    to_kubeconfig: str = ""
    to_context: str = ""
    sync_target_name: str = ""
    sync_target_uid: str = ""
    qps: float = 30.0
    burst: int = 20
    v: int = 0
    secret: str = ""
    state_file: str = ""
    bind_address: str = "127.0.0.1"
    port: int = 0

    SUMMARY: ClassVar[str] = "Carry what a mailbox lists to an edge cluster, and its status back."
    SUBJECTS: ClassVar[Subjects] = {
        "Syncer": {
            "from_kubeconfig": "kubeconfig of the mailbox's view",
            "from_context": "its context; empty: the current one",
            "to_kubeconfig": "kubeconfig of the edge cluster; empty: the cluster that this runs in",
            "to_context": "its context; empty: the current one",
            "sync_target_name": "name of the SyncTarget",
            "sync_target_uid": "uid of the SyncTarget",
            "qps": "requests a second to the edge cluster",
            "burst": "how many of them may come at once",
            "secret": "Secret at the edge, in the namespace of the variable NAMESPACE, that renewed tokens go into;"
            " empty: tokens are not renewed",
            "state_file": "file for what is remembered from start to start; empty: none",
        },
        "Health": {
            "bind_address": "address to serve /livez, /readyz and /metrics on, in plain HTTP",
            "port": "port; 0 picks a free one",
        },
        "Logs": {**LOG_SETTINGS, "v": "verbosity as in other syncers; 4 and more is log level debug"},
    }
    COMMON: ClassVar[Collection[str]] = (*SUBJECTS["Syncer"], *SUBJECTS["Health"], "log_level", "v")

    def __post_init__(self) -> None:
        """Reject invalid values at start. Raises ValueError."""
        super().__post_init__()
        check_listen_address(self.bind_address, self.port)
        for name in ("from_kubeconfig", "sync_target_name", "sync_target_uid"):
            if not getattr(self, name):
                raise ValueError(f"{name.replace('_', '-')} must not be empty")
        if self.qps <= 0 or self.burst < 1:
            raise ValueError("qps and burst must be positive")
