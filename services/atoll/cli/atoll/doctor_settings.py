"""Findings of `atoll doctor` about a shard's settings: whom it trusts, what it records, where it calls and publishes.

Each check returns findings. Invariant: files are read, nothing is changed, and no finding quotes a secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from atoll.cli.atoll.finding import FAIL, OK, WARN, Finding
from atoll.machinery.egress.addresses import policy
from atoll.machinery.process.certificate_expiry import certificates
from atoll.machinery.process.config import comma_separated
from atoll.machinery.process.listen_address import is_loopback
from atoll.shard.config import ShardConfig

#: An operator has so long to replace a certificate; those that a shard makes are replaced before.
ENDS_SOON = timedelta(days=14)
MIN_RSA_BITS = 2048
NO_AUDIT_LOG = Finding(WARN, "audit", "who did what is not recorded: --audit-log-path is not set")
#: Services of a machine, and the metadata service of clouds, which hands out credentials.
_INTERNAL = (ip_network("127.0.0.0/8"), ip_network("::1/128"), ip_network("169.254.0.0/16"), ip_network("fe80::/10"))


def users(config: ShardConfig) -> Iterator[Finding]:
    """Check whom the shard takes a name from: token files, and authorities of proxies that are those of users too."""
    if config.token_auth_file:
        fact = f"tokens in {config.token_auth_file} do not end by themselves: certificates and OpenID Connect do"
        yield Finding(WARN, "token-file", fact)
    if not config.requestheader_client_ca_file:
        return
    proxies = set(certificates(Path(config.requestheader_client_ca_file)))
    names = config.requestheader_allowed_names
    shared = proxies & {each for file in config.client_ca_file for each in certificates(Path(file))}
    if shared:
        level = WARN if names else FAIL
        by = f"called {names}" if names else "with a certificate"
        subject = next(iter(shared)).subject.rfc4514_string()
        fact = f"{subject} signs users and proxies: each user {by} may speak for any other"
        yield Finding(level, "proxy-authority", fact)
    else:
        yield Finding(OK, "proxy-authority", "no authority of proxies signs users")


def audit(config: ShardConfig) -> Iterator[Finding]:
    """Check that it is recorded who did what."""
    if config.audit_log_path:
        yield Finding(OK, "audit", f"events go to {config.audit_log_path}")
    else:
        yield NO_AUDIT_LOG


def outbound(config: ShardConfig) -> Iterator[Finding]:
    """Check that tenants' webhooks and mounts do not reach this machine's services, or a cloud's metadata."""
    reached = [
        str(network)
        for network in policy(config.egress_allow_cidr).allowed
        if any(network.version == each.version and network.overlaps(each) for each in _INTERNAL)
    ]
    if reached:
        fact = f"{', '.join(reached)} lets tenants call services of this machine or the metadata of its cloud"
        yield Finding(WARN, "egress", fact)
    else:
        yield Finding(OK, "egress", "tenants reach neither this machine nor link-local addresses")


def serving(config: ShardConfig) -> Iterator[Finding]:
    """Check key and end of the serving certificate that the settings name."""
    if not config.tls_cert_file:
        return
    found = certificates(Path(config.tls_cert_file))
    if not found:
        yield Finding(FAIL, "serving-certificate", f"{config.tls_cert_file} holds no PEM certificate")
        return
    yield certificate_end("serving-certificate", found[0])


def certificate_end(name: str, certificate: x509.Certificate) -> Finding:
    """The finding about key and end of a certificate by which a server is known."""
    key, ends = certificate.public_key(), certificate.not_valid_after_utc
    left = ends - datetime.now(UTC)
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < MIN_RSA_BITS:
        return Finding(FAIL, name, f"its RSA key has {key.key_size} bits, {MIN_RSA_BITS} are needed")
    if left < timedelta():
        return Finding(FAIL, name, f"it ended at {ends:%Y-%m-%d %H:%M} UTC")
    return Finding(WARN if left < ENDS_SOON else OK, name, f"it ends at {ends:%Y-%m-%d %H:%M} UTC")


def stream(config: ShardConfig) -> Iterator[Finding]:
    """Check that changes and passwords leave this machine by TLS alone."""
    urls = [urlsplit(url) for url in comma_separated(config.nats_url)]
    plain = [url for url in urls if url.scheme != "tls" and not is_loopback(url.hostname or "")]
    if plain:
        # A URL may hold a password.
        hosts = ", ".join(url.hostname or "an unknown host" for url in plain)
        yield Finding(FAIL, "nats", f"changes go to {hosts} without TLS: its URL begins with tls://")
    elif urls:
        yield Finding(OK, "nats", "changes leave this machine by TLS alone")
