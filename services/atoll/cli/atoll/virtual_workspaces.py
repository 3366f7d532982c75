"""`atoll virtual-workspaces`: serves views that Python modules define, as a process of a site.

Called by `main`; `virtualworkspace_sdk` does the work. Invariant: an error that prevents serving ends the process with
one line on standard error and exit code 1.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Collection, Sequence
from typing import ClassVar

from atoll.cli.atoll import runner
from atoll.cli.atoll.output import fail
from atoll.machinery.client.kubeconfig import KubeconfigError
from atoll.machinery.process import config as settings
from atoll.machinery.process.config import Subjects
from atoll.virtualworkspace_sdk import View, ViewConfig, serve


class VirtualWorkspacesConfig(ViewConfig, frozen=True, kw_only=True):
    """Settings of `atoll virtual-workspaces`: those of a view's program, and the views."""

    views: str = ""

    SUMMARY: ClassVar[str] = "Serve virtual workspaces of an APIExport that Python modules define."
    SUBJECTS: ClassVar[Subjects] = {
        "Views": {"views": "comma separated views as module:name; modules are found on PYTHONPATH"},
        **ViewConfig.SUBJECTS,
    }
    COMMON: ClassVar[Collection[str]] = ("views", *ViewConfig.COMMON)


def load(names: str) -> list[View]:
    """Return the views of a setting. Raises ValueError."""
    found = []
    for text in settings.comma_separated(names):
        module, _, name = text.partition(":")
        try:
            view = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"views: {text}: {error}") from error
        if not isinstance(view, View):
            raise ValueError(f"views: {text} is no View")
        found.append(view)
    if not found:
        raise ValueError("views must not be empty")
    return found


def run(arguments: Sequence[str]) -> int:
    """Serve. Return the exit code."""
    try:
        config, only_print = settings.load(VirtualWorkspacesConfig, arguments, os.environ, "atoll virtual-workspaces")
        views = [] if only_print else load(config.views)
    except (settings.ConfigError, ValueError) as error:
        return fail(str(error))
    if only_print:
        return runner.print_settings(config)
    return runner.run(serve(views, config), config, (KubeconfigError, ValueError))
