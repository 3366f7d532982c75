"""Functions common to the kubectl plug-ins: flags, running a coroutine, output and errors.

All plug-ins call this. Invariant: every failure of arguments, kubeconfig, network or server becomes one message on
standard error and an exit code, never a traceback.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from atoll.machinery.client.kubeconfig import Kubeconfig, KubeconfigError
from atoll.machinery.meta.status import ApiError
from atoll.machinery.wire.pending_response import ClientError


class Failure(Exception):
    """A command failed; the message is for the user, `code` the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def common_flags(*workspace: str) -> argparse.ArgumentParser:
    """Return a parser of the flags of every plug-in, named as in kubectl; `workspace` is other than the usual names."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="the kubeconfig to use")
    parser.add_argument("--context", default="", metavar="NAME", help="the context to start from")
    parser.add_argument(
        *(workspace or ("-w", "--workspace")), default="", metavar="PATH", help="work there instead of here"
    )
    return parser


def load_context(options: argparse.Namespace) -> tuple[Kubeconfig, str]:
    """Return the kubeconfig of the flags, and the context to start from. Raises KubeconfigError, Failure."""
    kubeconfig = Kubeconfig.load(options.kubeconfig)
    context = options.context or kubeconfig.current
    if not context:
        raise Failure(f"the kubeconfig {kubeconfig.path} has no current context")
    return kubeconfig, context


def run(work: Coroutine[Any, Any, None]) -> int:
    """Run a command. Return its exit code."""
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        return 130
    except Failure as failure:
        return print_error(str(failure), failure.code)
    except (KubeconfigError, ApiError, ClientError, OSError) as error:
        return print_error(str(error))
    except TimeoutError:
        return print_error("the server did not answer in time")
    return 0


_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h)")
_SECONDS_OF = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration_s(text: str) -> float:
    """Return the seconds of a Go duration: 30s, 1m30s, 500ms; 0 is 0. Raises ArgumentTypeError."""
    parts = _DURATION.findall(text)
    if not text or text not in {"0", "".join(number + unit for number, unit in parts)}:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write it as in 30s or 1m30s")
    return sum(float(number) * _SECONDS_OF[unit] for number, unit in parts)


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table with aligned columns, three spaces apart as in kubectl."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "   ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def say(text: str) -> None:
    """Print a line on standard output."""
    sys.stdout.write(text + "\n")


def warn(text: str) -> None:
    """Print a warning on standard error, after pending output; it does not change the exit code."""
    sys.stdout.flush()
    sys.stderr.write(f"Warning: {text}\n")


def print_error(text: str, code: int = 1) -> int:
    """Print an error on standard error. Return the exit code."""
    sys.stdout.flush()
    sys.stderr.write(f"Error: {text}\n")
    return code
