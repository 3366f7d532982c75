"""What a subscription takes beside its address, and how it ends.

`subscribe` hands the options to `subscriber`, which raises the errors. Invariant: loading this loads nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict


class Revoked(Exception):
    """The right to watch is gone. The subscription is kept; subscribe again once the right is back."""


class Gone(Exception):
    """The workspace or the subscription was deleted."""


class Options(TypedDict, total=False):
    """What `subscribe` takes beside the address.

    The credential is a `token` (or a function that returns it, for one that is renewed) with `ca_file`, or a
    `kubeconfig`, of which `context` is used. `identity` is the hash of an export of the workspace: its resources in all
    workspaces that bind it. `since` is now, or how far back a new subscription begins, such as 30m. `full`: events with
    their objects, where that is granted. `previous` (with `full`): `Event.before`.
    """

    token: str | Callable[[], str]
    ca_file: str
    kubeconfig: str
    context: str
    identity: str
    since: str
    full: bool
    previous: bool
