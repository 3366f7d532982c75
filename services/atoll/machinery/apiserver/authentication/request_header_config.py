"""Settings of the request-header CA: which proxies may name the user of a request, and in which headers.

The settings of a shard and of a front proxy contain these. Invariant: no process starts with a header
name that `HeaderNames` refuses.
"""

from __future__ import annotations

from atoll.machinery.apiserver.authentication.request_headers import HeaderNames
from atoll.machinery.process.server_config import ServerConfig

#: The subject of these settings in the help.
REQUEST_HEADER_SETTINGS = {
    "requestheader_client_ca_file": "PEM file with the CAs of proxies in front of this process that name users in"
    " headers; reread when it changes",
    "requestheader_allowed_names": "comma separated common names of such proxies; empty: any certificate of these CAs",
    "requestheader_username_headers": "comma separated headers with the user name",
    "requestheader_group_headers": "comma separated headers with groups",
    "requestheader_uid_headers": "comma separated headers with the user's uid",
    "requestheader_extra_headers_prefix": "comma separated prefixes of headers with extra fields of the user",
}


class RequestHeaderConfig(ServerConfig, frozen=True, kw_only=True):
    """Paths are used unchanged; an empty CA file means that no proxy is trusted."""

    requestheader_client_ca_file: str = ""
    requestheader_allowed_names: str = ""
    requestheader_username_headers: str = "X-Remote-User"
    requestheader_group_headers: str = "X-Remote-Group"
    requestheader_uid_headers: str = "X-Remote-Uid"
    requestheader_extra_headers_prefix: str = "X-Remote-Extra-"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.header_names

    @property
    def header_names(self) -> HeaderNames:
        """Names of the identity headers of proxies. Raises ValueError."""
        return HeaderNames.listed(
            self.requestheader_username_headers,
            self.requestheader_group_headers,
            self.requestheader_uid_headers,
            self.requestheader_extra_headers_prefix,
        )
