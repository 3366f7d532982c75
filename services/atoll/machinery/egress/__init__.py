"""Outbound calls to addresses that tenants name (webhooks, conversion, OIDC, mounts, audit sinks).

Belongs here: which addresses may be called (`addresses`), name resolution (`resolver`), bounds on concurrent calls
(`call_slots`), peers that fail (`breakers`) and the words of failures (`errors`), the call itself (`guard`), and
requests of clients that are forwarded (`forward`). All bytes to a URL that came from an object go through `Egress.send`
or a `Forwarder`; nothing else opens a connection to one.

Does not belong here: what is sent and what an answer means (conversion, admission), and calls to our own components,
whose addresses the operator names.
"""

from atoll.machinery.egress.addresses import Policy, policy
from atoll.machinery.egress.errors import EgressError
from atoll.machinery.egress.guard import Egress, Outbound

__all__ = ["Egress", "EgressError", "Outbound", "Policy", "policy"]
