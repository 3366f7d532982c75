"""How many files this process may have open. Connections are files, and so are stores and logs.

Commands that serve take what the system allows (`take_all`) before they open any; servers accept by `limit`.
"""

from __future__ import annotations

import errno
import resource
from contextlib import suppress

#: More than any process here has; the system may allow any number.
MOST = 1 << 20
_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}


def limit() -> int:
    """How many this process may have open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(soft, MOST)


def take_all() -> None:
    """Raise the limit to what the system allows: most give a process 1,024 unless it asks for more, as Go's do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def is_shortage(error: BaseException) -> bool:
    """Whether an error says that this process or its machine has no room for a connection, whoever it is to."""
    return isinstance(error, OSError) and error.errno in _SHORTAGES
