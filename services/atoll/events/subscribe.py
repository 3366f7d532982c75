"""The public call for those who are not the operator: a subscription to what a workspace lets them watch.

Third parties call `subscribe`; `subscriber` does the work and is loaded by the call. Invariant: a mistake in the
arguments raises at the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from atoll.events.subscription_options import Options

if TYPE_CHECKING:
    from atoll.events.subscriber import Subscriber


def subscribe(
    url: str = "", *, resources: Sequence[str], name: str, cluster: str = "", **options: Unpack[Options]
) -> Subscriber:
    """The changes of some resources of a workspace, in the order of its shard, as an async context manager to iterate:

        async with subscribe(url, token=token, cluster="root:harbour", resources=["configmaps"], name="copy") as events:
            async for event in events:
                print(event)

    `url` is the API server's; that of the kubeconfig if empty. `cluster` is a path or name; by default that of the URL.
    `resources` are plurals with their groups, as in deployments.apps. A subscription lives at the server under its
    `name`: who subscribes again goes on behind the last event that was acknowledged. An event is acknowledged when the
    next one is asked for, and when the context is left without an error.

    Raises OSError and ValueError for the arguments. Entering raises the API's error for what is refused. Iterating
    raises Revoked and Gone; a server that cannot be reached is tried again, with a warning in the log.
    """
    if options.get("previous") and not options.get("full"):
        raise ValueError("previous needs full: events without objects have none before either")
    from atoll.events.subscriber import Subscriber
    from atoll.events.subscriber.subscription_api import SubscriptionApi

    return Subscriber(SubscriptionApi(url, cluster, options), name, resources, options)
