"""`atoll edge-controllers`: reads the settings and runs the controllers until stopped.

Called by `main`; `edge.process` does the work. Invariant: an error that prevents the start ends the process with one
line on standard error and exit code 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.cli.atoll import runner
from atoll.edge import process
from atoll.edge.config import EdgeControllersConfig
from atoll.machinery.client.kubeconfig import KubeconfigError


def run(arguments: Sequence[str]) -> int:
    """Run the controllers. Return the exit code."""
    return runner.serve(EdgeControllersConfig, arguments, "atoll edge-controllers", process.start, (KubeconfigError,))
