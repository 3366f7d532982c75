"""How much of a capacity one allocation may take of a device that several share."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

from atoll.machinery.kinds.checks import items, mapping
from atoll.machinery.kinds.kubernetes.validation.devices import bounded_set
from atoll.machinery.kinds.kubernetes.validation.rules import Errors, amount_of, quantity_text
from atoll.machinery.meta.objects import Object
from atoll.machinery.schema.fielderrors import forbidden, invalid, required

_MAX_VALUES = 10


def request_policy(capacity: Object, at: str) -> Errors:
    """Check the policy of a capacity: some values or a range, each with a default among them."""
    policy, most = mapping(capacity, "requestPolicy"), amount_of(capacity.get("value")) or Decimal(0)
    has_values, has_range = bool(items(policy, "validValues")), isinstance(policy.get("validRange"), dict)
    if has_values and has_range:
        detail = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        yield forbidden(at, detail)
    elif (has_values or has_range) and policy.get("default") is None:
        yield required(f"{at}.default", f"required when {'validValues' if has_values else 'validRange'} is defined")
    elif has_values:
        yield from _values(policy, most, f"{at}.validValues")
    elif has_range:
        yield from _range(mapping(policy, "validRange"), policy["default"], most, f"{at}.validRange")


def _values(policy: Object, most: Decimal, field: str) -> Errors:
    found = [(index, value) for index, value in enumerate(items(policy, "validValues")) if amount_of(value) is not None]
    amounts = [amount_of(value) or Decimal(0) for _, value in found]
    for position in range(1, len(found)):
        if amounts[position - 1] > amounts[position]:
            index, value = found[position]
            yield invalid(f"{field}[{index}]", quantity_text(value), "values must be sorted in ascending order")

    def check(value: object, at: str) -> Errors:
        if (amount_of(value) or Decimal(0)) > most:
            yield invalid(at, quantity_text(value), f"option is larger than capacity value: {most}")

    yield from bounded_set(found, field, _MAX_VALUES, check, _whole)
    is_known = len(found) <= _MAX_VALUES and amount_of(policy["default"]) in amounts
    if not is_known:
        detail = "default value is not valid according to the requestPolicy"
        yield invalid(field, quantity_text(policy["default"]), detail)


def _whole(value: object) -> int:
    """Return an amount in whole units, as Kubernetes compares them in sets and steps."""
    return int((amount_of(value) or Decimal(0)).to_integral_value(ROUND_CEILING))


def _range(part: Object, default: object, most: Decimal, at: str) -> Errors:
    least, highest, step = (amount_of(part.get(name)) for name in ("min", "max", "step"))
    chosen = amount_of(default)
    if part.get("min") is None:
        yield required(f"{at}.min", "required when validRange is defined")
    if least is None or chosen is None:
        return
    if least > most:
        yield invalid(f"{at}.min", quantity_text(part["min"]), f"min is larger than capacity value: {most}")
    if chosen < least:
        yield invalid(f"{at}.min", quantity_text(default), f"default is less than min: {least}")
    if highest is not None:
        if least > highest:
            yield invalid(f"{at}.max", quantity_text(part["min"]), f"min is larger than max: {highest}")
        if highest > most:
            yield invalid(f"{at}.max", quantity_text(part["max"]), f"max is larger than capacity value: {most}")
        if chosen > highest:
            yield invalid(f"{at}.max", quantity_text(default), f"default is more than max: {highest}")
    if step is not None:
        if least + step > most:
            yield invalid(f"{at}.step", quantity_text(part["step"]), f"one step is larger than capacity value: {most}")
        for value in (default, part.get("max")):
            yield from _steps(value, part, f"{at}.step")


def _steps(value: object, part: Object, field: str) -> Errors:
    step = _whole(part["step"])
    if value is not None and step and (_whole(value) - _whole(part["min"])) % step:
        yield invalid(field, quantity_text(value), "value is not a multiple of the given step from min")
