"""A stand-in for nodes: binds Pods to one, reports them running, and removes those that are to go.

nodes = Nodes(Api(cluster), pods)
nodes.start(), nodes.stop()

A Pod that asks for a node by its affinity, as those of DaemonSets do, gets it like any other. No container runs but
those of syncers.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time

from harness.clients.api import STRATEGIC, Api, Object, eventually
from harness.servers.stand_ins.syncer_pods import SyncerPods

NODE = "node-1"
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
_RESOURCES = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
_AGAIN_S = 0.2


class Nodes:
    """One node and the thread that follows Pods."""

    def __init__(self, api: Api, pods: SyncerPods) -> None:
        self._api, self._pods, self._stopped = api, pods, threading.Event()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="nodes", daemon=True)

    def start(self) -> None:
        """Register the node, and begin to follow Pods."""
        metadata = {"name": NODE, "labels": {"kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux"}}
        self._api.send("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        # New ones are tainted until a controller, which is not there, finds them ready.
        self._api.patch(f"{NODES}/{NODE}", {"spec": {"taints": None}})
        condition = {"type": "Ready", "status": "True", "reason": "StandIn", "message": "no container runs"}
        status = {"capacity": _RESOURCES, "allocatable": _RESOURCES, "conditions": [condition]}
        self._api.patch(f"{NODES}/{NODE}/status", {"status": status}, STRATEGIC)
        self._thread.start()
        eventually(lambda: self._socket is not None, "the stand-in for nodes follows Pods")

    def stop(self) -> None:
        """Let go of the cluster."""
        self._stopped.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._pods.stop()
        self._api.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            # The server may be going, or may end the watch.
            with contextlib.suppress(OSError, http.client.HTTPException, AssertionError, ValueError, AttributeError):
                self._follow()
            self._stopped.wait(_AGAIN_S)

    def _follow(self) -> None:
        connection = self._api.open()
        with contextlib.closing(connection):
            connection.connect()
            self._socket = connection.sock
            connection.request("GET", f"{PODS}?watch=1", headers=self._api.headers())
            response = connection.getresponse()
            while line := response.readline():
                event = json.loads(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    self._care(event["object"])

    def _care(self, pod: Object) -> None:
        """Do the next step of a Pod's life. What changed meanwhile comes as an event of its own."""
        metadata, spec = pod["metadata"], pod["spec"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if "deletionTimestamp" in metadata:
            self._pods.remove(pod)
            self._api.send("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
        elif not spec.get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            name = {"name": metadata["name"]}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": name, "target": target}
            self._api.send("POST", f"{path}/binding", binding)
        elif (pod.get("status") or {}).get("phase") != "Running":
            self._api.send("PATCH", f"{path}/status", {"status": _running(spec)}, kind=STRATEGIC)
        else:
            self._pods.run(pod)


def _running(spec: Object) -> Object:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    containers = [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": each["image"],
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for each in spec["containers"]
    ]
    conditions = [
        {"type": name, "status": "True", "lastTransitionTime": now}
        for name in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    running: Object = {"phase": "Running", "hostIP": "10.1.0.1", "podIP": "10.1.0.2", "podIPs": [{"ip": "10.1.0.2"}]}
    return {**running, "startTime": now, "containerStatuses": containers, "conditions": conditions}
