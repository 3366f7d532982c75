"""Sources of volumes that pods and persistent volumes share: disks, network file systems, drivers.

Invariant: a field is named in an error as Kubernetes names it, which for some sources is not its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from atoll.machinery.kinds.checks import invalid_values, items, mapping, text
from atoll.machinery.kinds.kubernetes.validation.paths import descending, no_backsteps
from atoll.machinery.kinds.kubernetes.validation.rules import (
    Errors,
    integer,
    label,
    needed,
    not_empty,
    one_of,
    range_text,
    within,
)
from atoll.machinery.meta.labels import dns_label_errors, dns_subdomain_errors
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.fielderrors import invalid, not_supported, required, too_long

#: Fields that have to have content: those that the schema requires, and others.
_NOT_EMPTY = {
    "gitRepo": ("repository",),
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "nfs": ("server", "path"),
    "iscsi": ("targetPortal", "iqn"),
    "glusterfs": ("endpoints", "path"),
    "persistentVolumeClaim": ("claimName",),
    "rbd": ("monitors", "image"),
    "cinder": ("volumeID",),
    "cephfs": ("monitors",),
    "quobyte": ("volume",),
    "flexVolume": ("driver",),
    "azureFile": ("secretName", "shareName"),
    "vsphereVolume": ("volumePath",),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "azureDisk": ("diskName", "diskURI"),
    "scaleIO": ("gateway", "system"),
    "local": ("path",),
    "hostPath": ("path",),
}
_NEEDED = {"secret": ("secretName",), "configMap": ("name",), "scaleIO": ("volumeName",), "storageos": ("volumeName",)}
#: Where Kubernetes' errors say another name: of the source, and where there are two sources.
_SOURCE_FIELDS = {"gcePersistentDisk": "persistentDisk"}
_SECOND_SOURCE_FIELDS = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_IQN = re.compile(r"iqn\.\d{4}-\d{2}\.[A-Za-z0-9.\-]+:[^,;*&$|\s]+\Z", re.ASCII)
_EUI, _NAA = re.compile(r"eui.[A-Za-z0-9]{16}\Z"), re.compile(r"naa.[A-Za-z0-9]{32}\Z")
_DISKS = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_BLOBS = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
_DRIVER_SIZE = 63
_LUN_TEXT = range_text(0, 255)
_PORTAL_TEXT = (
    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters "
    "if iscsi.initiatorName is specified."
)


def source_field(name: str) -> str:
    """Return how errors of a source name it."""
    return _SOURCE_FIELDS.get(name, name)


def second_source_field(name: str) -> str:
    """Return how the error of a second source names it."""
    return _SECOND_SOURCE_FIELDS.get(name, name)


def driver_errors(source: Object, at: str, name: str = "driver") -> Errors:
    """Check the name of a CSI driver."""
    driver, field = text(source, name), f"{at}.{name}"
    if not driver:
        yield from not_empty(source, at, name)
        return
    if len(driver.encode()) > _DRIVER_SIZE:
        yield too_long(field, _DRIVER_SIZE)
    yield from invalid_values(field, driver, dns_subdomain_errors(driver.lower()))


def source_errors(name: str, source: Object, at: str, owner: str, *, is_persistent: bool = False) -> Errors:
    """Check a source of the volume with the name `owner`."""
    yield from not_empty(source, at, *_NOT_EMPTY.get(name, ()))
    yield from needed(source, at, *_NEEDED.get(name, ()))
    if special := _SPECIAL.get(name):
        yield from special(source, at)
    if name == "iscsi":
        yield from _iscsi(source, at, owner, is_persistent)
    elif name in ("cinder", "storageos") and isinstance(source.get("secretRef"), dict):
        names = ("name", "namespace") if is_persistent else ("name",)
        yield from needed(source["secretRef"], f"{at}.secretRef", *names)
    elif name == "glusterfs" and is_persistent and isinstance(source.get("endpointsNamespace"), str):
        yield from _endpoints_namespace(source["endpointsNamespace"], f"{at}.endpointsNamespace")
    elif name == "azureFile" and is_persistent and source.get("secretNamespace") == "":
        yield required(f"{at}.secretNamespace")


def _host_path(source: Object, at: str) -> Errors:
    if text(source, "path"):
        yield from no_backsteps(source["path"], f"{at}.path")
        yield from one_of(source, at, "type", _HOST_PATH_TYPES)


def _git(source: Object, at: str) -> Errors:
    yield from descending(text(source, "directory"), f"{at}.directory")


def _partition(source: Object, at: str) -> Errors:
    number = integer(source.get("partition"))
    if number is not None and not 0 <= number <= 255:
        yield invalid(f"{at}.partition", number, range_text(1, 255))


def _nfs(source: Object, at: str) -> Errors:
    if isinstance(source.get("path"), str) and not source["path"].startswith("/"):
        yield invalid(f"{at}.path", source["path"], "must be an absolute path")


def _initiator_problem(name: str, other: str) -> str:
    """Return what is wrong with the name of an initiator or target."""
    pattern = {"iqn": _IQN, "eui": _EUI, "naa": _NAA}.get(name[:3])
    if pattern is None:
        return other
    found = pattern.search(name) if pattern is _IQN else pattern.match(name)
    return "" if found else "must be valid format"


def _iscsi(source: Object, at: str, owner: str, is_persistent: bool) -> Errors:
    other = "must be valid format" + ("" if is_persistent else " starting with iqn, eui, or naa")
    if text(source, "iqn") and (problem := _initiator_problem(source["iqn"], other)):
        yield invalid(f"{at}.iqn", source["iqn"], problem)
    yield from within(source, at, "lun", 0, 255)
    secret = source.get("secretRef")
    if (source.get("chapAuthDiscovery") is True or source.get("chapAuthSession") is True) and secret is None:
        yield required(f"{at}.secretRef")
    if is_persistent and isinstance(secret, dict):
        yield from needed(secret, f"{at}.secretRef", "name")
    initiator = source.get("initiatorName")
    if not isinstance(initiator, str):
        return
    if problem := _initiator_problem(initiator, other):
        yield invalid(f"{at}.initiatorname", initiator, problem)
    portal = text(source, "targetPortal")
    if len(f"{owner}:{portal}".encode()) > 64:
        if is_persistent:
            yield invalid(f"{at}.targetportal", portal, _PORTAL_TEXT)
        else:
            yield invalid(f"{at.rpartition('.')[0]}.name", owner, _PORTAL_TEXT)


def _endpoints_namespace(name: str, field: str) -> Errors:
    if not name:
        detail = "if the endpointnamespace is set, it must be a valid namespace name"
        yield invalid(field, name, detail)
    else:
        yield from invalid_values(field, name, dns_label_errors(name))


def _flocker(source: Object, at: str) -> Errors:
    name, uid = text(source, "datasetName"), text(source, "datasetUUID")
    if not name and not uid:
        yield required(at, "one of datasetName and datasetUUID is required")
    if name and uid:
        yield invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        yield invalid(f"{at}.datasetName", name, "must not contain '/'")


def _quobyte(source: Object, at: str) -> Errors:
    registry, detail = text(source, "registry"), "must be a host:port pair or multiple pairs separated by commas"
    if not registry:
        if "registry" in source:
            yield required(f"{at}.registry", detail)
    elif len(text(source, "tenant").encode()) > 64:
        yield required(f"{at}.tenant", "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in registry.split(","):
            host, colon, _ = pair.rpartition(":")
            if not colon or (":" in host and not (host.startswith("[") and host.endswith("]"))):
                yield invalid(f"{at}.registry", registry, detail)
                # Once for all pairs, because the text repeats them all.
                return


def _fibre_channel(source: Object, at: str) -> Errors:
    targets, ids = items(source, "targetWWNs"), items(source, "wwids")
    if not targets and not ids:
        yield required(f"{at}.targetWWNs", "must specify either targetWWNs or wwids, but not both")
    if targets and ids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        yield invalid(f"{at}.targetWWNs", targets, detail)
    if targets and source.get("lun") is None:
        yield required(f"{at}.lun", "lun is required if targetWWNs is specified")
    elif targets and not 0 <= (integer(source["lun"]) or 0) <= 255:
        yield invalid(f"{at}.lun", source["lun"], _LUN_TEXT)


def _flex(source: Object, at: str) -> Errors:
    for key in mapping(source, "options"):
        domain = "." + key.partition("/")[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            yield invalid(f"{at}.options[{key}]", key, "kubernetes.io and k8s.io namespaces are reserved")


def _azure_disk(source: Object, at: str) -> Errors:
    yield from one_of(source, at, "cachingMode", ("None", "ReadOnly", "ReadWrite"))
    yield from one_of(source, at, "kind", ("Dedicated", "Managed", "Shared"))
    uri, kind = text(source, "diskURI"), source.get("kind")
    if "diskURI" in source and isinstance(kind, str):
        if kind == "Managed" and not uri.startswith("/subscriptions/"):
            yield not_supported(f"{at}.diskURI", uri, (_DISKS,))
        elif kind != "Managed" and not uri.startswith("https://"):
            yield not_supported(f"{at}.diskURI", uri, (_BLOBS,))


def _storageos(source: Object, at: str) -> Errors:
    yield from label(source, at, "volumeName", "volumeNamespace")


def _local(source: Object, at: str) -> Errors:
    yield from no_backsteps(text(source, "path"), f"{at}.path")


_SPECIAL: dict[str, Callable[[Object, str], Errors]] = {
    "hostPath": _host_path,
    "gitRepo": _git,
    "gcePersistentDisk": _partition,
    "awsElasticBlockStore": _partition,
    "nfs": _nfs,
    "flocker": _flocker,
    "quobyte": _quobyte,
    "fc": _fibre_channel,
    "flexVolume": _flex,
    "azureDisk": _azure_disk,
    "storageos": _storageos,
    "local": _local,
}
