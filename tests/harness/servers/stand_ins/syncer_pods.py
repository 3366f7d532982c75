"""What a kubelet does for the Pods of syncers: Secrets and the account become files, and the command a process.

pods = SyncerPods(cluster, directory)
pods.run(pod), pods.remove(pod), pods.stop()

The files of a container lie in a folder of its Pod, so paths of mounts in arguments are replaced. Where a container
would find the account of its Pod, a kubeconfig with a token of that account is named, and health is served on a free
port. Other Pods run nothing.
"""

from __future__ import annotations

import base64
import signal
import sys
from pathlib import Path
from typing import Protocol

import yaml

from harness.clients.api import Api, Object
from harness.servers.launch import Process, launch

COMMAND = ["atoll", "syncer"]
STOP_TIMEOUT_S = 30.0
#: Flags of an address that only the Pod has.
_OF_POD = ("--bind-address=", "--port=")


class Cluster(Protocol):
    """Who asks for the Pods, and the kubeconfig of an administrator."""

    kubeconfig: Path


class SyncerPods:
    """The syncers of one cluster, by the uid of their Pod."""

    def __init__(self, api: Api, cluster: Cluster, directory: Path) -> None:
        self._api, self._cluster, self._directory = api, cluster, directory
        self._running: dict[str, Process] = {}

    def run(self, pod: Object) -> None:
        """Start the syncer of a Pod unless it runs."""
        uid, container = pod["metadata"]["uid"], pod["spec"]["containers"][0]
        if container.get("command") != COMMAND or uid in self._running:
            return
        folder = self._directory / uid
        arguments = [each for each in container["args"] if not each.startswith(_OF_POD)]
        for mount in container["volumeMounts"]:
            place = folder / mount["name"]
            self._mount(pod, mount["name"], place)
            arguments = [each.replace(f"={mount['mountPath']}/", f"={place}/") for each in arguments]
        own = [f"--to-kubeconfig={self._account(pod, folder)}", "--bind-address=127.0.0.1"]
        self._running[uid] = launch(
            [sys.executable, "-m", "atoll.cli", "syncer", *arguments, *own],
            folder / "out",
            folder / "err",
            environment={each["name"]: _value(each, pod) for each in container["env"]},
            directory=folder,
            forked=True,
        )

    def remove(self, pod: Object) -> None:
        """Stop the syncer of a Pod that is to go."""
        process = self._running.pop(pod["metadata"]["uid"], None)
        if process is not None:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """End all of them, as a node does that fails."""
        for process in self._running.values():
            process.kill()
            process.wait(STOP_TIMEOUT_S)
        self._running.clear()

    def _mount(self, pod: Object, name: str, place: Path) -> None:
        """Write the files of a volume, if it is a Secret."""
        volume = next(each for each in pod["spec"]["volumes"] if each["name"] == name)
        if "secret" not in volume:
            return
        place.mkdir(parents=True, exist_ok=True)
        secret = f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets/{volume['secret']['secretName']}"
        for key, value in self._api.get(secret).json["data"].items():
            (place / key).write_bytes(base64.b64decode(value))

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
