"""Configured admission of a shard or worker: its policies and webhooks."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from atoll.machinery.apiserver.admission.configured.configured_admission import ConfiguredAdmission, Evaluators
from atoll.machinery.apiserver.admission.configured.metrics import AdmissionMetrics
from atoll.machinery.apiserver.admission.configured.registry import Registry
from atoll.machinery.apiserver.admission.policies.metrics import PolicyMetrics
from atoll.machinery.apiserver.admission.webhooks.caller import WebhookCaller
from atoll.machinery.apiserver.admission.webhooks.metrics import WebhookMetrics
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.egress import Egress


def configured_admission(
    catalogs: Catalogs, authorizer: Authorizer, egress: Egress, registry: CollectorRegistry
) -> ConfiguredAdmission:
    """Return the admission of policies and webhooks as they are stored."""
    validating, mutating = PolicyMetrics(registry, "validating"), PolicyMetrics(registry, "mutating")

    def evaluators() -> Evaluators:
        """Import the language on first use."""
        from atoll.machinery.apiserver.admission.expressions.webhook_conditions import WebhookConditions
        from atoll.machinery.apiserver.admission.policies.dispatch import ValidatingPolicies
        from atoll.machinery.apiserver.admission.policies.mutating import MutatingPolicies
        from atoll.machinery.apiserver.admission.policies.parameters import Parameters

        authorize, parameters = authorizer.authorize, Parameters(catalogs)
        return Evaluators(
            WebhookConditions(authorize),
            ValidatingPolicies(parameters, authorize, validating),
            MutatingPolicies(parameters, authorize, mutating),
        )

    caller = WebhookCaller(egress, WebhookMetrics(registry))
    return ConfiguredAdmission(Registry(catalogs), evaluators, caller.ask, AdmissionMetrics(registry))
