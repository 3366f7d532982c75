"""A plain Kubernetes cluster: etcd, kube-apiserver and kube-controller-manager of tests/go/edgecluster.

    with EdgeCluster(tmp_path) as cluster:
        Api(cluster).post("/api/v1/namespaces", {...})
        cluster.kubeconfig, cluster.kill(), cluster.restart(), cluster.reset(), cluster.keep(), cluster.restore()
        cluster.change_version(NEWER)

TLS, RBAC and service accounts are on, and `kcp-admin` is a system:masters as on a shard. There is no node: a thread
binds Pods to one, reports them running, and removes those that are to go; of syncers it runs the process. Skips on a
machine without Go.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import secrets
import shutil
import signal
import ssl
from pathlib import Path
from typing import Self

import yaml

from atoll.machinery.process.pki import make_ca, make_rsa_key, make_serving, public_key_pem
from atoll.standalone.site.layout import Ports
from harness.clients.api import Api, Object, eventually
from harness.clients.go_programs import program
from harness.servers.launch import Process, launch
from harness.servers.stand_ins.nodes import Nodes
from harness.servers.stand_ins.syncer_pods import SyncerPods

ADMINISTRATOR, CONTROLLERS = "kcp-admin", "system:kube-controller-manager"
#: Files of the module that say which Kubernetes it is: the one of most tests, a minor version below it, and one above.
USUAL, OLDER, NEWER = "go.mod", "v1.35.mod", "v1.37.mod"
START_TIMEOUT_S, STOP_TIMEOUT_S = 150.0, 60.0
#: Most garbage is of the start: collecting it less often saves a third of the CPU of one; the limit bounds the memory.
_MEMORY = {"GOGC": "400", "GOMEMLIMIT": "280MiB"}
#: Controllers of nodes: there is none.
_OFF = ("node-lifecycle-controller", "taint-eviction-controller", "node-ipam-controller")


class EdgeCluster:
    """One cluster in a directory; its ports stay the same from start to start."""

    def __init__(self, directory: Path, version: str = USUAL) -> None:
        self._program = self._store = str(program("edgecluster", "edgecluster", version))
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.kubeconfig = directory / "admin.kubeconfig"
        #: Reserved until this ends: another process gets none of them meanwhile, nor between two starts.
        self._reserved = Ports("127.0.0.1")
        self._ports = [self._reserved.reserve(0) for _ in range(3)]
        self._tokens = {ADMINISTRATOR: secrets.token_hex(16), CONTROLLERS: secrets.token_hex(16)}
        self._authority = make_ca("edge cluster")
        self._processes: dict[str, Process] = {}
        self._nodes: Nodes | None = None
        self._write_files()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self.close()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._ports[2]}"

    def token(self, user: str = ADMINISTRATOR) -> str:
        """The bearer token of a user."""
        return self._tokens[user]

    def tls(self) -> ssl.SSLContext:
        """A context that trusts only this cluster's authority."""
        return ssl.create_default_context(cadata=self._authority.certificate.decode())

    def start(self) -> None:
        """Start all components, and wait until the API and the accounts of `default` are there."""
        if "etcd" not in self._processes:
            self._launch("etcd", self._etcd_flags())
        self._launch("kube-apiserver", self._server_flags())
        eventually(lambda: self._get("/readyz") == 200, "kube-apiserver is ready", START_TIMEOUT_S)
        self._launch("kube-controller-manager", self._controller_flags())
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        eventually(lambda: self._get(account) == 200, "kube-controller-manager works", START_TIMEOUT_S)
        api = Api(self)
        self._nodes = Nodes(api, SyncerPods(api, self, self.directory / "pods"))
        self._nodes.start()

    def stop(self) -> None:
        """Stop all components in order. Harmless if none runs."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill all components at once, as a power failure would."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """Kill what runs, and give the ports back."""
        self.kill()
        self._reserved.close()

    def restart(self) -> None:
        """Stop what runs, and start on the same data."""
        self.stop()
        self.start()

    def reset(self) -> None:
        """Begin anew as another cluster at the same address."""
        self.stop()
        shutil.rmtree(self.directory / "etcd")
        self.start()

    def keep(self) -> None:
        """Keep a copy of all data, as after a power failure, and start again."""
        self.kill()
        shutil.copytree(self.directory / "etcd", self.directory / "kept")
        self.start()

    def restore(self) -> None:
        """Lose power, and begin anew with the data that was kept."""
        self.kill()
        shutil.rmtree(self.directory / "etcd")
        shutil.copytree(self.directory / "kept", self.directory / "etcd")
        self.start()

    def change_version(self, version: str) -> None:
        """Kill all but etcd, and start them again as another version of Kubernetes."""
        other = str(program("edgecluster", "edgecluster", version))
        # In order it ends only with the last watch.
        self._end(signal.SIGKILL, "etcd")
        self._program = other
        self.start()

    def _end(self, number: int, but: str = "") -> None:
        if self._nodes is not None:
            self._nodes.stop()
            self._nodes = None
        # The last one that was started is the first to go.
        for name in [name for name in reversed(self._processes) if name != but]:
            process = self._processes[name]
            process.send_signal(number)
            try:
                process.wait(STOP_TIMEOUT_S)
            finally:
                process.kill()
                del self._processes[name]

    def _launch(self, name: str, flags: list[str]) -> None:
        log, started = self.directory / f"{name}.log", self._store if name == "etcd" else self._program
        command = [started, name, *flags]
        self._processes[name] = launch(command, log, log, environment=_MEMORY, directory=self.directory)

    def _get(self, path: str) -> int:
        """The status of a request, 0 while nobody answers. Fails if a component ended."""
        for name, process in self._processes.items():
            assert process.poll() is None, (self.directory / f"{name}.log").read_text()[-3000:]
        connection = http.client.HTTPSConnection("127.0.0.1", self._ports[2], context=self.tls(), timeout=10)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token()}"})
            return connection.getresponse().status
        return 0

    def _etcd_flags(self) -> list[str]:
        client, peer = (f"http://127.0.0.1:{port}" for port in self._ports[:2])
        return [
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _server_flags(self) -> list[str]:
        return [
            f"--etcd-servers=http://127.0.0.1:{self._ports[0]}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._ports[2]}",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            *self._files(
                **{
                    "token-auth-file": "tokens.csv",
                    "tls-cert-file": "serving.crt",
                    "tls-private-key-file": "serving.key",
                    "service-account-signing-key-file": "accounts.key",
                    "service-account-key-file": "accounts.pub",
                }
            ),
        ]

    def _controller_flags(self) -> list[str]:
        return [
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--controllers=*,{','.join(f'-{name}' for name in _OFF)}",
            *self._files(
                **{
                    "kubeconfig": "controllers.kubeconfig",
                    "service-account-private-key-file": "accounts.key",
                    "root-ca-file": "authority.crt",
                }
            ),
        ]

    def _files(self, **names: str) -> list[str]:
        return [f"--{flag}={self.directory / name}" for flag, name in names.items()]

    def _write_files(self) -> None:
        serving, accounts = make_serving(self._authority, ("127.0.0.1",)), make_rsa_key()
        groups = {ADMINISTRATOR: "system:masters", CONTROLLERS: ""}
        rows = [f'{token},{user},{user},"{groups[user]}"\n' for user, token in self._tokens.items()]
        files = {
            "authority.crt": self._authority.certificate,
            "serving.crt": serving.certificate,
            "serving.key": serving.key,
            "accounts.key": accounts,
            "accounts.pub": public_key_pem(accounts),
            "tokens.csv": "".join(rows).encode(),
            "controllers.kubeconfig": self._kubeconfig_of(CONTROLLERS),
            self.kubeconfig.name: self._kubeconfig_of(ADMINISTRATOR),
        }
        for name, content in files.items():
            (self.directory / name).write_bytes(content)

    def _kubeconfig_of(self, user: str) -> bytes:
        authority = base64.b64encode(self._authority.certificate).decode()
        found: Object = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "edge",
            "clusters": [{"name": "edge", "cluster": {"server": self.url, "certificate-authority-data": authority}}],
            "users": [{"name": user, "user": {"token": self._tokens[user]}}],
            "contexts": [{"name": "edge", "context": {"cluster": "edge", "user": user}}],
        }
        return yaml.safe_dump(json.loads(json.dumps(found))).encode()
