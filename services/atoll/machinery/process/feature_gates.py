"""The value of `--feature-gates`: parsed, checked, and compared with the gates that have an effect in a process.

Called by the configurations of a shard and of a front proxy. Invariant: an unknown gate is refused, and a gate of kcp
or Kubernetes without an effect is accepted and reported, so that kcp's command lines can be reused and never mislead.
"""

from __future__ import annotations

from collections.abc import Collection

import structlog

from atoll.machinery.process.config import comma_separated

log = structlog.get_logger()

#: kcp's feature gates and the Kubernetes gates that kcp documents.
ALL_GATES = (
    "WorkspaceMounts",
    "CacheAPIs",
    "EnableDeprecatedAPIExportVirtualWorkspacesUrls",
    "WorkspaceAuthentication",
    "LogicalClusterMigration",
    "StorageVersionAPI",
    "GlobalServiceAccount",
    "WatchList",
    "ListFromCacheSnapshot",
)
#: Further gates of kube-apiserver, which kcp accepts too. None has an effect in Atoll.
KUBERNETES_GATES = frozenset(
    [
        "AggregatedDiscoveryRemoveBetaType",
        "AllAlpha",
        "AllBeta",
        "AllowParsingUserUIDFromCertAuth",
        "AllowUnsafeMalformedObjectDeletion",
        "AnonymousAuthConfigurableEndpoints",
        "APIResponseCompression",
        "APIServerIdentity",
        "APIServerTracing",
        "APIServingWithRoutine",
        "AuthorizeNodeWithSelectors",
        "AuthorizeWithSelectors",
        "BtreeWatchCache",
        "CBORServingAndStorage",
        "ConcurrentWatchObjectDecode",
        "ConsistentListFromCache",
        "ContextualLogging",
        "CoordinatedLeaderElection",
        "CRDValidationRatcheting",
        "CustomResourceFieldSelectors",
        "DeclarativeValidation",
        "DeclarativeValidationTakeover",
        "DetectCacheInconsistency",
        "ExternalServiceAccountTokenSigner",
        "InformerResourceVersion",
        "KMSv1",
        "ListFromCacheSnapshot",
        "LoggingAlphaOptions",
        "LoggingBetaOptions",
        "MutatingAdmissionPolicy",
        "OpenAPIEnums",
        "OrderedNamespaceDeletion",
        "RemoteRequestHeaderUID",
        "ResilientWatchCacheInitialization",
        "RetryGenerateName",
        "SeparateCacheWatchRPC",
        "ServiceAccountNodeAudienceRestriction",
        "ServiceAccountTokenJTI",
        "ServiceAccountTokenNodeBinding",
        "ServiceAccountTokenNodeBindingValidation",
        "ServiceAccountTokenPodNodeInfo",
        "SizeBasedListCostEstimate",
        "StorageVersionHash",
        "StorageVersionMigrator",
        "StreamingCollectionEncodingToJSON",
        "StreamingCollectionEncodingToProtobuf",
        "StrictCostEnforcementForVAP",
        "StrictCostEnforcementForWebhooks",
        "StructuredAuthenticationConfiguration",
        "StructuredAuthenticationConfigurationEgressSelector",
        "StructuredAuthorizationConfiguration",
        "TokenRequestServiceAccountUIDValidation",
        "UnauthenticatedHTTP2DOSMitigation",
        "UnknownVersionInteroperabilityProxy",
        "UserNamespacesSupport",
        "ValidatingAdmissionPolicy",
        "WatchCacheInitializationPostStartHook",
        "WatchFromStorageWithoutResourceVersion",
    ]
)


class UnknownGate(ValueError):
    """A feature gate that does not exist, or a value that is neither true nor false."""


def parse(text: str) -> dict[str, bool]:
    """Parse comma separated `Gate=true|false`. Raises UnknownGate."""
    gates: dict[str, bool] = {}
    for part in comma_separated(text):
        name, _, value = part.partition("=")
        if name not in ALL_GATES and name not in KUBERNETES_GATES:
            raise UnknownGate(f"unrecognized feature gate: {name}")
        if value not in {"true", "false"}:
            raise UnknownGate(f"invalid value of {name}={value}, err: it must be true or false")
        gates[name] = value == "true"
    return gates


def restricted_to(text: str, effective: Collection[str]) -> str:
    """Return the gates of `text` that are among `effective`, as text. Raises UnknownGate."""
    return ",".join(f"{gate}={str(on).lower()}" for gate, on in parse(text).items() if gate in effective)


def description(effective: Collection[str]) -> str:
    """The help text of `--feature-gates` in a process where the gates `effective` have an effect."""
    others = ", ".join(gate for gate in ALL_GATES if gate not in effective)
    return (
        f"comma separated Gate=true|false of {', '.join(effective)}. Accepted without any effect: {others},"
        " and those of kube-apiserver"
    )


def warn_without_effect(text: str, effective: Collection[str], process: str) -> None:
    """Log one warning for each gate in `text` that has no effect in this `process`. Raises UnknownGate."""
    for gate in parse(text):
        if gate not in effective:
            log.warning("feature gate has no effect", gate=gate, process=process)
