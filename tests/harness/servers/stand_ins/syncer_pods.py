"""What a kubelet does for the Pods of syncers: Secrets and the account become files, and the command a process.

pods = SyncerPods(cluster, directory)
pods.run(pod), pods.remove(pod), pods.stop()

The files of a container lie in a folder of its Pod, so paths of mounts in arguments are replaced. Where a container
would find the account of its Pod, a kubeconfig with a token of that account is named, and health is served on a free
port. A Secret that changes changes its files, and what ended is started again. Other Pods run nothing.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import signal
import sys
import threading
from pathlib import Path
from typing import Protocol

import yaml

from harness.clients.api import Api, Object
from harness.servers.launch import Process, launch

COMMAND = ["atoll", "syncer"]
STOP_TIMEOUT_S = 30.0
#: How often files and processes are looked at.
CARE_S = 1.0
#: Flags of an address that only the Pod has.
_OF_POD = ("--bind-address=", "--port=")


class Cluster(Protocol):
    """Who asks for the Pods, and the kubeconfig of an administrator."""

    kubeconfig: Path


class _Container:
    """The container of a Pod, and its process."""

    def __init__(self, pod: Object, command: list[str], folder: Path) -> None:
        self.pod, self._command, self.folder = pod, command, folder
        (container,) = pod["spec"]["containers"]
        self._environment = {each["name"]: _value(each, pod) for each in container["env"]}
        self.mounts = [(each["name"], folder / each["name"]) for each in container["volumeMounts"]]
        self.process = self._start()

    def _start(self) -> Process:
        out, err = self.folder / "out", self.folder / "err"
        return launch(self._command, out, err, environment=self._environment, directory=self.folder, forked=True)

    def start_again(self) -> None:
        """Start it again if it ended."""
        if self.process.poll() is not None:
            self.process = self._start()


class SyncerPods:
    """The syncers of one cluster, by the uid of their Pod."""

    def __init__(self, api: Api, cluster: Cluster, directory: Path) -> None:
        self._api, self._cluster, self._directory = api, cluster, directory
        self._running: dict[str, _Container] = {}
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def run(self, pod: Object) -> None:
        """Start the syncer of a Pod unless it runs."""
        uid, container = pod["metadata"]["uid"], pod["spec"]["containers"][0]
        if container.get("command") != COMMAND or uid in self._running:
            return
        folder = self._directory / uid
        arguments = [each for each in container["args"] if not each.startswith(_OF_POD)]
        for mount in container["volumeMounts"]:
            place = folder / mount["name"]
            self._mount(self._api, pod, mount["name"], place)
            arguments = [each.replace(f"={mount['mountPath']}/", f"={place}/") for each in arguments]
        own = [f"--to-kubeconfig={self._account(pod, folder)}", "--bind-address=127.0.0.1"]
        command = [sys.executable, "-m", "atoll.cli", "syncer", *arguments, *own]
        with self._lock:
            self._running[uid] = _Container(pod, command, folder)
        if self._thread is None:
            self._thread = threading.Thread(target=self._care, name="syncers", daemon=True)
            self._thread.start()

    def remove(self, pod: Object) -> None:
        """Stop the syncer of a Pod that is to go."""
        with self._lock:
            container = self._running.pop(pod["metadata"]["uid"], None)
        if container is not None:
            container.process.send_signal(signal.SIGTERM)
            container.process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """End all of them, as a node does that fails."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        for container in self._running.values():
            container.process.kill()
            container.process.wait(STOP_TIMEOUT_S)
        self._running.clear()

    def _care(self) -> None:
        """Bring files of Secrets up to date, and start again what ended, until they are stopped."""
        api = Api(self._api.shard)
        while not self._stopped.wait(CARE_S):
            with self._lock:
                containers = list(self._running.values())
            for container in containers:
                # The server may be going, and a Secret may be gone with its Pod.
                with contextlib.suppress(OSError, http.client.HTTPException, AssertionError, ValueError, KeyError):
                    for name, place in container.mounts:
                        self._mount(api, container.pod, name, place)
            with self._lock:
                for container in self._running.values():
                    container.start_again()
        api.close()

    def _mount(self, api: Api, pod: Object, name: str, place: Path) -> None:
        """Write the files of a volume, if it is a Secret."""
        volume = next(each for each in pod["spec"]["volumes"] if each["name"] == name)
        if "secret" not in volume:
            return
        place.mkdir(parents=True, exist_ok=True)
        secret = f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets/{volume['secret']['secretName']}"
        for key, value in api.get(secret, expect=200).json["data"].items():
            written = place / f".{key}"
            written.write_bytes(base64.b64decode(value))
            written.replace(place / key)

    def _account(self, pod: Object, folder: Path) -> Path:
        """A kubeconfig of the Pod's account."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/serviceaccounts/{pod['spec']['serviceAccountName']}"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        found: Object = yaml.safe_load(self._cluster.kubeconfig.read_text())
        for user in found["users"]:
            user["user"] = {"token": self._api.post(f"{path}/token", request).json["status"]["token"]}
        made = folder / "account.kubeconfig"
        made.write_text(yaml.safe_dump(found))
        return made


def _value(variable: Object, pod: Object) -> str:
    """The value of a variable, its own or a field of metadata."""
    if "valueFrom" not in variable:
        return str(variable["value"])
    parent, _, field = variable["valueFrom"]["fieldRef"]["fieldPath"].partition(".")
    return str(pod[parent][field])
