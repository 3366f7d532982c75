"""Settings of a front proxy. The names are kcp's where kcp has the setting, and the shard's where both have it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from atoll.machinery.apiserver.authentication.request_headers import HeaderNames
from atoll.machinery.apiserver.egress.addresses import policy
from atoll.machinery.process.listening import check_place, url_host
from atoll.machinery.process.logging import check_level

#: Groups that mean power on a shard and that nobody brings in from outside, as kcp has them.
DROP_GROUPS = (
    "system:masters",
    "system:kcp:logical-cluster-admin",
    "system:kcp:initializer:*",
    "system:kcp:terminator:*",
)


class FrontProxyConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `atoll front-proxy` can be told. Paths are taken as given; empty means off."""

    root_directory: str = ".atoll-front-proxy"
    bind_address: str = "127.0.0.1"
    secure_port: int = 6443
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    mapping_file: str = ""
    root_ca_file: str = ""
    proxy_client_cert_file: str = ""
    proxy_client_key_file: str = ""
    client_ca_file: str = ""
    token_auth_file: str = ""
    authentication_config: str = ""
    authentication_drop_groups: tuple[str, ...] = DROP_GROUPS
    authentication_pass_on_groups: tuple[str, ...] = ()
    service_account_key_file: tuple[str, ...] = ()
    service_account_issuer: tuple[str, ...] = ()
    api_audiences: tuple[str, ...] = ()
    requestheader_client_ca_file: str = ""
    requestheader_allowed_names: str = ""
    requestheader_username_headers: str = "X-Remote-User"
    requestheader_group_headers: str = "X-Remote-Group"
    requestheader_uid_headers: str = "X-Remote-Uid"
    requestheader_extra_headers_prefix: str = "X-Remote-Extra-"
    nats_url: str = ""
    nats_credentials_file: str = ""
    feature_gates: str = ""
    egress_allow_cidr: str = ""
    mount_proxy_ca_file: str = ""
    cluster_map_file: str = ""
    log_level: str = "info"
    allow_any_filesystem: bool = False

    __descriptions__: ClassVar[dict[str, str]] = {
        "root_directory": "where the routes are kept, and what is made for the listener",
        "bind_address": "address to listen on",
        "secure_port": "HTTPS port; 0 picks a free one",
        "tls_cert_file": "PEM file with the serving certificate; without, one is made in the root directory",
        "tls_private_key_file": "PEM file with its key",
        "mapping_file": "YAML file that says which paths go where; without, /clusters/ to the shards, the rest to root",
        "root_ca_file": "PEM file with the authorities of shards",
        "proxy_client_cert_file": "PEM file with the certificate that shards know front proxies by",
        "proxy_client_key_file": "PEM file with its key",
        "client_ca_file": "PEM file with authorities of client certificates, read anew on change",
        "token_auth_file": "CSV file with token,user,uid,groups",
        "authentication_config": "file with an AuthenticationConfiguration (OpenID Connect), read anew on change",
        "authentication_drop_groups": "groups that no caller brings in; a * at the end stands for anything",
        "authentication_pass_on_groups": "groups that callers bring in, and no others; empty: all but those dropped",
        "service_account_key_file": "PEM file with keys that sign service account tokens",
        "service_account_issuer": "issuer of service account tokens; those named after the first are accepted too",
        "api_audiences": "audiences that tokens have; empty: the issuers",
        "requestheader_client_ca_file": "PEM file with authorities of proxies before this one that name users in"
        " headers, read anew on change",
        "requestheader_allowed_names": "comma separated common names of such proxies; empty: any that is signed",
        "requestheader_username_headers": "comma separated headers that name the user",
        "requestheader_group_headers": "comma separated headers that name groups",
        "requestheader_uid_headers": "comma separated headers with the user's uid",
        "requestheader_extra_headers_prefix": "comma separated prefixes of headers with more about the user",
        "nats_url": "the site's NATS server",
        "nats_credentials_file": "JSON file with user, password and authorities for it",
        "feature_gates": "comma separated Gate=true|false",
        "egress_allow_cidr": "comma separated networks that mounts may be in, though they are loopback or our own",
        "mount_proxy_ca_file": "PEM file with the authorities of mounts, in place of the system's",
        "cluster_map_file": "where to keep a map of logical clusters to shards for a load balancer; none without",
        "log_level": "debug, info, warning or error",
        "allow_any_filesystem": "accept network and temporary file systems",
    }

    def __post_init__(self) -> None:
        """Refuse what could only fail later. Raises ValueError with what is wrong."""
        if not self.root_directory:
            raise ValueError("root-directory must not be empty")
        check_place(self.bind_address, self.secure_port)
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise ValueError("tls-cert-file and tls-private-key-file go together")
        if not self.mapping_file:
            for name in ("proxy_client_cert_file", "proxy_client_key_file", "root_ca_file"):
                if not getattr(self, name):
                    raise ValueError(f"{name.replace('_', '-')} must not be empty where no mapping-file says it")
        if bool(self.proxy_client_cert_file) != bool(self.proxy_client_key_file):
            raise ValueError("proxy-client-cert-file and proxy-client-key-file go together")
        check_level(self.log_level)
        _ = self.header_names
        try:
            policy(self.egress_allow_cidr)
        except ValueError as error:
            raise ValueError(f"egress-allow-cidr {self.egress_allow_cidr!r}: {error}") from error

    @property
    def header_names(self) -> HeaderNames:
        """Of identity headers. Raises ValueError."""
        return HeaderNames.listed(
            self.requestheader_username_headers,
            self.requestheader_group_headers,
            self.requestheader_uid_headers,
            self.requestheader_extra_headers_prefix,
        )

    @property
    def host(self) -> str:
        """Where clients on this machine find the proxy, as it stands in a URL."""
        return url_host(self.bind_address)
