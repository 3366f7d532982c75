"""The one way out: calls to addresses that tenants name (webhooks, conversion, OIDC, mounts, audit sinks).

Here belong: which addresses may be called at all (`addresses`), finding them (`resolver`), what keeps a dead or
slow peer from costing more than its share (`circuit`, `lanes`), and the call itself (`guard`). Whoever sends bytes to a
URL that came out of an object goes through `Egress.send`; nobody else opens a connection to one.

Not here: what is sent and what an answer means (conversion, admission), and calls to our own components, whose
addresses the operator names.
"""

from atoll.machinery.egress.addresses import Policy, policy
from atoll.machinery.egress.guard import Egress, EgressError, Outbound

__all__ = ["Egress", "EgressError", "Outbound", "Policy", "policy"]
