"""What the kubectl plug-ins share: flags, running a coroutine, telling failures.

`ws` and `create_workspace` are called through here. Invariant: whatever goes wrong with arguments, kubeconfig, network
or server becomes one line on standard error and an exit code, never a traceback.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from atoll.machinery.client.kubeconfig import Kubeconfig, KubeconfigError
from atoll.machinery.meta.status import ApiError
from atoll.machinery.wire.incoming import ClientError


class Failure(Exception):
    """What could not be done, in one sentence for the person who asked."""


def common_flags() -> argparse.ArgumentParser:
    """Flags of every plug-in, by kubectl's names."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="the kubeconfig to use")
    parser.add_argument("--context", default="", metavar="NAME", help="the context to start from")
    return parser


def loaded(options: argparse.Namespace) -> tuple[Kubeconfig, str]:
    """The kubeconfig that the flags name, and the context to start from. Raises KubeconfigError, Failure."""
    kubeconfig = Kubeconfig.load(options.kubeconfig)
    context = options.context or kubeconfig.current
    if not context:
        raise Failure(f"the kubeconfig {kubeconfig.path} has no current context")
    return kubeconfig, context


def run(work: Coroutine[Any, Any, None]) -> int:
    """Run a command; gives its exit code."""
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        return 130
    except (Failure, KubeconfigError, ApiError, ClientError, OSError) as error:
        return refused(str(error))
    except TimeoutError:
        return refused("the server did not answer in time")
    return 0


def say(text: str) -> None:
    """A line on standard output."""
    sys.stdout.write(text + "\n")


def warn(text: str) -> None:
    """A line on standard error that does not change the exit code."""
    sys.stderr.write(f"Warning: {text}\n")


def refused(text: str, code: int = 1) -> int:
    """Tell what went wrong; gives the exit code."""
    sys.stderr.write(f"Error: {text}\n")
    return code
