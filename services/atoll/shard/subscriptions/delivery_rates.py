"""How many events a second an identity is delivered, on the average.

NATS has no rate for consumers that are pulled. So `keeper` says every few seconds how many deliveries it saw, and
pauses the consumers of who is ahead until the rate has caught up. It counts by owner: neither several subscriptions nor
one that is made anew have a rate of their own. Invariant: over any time, an owner is delivered no more than the rate
allows, `BURST_S` seconds of it, and what the server delivers between two looks.
"""

from __future__ import annotations

#: So many seconds of the rate may come at once.
BURST_S = 10.0


class DeliveryRates:
    """Of all owners that had deliveries lately. Times are Unix seconds."""

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        #: Until when what was delivered uses up the rate.
        self._used_until_s: dict[str, float] = {}
        self.delivered = 0

    def __len__(self) -> int:
        return len(self._used_until_s)

    def took(self, owner: str, deliveries: int, now_s: float) -> None:
        """Take in that so many events were delivered."""
        if deliveries > 0:
            self.delivered += deliveries
            used_s = max(self._used_until_s.get(owner, 0.0), now_s - BURST_S)
            self._used_until_s[owner] = used_s + deliveries / self._per_s

    def paused_until_s(self, owner: str, now_s: float) -> float:
        """Until when an owner is delivered nothing, 0 if it may be."""
        until_s = self._used_until_s.get(owner, 0.0)
        return until_s if until_s > now_s else 0.0

    def forget(self, now_s: float) -> None:
        """Forget whose deliveries count no more."""
        for owner in [owner for owner, until_s in self._used_until_s.items() if until_s <= now_s - BURST_S]:
            del self._used_until_s[owner]
