"""A subscriber that is not the operator: its subscription at the API, its messages on NATS, and repair by lists.

`atoll.events.subscribe` loads it. Belongs here: what a client of the service `events` needs, over the API's and NATS'
wires alone. Does not belong here: what the server grants, and the operator's reader of whole streams.
"""

from atoll.events.subscriber.subscriber import Subscriber

__all__ = ["Subscriber"]
