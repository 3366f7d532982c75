"""When the certificates of a process end: a metric, and what reads it from files.

Processes register one `CertificateExpiry`. It reads the files at each scrape, so it shows what the process has read or
is about to read. Invariant: a file that is absent or unreadable shows no end, and fails no scrape.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml
from cryptography import x509
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from atoll.machinery.process.config import ProcessConfig

NAME = "atoll_certificate_expiration_timestamp_seconds"
_CLIENT = "client-certificate-data"
#: How the names of settings end that name certificates.
_ENDINGS = ("cert_file", "ca_file", "kubeconfig", "kubeconfig_file")


def certificates(path: Path) -> list[x509.Certificate]:
    """The certificates in a PEM file, or of the users in a kubeconfig. Raises ValueError, yaml.YAMLError, OSError."""
    text = path.read_bytes()
    if b"-----BEGIN CERTIFICATE" in text:
        return x509.load_pem_x509_certificates(text)
    document = yaml.safe_load(text)
    users = (document.get("users") or ()) if isinstance(document, dict) else ()
    found = (str((entry.get("user") or {}).get(_CLIENT, "")) for entry in users)
    return [x509.load_pem_x509_certificate(base64.b64decode(data)) for data in found if data]


class CertificateExpiry(Collector):
    """The earliest end of the certificates in each file that a setting names; `made` are files that no setting names,
    by the setting that would."""

    def __init__(
        self, config: ProcessConfig, registry: CollectorRegistry, made: Mapping[str, Path] | None = None
    ) -> None:
        self._files = {**(made or {}), **_configured(config)}
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Its name, without reading files."""
        return [self._family()]

    def collect(self) -> Iterator[Metric]:
        """The metric."""
        family = self._family()
        for setting, path in self._files.items():
            with contextlib.suppress(ValueError, AttributeError, yaml.YAMLError, OSError):
                ends = [found.not_valid_after_utc.timestamp() for found in certificates(path)]
                if ends:
                    family.add_metric([setting], min(ends))
        yield family

    @staticmethod
    def _family() -> GaugeMetricFamily:
        return GaugeMetricFamily(NAME, "Earliest end of the certificates in a file, Unix seconds.", labels=["setting"])


def _configured(config: ProcessConfig) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for name in config.__struct_fields__:
        if name.endswith(_ENDINGS):
            value = getattr(config, name)
            files = value if isinstance(value, tuple) else (value,)
            found.update({_label(name, number): Path(file) for number, file in enumerate(filter(None, files))})
    return found


def _label(name: str, number: int) -> str:
    flag = name.replace("_", "-")
    return f"{flag}-{number}" if number else flag
