"""Relief of workers: while one waits for somebody outside of the installation, another one works in its place.

A controller has a few workers for all tenants, and a write of one may wait half a minute for the webhook of a tenant.
`control.worker` says how the worker of a task is relieved, `writing.commit` asks for it before it waits. Tasks that a
worker starts may ask as well. Invariant: in any other task nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

_relieve: ContextVar[Callable[[], None] | None] = ContextVar("relieve", default=None)


def relieved_by(relieve: Callable[[], None]) -> None:
    """Say how the worker of this task is relieved; it may be asked more than once."""
    _relieve.set(relieve)


def ask_for_relief() -> None:
    """Have the worker of this task, if it is one, relieved: the task is about to wait for somebody outside."""
    relieve = _relieve.get()
    if relieve is not None:
        relieve()
