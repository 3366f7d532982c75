"""What makes a policy or a binding inapplicable."""

from __future__ import annotations


class ConfigurationError(Exception):
    """A policy or binding cannot be applied; `str()` is Kubernetes' reason."""
