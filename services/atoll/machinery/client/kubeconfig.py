"""kubeconfig files: reading a context, and the edits that changing workspaces makes.

Plug-ins and `Client.from_kubeconfig` read through here. Several files behave as kubectl's do: the first to define a
cluster, user, context or the current context wins, a change goes into the file that has the entry, and new entries go
into the first. Invariant: unchanged parts are kept, and a file is replaced atomically.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from atoll.machinery.client.target import Entry, KubeconfigError, Target, make_target
from atoll.machinery.meta.objects import Object

__all__ = ["Kubeconfig", "KubeconfigError", "Target"]

DEFAULT_FILE = "~/.kube/config"
#: What entries name files by.
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


class _File:
    """One file. `raw` is the whole document."""

    def __init__(self, path: Path, raw: Object) -> None:
        self.path, self.raw, self.changed = path, raw, False

    def entries(self, kind: str) -> list[Object]:
        return [item for item in self.raw.get(f"{kind}s") or [] if isinstance(item, dict)]

    def set(self, kind: str, name: str, value: Object) -> None:
        self.changed = True
        for item in self.entries(kind):
            if item.get("name") == name:
                item[kind] = value
                return
        items = self.raw.get(f"{kind}s") or []
        items.append({"name": name, kind: value})
        self.raw[f"{kind}s"] = items

    def save(self) -> None:
        """Write through symbolic links; the mode is always 0600, since the file contains tokens."""
        path = self.path.resolve()
        text = yaml.safe_dump(self.raw, sort_keys=False)
        descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            Path(scratch).replace(path)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise
        self.changed = False


class Kubeconfig:
    """One kubeconfig in memory, of one file or several. Edits stay in memory until `save`."""

    def __init__(self, files: list[_File]) -> None:
        self._files = files

    @classmethod
    def load(cls, path: str = "", environment: Mapping[str, str] = os.environ) -> Kubeconfig:
        """Read the file named, else those that KUBECONFIG lists, else the default one.

        Of several files those that are absent are passed over. Raises KubeconfigError if none can be read.
        """
        listed = [path] if path else environment.get("KUBECONFIG", "").split(os.pathsep)
        paths = [Path(part).expanduser() for part in listed if part] or [Path(DEFAULT_FILE).expanduser()]
        present = [each for each in paths if each.exists()] if len(paths) > 1 else paths
        if not present:
            raise KubeconfigError(f"no kubeconfig: {', '.join(map(str, paths))} do not exist")
        return cls([_File(each, _read(each)) for each in present])

    @property
    def path(self) -> Path:
        """The first file, which new entries go into."""
        return self._files[0].path

    @property
    def current(self) -> str:
        """Name of the current context; empty if there is none."""
        return str(self._current_file().raw.get("current-context") or "")

    def use(self, context: str) -> None:
        """Make a context the current one."""
        file = self._current_file()
        if file.raw.get("current-context") != context:
            file.raw["current-context"] = context
            file.changed = True

    def has(self, kind: str, name: str) -> bool:
        """Whether there is a cluster, user or context of this name."""
        return self._find(kind, name) is not None

    def entry(self, kind: str, name: str) -> Object:
        """The cluster, user or context of a name, as a copy to change freely. Raises KubeconfigError."""
        return dict(self._entry(kind, name).value)

    def set_entry(self, kind: str, name: str, value: Object) -> None:
        """Add or replace a cluster, user or context."""
        found = self._find(kind, name)
        (found[0] if found is not None else self._files[0]).set(kind, name, value)

    def cluster_of(self, context: str) -> Object:
        """Return the cluster of a context with its authority as data, for another file. Raises KubeconfigError."""
        entry = self._entry("cluster", str(self.entry("context", context).get("cluster") or ""))
        found = {key: value for key, value in entry.value.items() if not key.startswith("certificate-authority")}
        if authority := entry.data("certificate-authority"):
            found["certificate-authority-data"] = base64.b64encode(authority).decode()
        return found

    def target(self, context: str = "") -> Target:
        """Where a context points (the current one by default). Raises KubeconfigError."""
        name = context or self.current
        if not name:
            raise KubeconfigError(f"{self.path} has no current context")
        found = self.entry("context", name)
        user = self._entry("user", str(found["user"])) if found.get("user") else None
        return make_target(self._entry("cluster", str(found.get("cluster") or "")), user)

    def files(self, context: str = "") -> tuple[str, ...]:
        """All files that the target of a context is made of: kubeconfigs, and those that they name. Raises
        KubeconfigError."""
        found = self.entry("context", context or self.current)
        entries = [self._entry(kind, str(found[kind])) for kind in ("cluster", "user") if found.get(kind)]
        named = [
            each.directory / Path(each.value[key]).expanduser()
            for each in entries
            for key in _FILES
            if each.value.get(key)
        ]
        return tuple(map(str, (*(file.path for file in self._files), *named)))

    def save(self) -> None:
        """Write the files that were changed. Raises OSError."""
        for file in self._files:
            if file.changed:
                file.save()

    def _current_file(self) -> _File:
        return next((file for file in self._files if file.raw.get("current-context")), self._files[0])

    def _find(self, kind: str, name: str) -> tuple[_File, Object] | None:
        for file in self._files:
            for item in file.entries(kind):
                if item.get("name") == name:
                    return file, item
        return None

    def _entry(self, kind: str, name: str) -> Entry:
        found = self._find(kind, name)
        if found is None:
            raise KubeconfigError(f"{kind} {name!r} is not in the kubeconfig")
        file, item = found
        value = item.get(kind)
        return Entry(name, value if isinstance(value, dict) else {}, file.path.parent)


def _read(path: Path) -> Object:
    try:
        raw = yaml.load(path.read_text(), Loader=_Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise KubeconfigError(f"kubeconfig {path} cannot be read: {error}") from error
    if raw is None:
        return {"apiVersion": "v1", "kind": "Config"}
    if not isinstance(raw, dict):
        raise KubeconfigError(f"kubeconfig {path} does not hold a mapping")
    return raw


# The C loader where there is one: a kubeconfig with certificates costs 20 ms otherwise.
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
