"""Indexes of a Job in text, such as `0-3,5`: how many they are, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}\Z")


def count_indexes(text: str, completions: int) -> tuple[int, str]:
    """Return the number of indexes, and what is wrong with the text: empty if nothing is."""
    total, last = 0, None
    for part in text.split(",") if text else ():
        first, end, problem = _interval(part, completions)
        if not problem and last is not None and last >= first:
            problem = f"non-increasing order, previous: {last}, current: {first}"
        if problem:
            return 0, problem
        total, last = total + end - first + 1, end
    return total, ""


def _interval(part: str, completions: int) -> tuple[int, int, str]:
    limits = part.split("-")
    if len(limits) > 2:
        detail = "violates the requirement that an index interval can have at most two parts separated by '-'"
        return 0, 0, f'the fragment "{part}" {detail}'
    numbers = []
    for limit in limits:
        if not _NUMBER.match(limit):
            return 0, 0, f'cannot convert string to integer for index: "{limit}"'
        numbers.append(int(limit))
        if numbers[-1] >= completions:
            return 0, 0, f'too large index: "{limit}"'
    if len(numbers) == 2 and numbers[0] >= numbers[1]:
        return 0, 0, f"non-increasing order, previous: {numbers[0]}, current: {numbers[1]}"
    return numbers[0], numbers[-1], ""


def overlap(completed: str, failed: str, completions: int) -> str:
    """Return what is wrong with indexes that have both completed and failed; empty if none has."""
    sides = [iter(sorted(_intervals(text, completions))) for text in (completed, failed)]
    one, other = (next(side, None) for side in sides)
    while one is not None and other is not None:
        if one[0] <= other[1] and other[0] <= one[1]:
            return f"failedIndexes and completedIndexes overlap at index: {max(one[0], other[0])}"
        if one[0] <= other[0]:
            one = next(sides[0], None)
        else:
            other = next(sides[1], None)
    return ""


def _intervals(text: str, completions: int) -> Iterator[tuple[int, int]]:
    """Yield the valid intervals."""
    for part in text.split(",") if text else ():
        first, end, problem = _interval(part, completions)
        if not problem:
            yield first, end
