"""The `/version` document: the Kubernetes version whose API clients may rely on."""

from __future__ import annotations

import platform
from importlib import metadata

from atoll.machinery.meta.objects import Object

MAJOR, MINOR = "1", "37"
_DISTRIBUTION = "atoll"


def version() -> Object:
    """Return the version document; gitVersion is semver, with this product's version as the build part."""
    try:
        own = metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        own = "0.0.0"
    return {
        "major": MAJOR,
        "minor": MINOR,
        "gitVersion": f"v{MAJOR}.{MINOR}.0+kcp-atoll-v{own}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{platform.system().lower()}/{_ARCHITECTURES.get(platform.machine(), platform.machine())}",
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": str(int(MINOR) - 1),
    }


_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
