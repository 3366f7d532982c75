"""Retries on conflict: the number of attempts, and which errors count."""

import pytest

from atoll.machinery.process.retry import ATTEMPTS, retry_on_conflict


class Attempt:
    """A call that raises the errors in turn, then returns "done"."""

    def __init__(self, *errors: Exception) -> None:
        self._errors, self.count = iter(errors), 0

    async def __call__(self) -> str:
        self.count += 1
        for error in self._errors:
            raise error
        return "done"


async def test_an_attempt_is_repeated_after_a_conflict() -> None:
    attempt = Attempt(KeyError("a"), IndexError("b"))
    assert await retry_on_conflict(attempt, KeyError, IndexError) == "done"
    assert attempt.count == 3


async def test_the_last_conflict_is_raised_after_all_attempts() -> None:
    attempt = Attempt(*(KeyError(number) for number in range(ATTEMPTS + 1)))
    with pytest.raises(KeyError, match=str(ATTEMPTS - 1)):
        await retry_on_conflict(attempt, KeyError)
    assert attempt.count == ATTEMPTS


async def test_another_error_is_raised_at_once() -> None:
    attempt = Attempt(IndexError("b"), KeyError("a"))
    with pytest.raises(IndexError):
        await retry_on_conflict(attempt, KeyError)
    assert attempt.count == 1
