"""How many events a second an identity is delivered."""

from __future__ import annotations

from atoll.shard.subscriptions.delivery_rates import BURST_S, DeliveryRates

NOW = 1_000_000.0


def test_what_comes_within_the_rate_pauses_nobody() -> None:
    rates = DeliveryRates(10)
    for second in range(0, 600, 5):
        rates.took("alice", 50, NOW + second)
        assert rates.paused_until_s("alice", NOW + second) == 0.0
    assert rates.delivered == 6000


def test_an_owner_that_is_ahead_is_paused_until_the_rate_has_caught_up_and_others_are_not() -> None:
    rates = DeliveryRates(10)
    rates.took("alice", 10 * int(BURST_S), NOW)
    assert rates.paused_until_s("alice", NOW) == 0.0
    rates.took("alice", 30, NOW)
    assert rates.paused_until_s("alice", NOW) == NOW + 3
    assert rates.paused_until_s("alice", NOW + 3) == rates.paused_until_s("bob", NOW) == 0.0


def test_over_any_time_no_more_is_delivered_than_the_rate_the_burst_and_one_look() -> None:
    rates, look_s, delivered = DeliveryRates(100), 5, 0
    for moment in range(0, 3600, look_s):
        now_s = NOW + moment
        if not rates.paused_until_s("alice", now_s):
            delivered += 20_000
            rates.took("alice", 20_000, now_s)
        assert delivered <= 100 * (moment + BURST_S) + 20_000
    assert delivered >= 100 * 3600


def test_whose_deliveries_count_no_more_is_forgotten() -> None:
    rates = DeliveryRates(10)
    rates.took("alice", 5, NOW)
    rates.took("bob", 500, NOW)
    rates.took("carol", 0, NOW)
    rates.forget(NOW + 1)
    assert len(rates) == 1
    rates.forget(NOW + 50)
    assert len(rates) == 0
