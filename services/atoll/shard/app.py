"""The composition root of a shard: builds every component, and contains no rules.

    store → kinds → bootstrap → facts, admission → authorizer, authenticator → pipeline → controllers

`standalone` and `worker` build one. Bootstrap runs before the first request is accepted, under the loopback identity
and through the same planning and admission as any write.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector

from atoll.controllers.exports.cached_copies import CachedCopies
from atoll.controllers.exports.kept_copies import KeptCopies
from atoll.controllers.exports.kubernetes_schemas import KubernetesSchemas
from atoll.controllers.exports.policy_parameters import PolicyParameters
from atoll.controllers.kubernetes.cluster_objects import ClusterObjects
from atoll.controllers.kubernetes.storage_protection import StorageProtection
from atoll.controllers.registry import controllers
from atoll.controllers.shard_calls import ShardCaller
from atoll.controllers.workspaces.late_homes import LateHomes
from atoll.controllers.workspaces.remote_routes import RemoteRoutes
from atoll.controllers.workspaces.root_routes import RootRoutes
from atoll.machinery.apiserver.admission.chain import Admission
from atoll.machinery.apiserver.authentication import event_tokens
from atoll.machinery.apiserver.authentication.oidc import issuers
from atoll.machinery.apiserver.authentication.remote_owners import RemoteOwners
from atoll.machinery.apiserver.authentication.service_account_keys import jwks, openid_configuration
from atoll.machinery.apiserver.authorization.attributes import Attributes
from atoll.machinery.apiserver.authorization.authorizer import Authorizer
from atoll.machinery.apiserver.call.call import View
from atoll.machinery.apiserver.catalog.catalogs import Catalogs
from atoll.machinery.apiserver.conversion import Conversions
from atoll.machinery.apiserver.federation.cluster_searches import ClusterSearches, Seek
from atoll.machinery.apiserver.federation.federated_view import federated
from atoll.machinery.apiserver.federation.pathindex import PathIndex
from atoll.machinery.apiserver.serving.audit import AuditLog
from atoll.machinery.apiserver.serving.audit_metrics import AuditMetrics
from atoll.machinery.apiserver.serving.documents import Documents, StaticDocuments
from atoll.machinery.apiserver.serving.health import Health, Notice
from atoll.machinery.apiserver.serving.observe import RequestMetrics, RequestObserver
from atoll.machinery.apiserver.serving.pipeline import Handlers, RequestPipeline, VirtualWorkspaceHandler
from atoll.machinery.apiserver.serving.resources import Resources, Special
from atoll.machinery.apiserver.serving.reviews import Reviews
from atoll.machinery.apiserver.serving.routes import routes
from atoll.machinery.apiserver.serving.version import version
from atoll.machinery.apiserver.serving.watches import Watches
from atoll.machinery.apiserver.writing.commit import WriteService
from atoll.machinery.apiserver.writing.loopback import Loopback
from atoll.machinery.control.manager import ControllerMetrics, Manager, Positions
from atoll.machinery.egress import Egress, Policy, policy
from atoll.machinery.egress.forward import Forwarder
from atoll.machinery.kcp.apis import kubernetes_export, root_exports
from atoll.machinery.kcp.bootstrap import objects as system
from atoll.machinery.kcp.kinds.system_kinds import system_kinds
from atoll.machinery.kcp.sharding.stream_policy import KcpStreamPolicy
from atoll.machinery.kcp.workspaces.workspace import Shard as ShardFacts
from atoll.machinery.meta import times
from atoll.machinery.meta.names import ROOT, ObjectKey
from atoll.machinery.meta.objects import Object, decode
from atoll.machinery.meta.types import API_BINDINGS, LOGICAL_CLUSTERS
from atoll.machinery.meta.wellknown import CORE_GROUP, REGION, TENANCY_GROUP
from atoll.machinery.process import feature_gates, logging
from atoll.machinery.process.file_watch import ClientFiles, client_files, renew_clients
from atoll.machinery.process.tls import public_context
from atoll.machinery.storage.contract import Scope, Store
from atoll.machinery.storage.pages import each_record
from atoll.machinery.stream.connection import Access
from atoll.machinery.stream.event_keys import EventKeys
from atoll.machinery.stream.tenants.key_files import read_subscription_keys
from atoll.replication.follower import Follower, FollowerOptions
from atoll.replication.replica_writer import MarkStore
from atoll.replication.root_types import RootTypes
from atoll.replication.shard_keys import announced_keys
from atoll.shard import bootstrap, service_account_keys
from atoll.shard.admission.configured import configured_admission
from atoll.shard.admission.plugins import plugins
from atoll.shard.authentication import Credentials, ExternalIssuers, build_authentication
from atoll.shard.config import NEEDED, ShardConfig
from atoll.shard.escalation import Escalation
from atoll.shard.forwarding.mounts import Mounts
from atoll.shard.forwarding.remote_shards import RemoteShards
from atoll.shard.forwarding.virtual_discovery import VirtualDiscovery
from atoll.shard.forwarding.virtual_resources import ShardObject, VirtualResources
from atoll.shard.handlers.home_claims import HomeClaims
from atoll.shard.handlers.homes import HOME, Homes
from atoll.shard.handlers.logicalcluster_creates import LogicalClusterCreates
from atoll.shard.handlers.virtual_creates import virtual_creates
from atoll.shard.membership import root_shard
from atoll.shard.membership.registration import ClientRegistry, LoopbackRegistry, Registrar, Registry
from atoll.shard.membership.remote_service_accounts import remote_accounts
from atoll.shard.membership.root_shard import RootShard, peers_of
from atoll.shard.shard_metrics import ShardMetrics
from atoll.shard.subscriptions.access_check import AccessCheck
from atoll.shard.subscriptions.commands import Ask
from atoll.shard.subscriptions.follow import Followed
from atoll.shard.subscriptions.follow_service import FollowService
from atoll.shard.subscriptions.keeper import Keeper, Settings
from atoll.shard.subscriptions.limits import limits_of
from atoll.shard.subscriptions.metrics import SubscriptionMetrics
from atoll.shard.subscriptions.remote_follow import OtherShardsEvents
from atoll.shard.subscriptions.requests import Requests
from atoll.shard.subscriptions.view import SERVICE as EVENTS_SERVICE
from atoll.shard.subscriptions.view import EventsView
from atoll.shard.virtual_workspaces import cache_view, virtual_workspaces
from atoll.tenancy.lookups import Lookups, SystemIdentities
from atoll.tenancy.placement import ShardPlacement
from atoll.virtualworkspaces.cache import CacheView
from atoll.virtualworkspaces.edge.mailbox import MailboxView
from atoll.virtualworkspaces.edge.mailbox_metrics import MailboxMetrics

log = structlog.get_logger()

MANAGER = "atoll"
#: Networks that other shards may be in.
_ANYWHERE = "0.0.0.0/0,::/0"
#: kcp's feature gate for URLs in the status of APIExports; off by default, as in kcp.
_DEPRECATED_URLS = "EnableDeprecatedAPIExportVirtualWorkspacesUrls"


class ShardApp:
    """One shard, built over an open store. `url` is its listen address (no trailing slash); flags may override it.

    `origin` is the data of the root shard; None reads what an earlier start stored.
    """

    def __init__(
        self, config: ShardConfig, store: Store, credentials: Credentials, url: str, origin: RootShard | None = None
    ) -> None:
        self.config, self.store, self.credentials = config, store, credentials
        #: URL of this shard for other components and, without a front proxy, for clients.
        self.url = config.shard_base_url or url
        #: What `seek` calls, once it is known: the follower's, in a worker the writer's.
        self.seeker: Seek | None = None
        #: What takes commands about subscriptions, once it is known: those of `subscriptions`, in a worker the writer.
        self.asker: Ask | None = None
        self.registry = CollectorRegistry()
        self.metrics = ShardMetrics(self.registry)
        ProcessCollector(registry=self.registry)
        self.audit = AuditLog(config.audit_log_path) if config.audit_log_path else None
        if self.audit is not None:
            AuditMetrics(self.audit, self.registry)
        self.health = Health(store)
        self.health.add("shutdown", lambda: None)
        origin = origin or root_shard.root_shard_of(config, store)
        identities = origin.identities
        self.identities = SystemIdentities(
            tenancy=root_exports.exported_type("workspaces.tenancy.kcp.io", identities).identity,
            topology=root_exports.exported_type("partitions.topology.kcp.io", identities).identity,
            shards=root_exports.exported_type("shards.core.kcp.io", identities).identity,
        )
        self._system = self._bootstrap_options(origin)
        searches = ClusterSearches(self.seek, "the shard of the workspace is not known yet") if self._seeks else None
        self.paths = PathIndex(self.identities.workspaces, searches)
        self.facts = Lookups(self.paths, self.identities, config.default_replication_level)
        self.authorizer = Authorizer()
        self.egress = Egress(_egress_policy(config, url), self.registry)
        self._shard_egress = Egress(policy(_ANYWHERE))
        #: Clients of others whose certificates are read again when their files change.
        self.client_files: list[ClientFiles] = []
        self.peers = peers_of(config, self._find_shard, self.client_files)
        self._root_target = root_shard.renewable_root_target(config, self.client_files) if config.joins else None
        self.identity = build_authentication(config, credentials, self.authorizer, self._external_issuers())
        self._kubernetes = identities[kubernetes_export.EXPORT].hash
        catalogs = Catalogs(system_kinds(), self._kubernetes)
        self.placement = ShardPlacement(self.facts, config.shard_name, reaches=self.peers is not None)
        own = plugins(self.facts, self._may, self._may_here, Escalation(self.authorizer), catalogs, self.placement)
        admission = Admission(own, configured_admission(catalogs, self.authorizer, self.egress, self.registry))
        self.core = WriteService(store, catalogs, admission, self._conversions())
        self.loopback = Loopback(self.core, MANAGER)
        self.watches = Watches(self.core)

    def _find_shard(self, name: str) -> Object | None:
        """Return a Shard object of root, or its replica; None if absent."""
        key = ObjectKey(self.identities.shard_objects, ROOT, "", name)
        with self.store.snapshot() as snapshot:
            record = federated(snapshot).get(key)
        return decode(record.value) if record is not None else None

    def _conversions(self) -> Conversions:
        return Conversions(self.egress, self.registry, self.config.transformation_timeout_s)

    def _external_issuers(self) -> ExternalIssuers:
        """Return the issuers of tokens other than this shard."""
        audiences, file = service_account_keys.issuers(self.config).audiences, self.config.authentication_config
        found = issuers.configured(file, audiences, self.egress) if file else None
        workspaces = accounts = owners = None
        if self._is_on("WorkspaceAuthentication"):
            workspaces = issuers.of_workspaces(self.facts.workspace_type, self._tenancy, self.egress)
        if self._is_on("GlobalServiceAccount"):
            accounts = remote_accounts(self.peers)
            owners = RemoteOwners(self.seek) if self._seeks else None
        return ExternalIssuers(found, workspaces, accounts, owners)

    @property
    def _seeks(self) -> bool:
        """Whether this shard keeps no row of some clusters of the site."""
        return self.config.in_site and self.config.replicated_workspaces == NEEDED

    async def seek(self, workspace: str) -> Sequence[str]:
        """Have the process that follows other shards learn whose a cluster or path is; see `Follower.seek`."""
        return await self.seeker(workspace) if self.seeker is not None else ()

    def _tenancy(self, view: View) -> str:
        return self.identities.tenancy

    def _is_on(self, gate: str) -> bool:
        return feature_gates.parse(self.config.feature_gates).get(gate, True)

    def _bootstrap_options(self, origin: RootShard) -> system.Options:
        config = self.config
        return system.Options(
            shard=config.shard_name,
            base_url=self.url,
            external_url=self._external_url,
            virtual_workspace_url=config.shard_virtual_workspace_url or self.url,
            identities=origin.identities,
            installation=self.store.identity.shard_uid,
            root_installation=origin.installation if config.joins else "",
            shard_labels=config.labels,
            ca_bundle=self.credentials.ca_pem.decode(),
            now=times.now(),
            home_creators=config.home_creators,
            batteries=config.batteries,
        )

    @property
    def _external_url(self) -> str:
        """URL of the workspaces of this shard for clients."""
        return self.config.shard_external_url or self.url

    def _may(self, view: View, attributes: Attributes) -> bool:
        """Authorize for admission in another cluster: the deep form, as in kcp."""
        return self.authorizer.authorize(view, attributes, deep=True).allowed

    def _may_here(self, view: View, attributes: Attributes) -> bool:
        """Authorize for admission in the request's own cluster."""
        return self.authorizer.authorize(view, attributes).allowed

    def _reviews(self) -> Reviews:
        return Reviews(self.authorizer, self.identity.bearers)

    async def bootstrap(self) -> None:
        """Write the objects that must exist before the first request."""
        written = await bootstrap.apply(self.loopback, system.bootstrap(self._system))
        if not self.config.joins:
            await self.registrar().register()
        await self._load_kinds()
        log.info("bootstrapped", objects=written, shard=self.config.shard_name)

    async def _load_kinds(self) -> None:
        """Load Kubernetes' kinds before controllers ask for them, if a workspace binds them."""
        with self.store.snapshot() as snapshot:
            is_bound = bool(snapshot.labelled(*kubernetes_export.BINDING_LABEL, API_BINDINGS, 1))
        if is_bound:
            await self.core.catalogs.shipped.load()

    def pipeline(self) -> RequestPipeline:
        """Return the request handler of every listener."""
        keys = self.identity.keys
        url = f"{self._external_url}/openid/v1/jwks"
        issuer = partial(openid_configuration, self.identity.issuers.names[0], url, keys)
        fixed = StaticDocuments(version(), issuer, partial(jwks, keys))
        requests = logging.resolved_requests(self.config.log_requests, self.config.log_format)
        observer = RequestObserver(RequestMetrics(self.registry), self.audit, requests)
        trust = self._shard_trust()
        box = MailboxView(self.core.catalogs, self.authorizer, self.store, self.identity.authenticator)
        MailboxMetrics(box.loop_time.stats, box.allowances, self.registry)
        services = virtual_workspaces(
            self.core, self.authorizer, self.facts, self._cache_view(), box, self._remote_shards(trust)
        )
        services[EVENTS_SERVICE] = EventsView(
            self.facts.cluster_of, self._access(), lambda: self.asker, self._follows()
        )
        virtual = self._virtual_resources(services, trust)
        resources = Resources(self.core, self._specials(), self._named(), self.watches, virtual)
        verbs = VirtualDiscovery(self.store, virtual)
        documents = Documents(self.core.catalogs, fixed, self.health.endpoints, self.registry, verbs, self.metrics.text)
        return RequestPipeline(
            self.store,
            self.paths,
            self.identity.authenticator,
            self.authorizer,
            observer,
            Handlers(routes(resources, documents), services, self._mounts()),
        )

    def _specials(self) -> dict[tuple[str, str, str], Special]:
        """Return the handlers of creates that store several objects or none."""
        creates = LogicalClusterCreates(self.loopback, self.facts, self._shard())
        return {
            **virtual_creates(self.identity, self._reviews(), self.core),
            (CORE_GROUP, "logicalclusters", ""): creates.create,
        }

    def _named(self) -> dict[tuple[str, str, str], Special]:
        """Return the handlers of object names resolved per caller (`~` is the caller's home)."""
        if not self.config.enable_home_workspaces:
            return {}
        claims = HomeClaims(self.store, self.placement, self.seek)
        homes = Homes(self.loopback, self.facts, self._shard(), self.placement, claims, self.peers)
        return {(TENANCY_GROUP, "workspaces", HOME): homes.serve}

    def _shard(self) -> ShardFacts:
        return ShardFacts(
            self.config.shard_name,
            self._external_url,
            self.credentials.ca_pem.decode(),
            virtual_workspace_url=self._system.virtual_workspace_url,
        )

    def _mounts(self) -> Mounts | None:
        if not self._is_on("WorkspaceMounts"):
            return None
        config = self.config
        files = config.mount_proxy_client_cert_file, config.mount_proxy_client_key_file, config.mount_proxy_ca_file
        trust = self._trust(*files) if any(files) else None
        forwarder = cache(lambda: Forwarder(self.egress, trust or public_context()))
        return Mounts(self.paths, forwarder, self._external_url, authenticates=bool(files[0]))

    def _remote_shards(self, trust: ssl.SSLContext | None) -> RemoteShards:
        """Return the client of remote virtual workspaces. Addresses come from Shard objects, not from tenants."""
        forwarder = Forwarder(self._shard_egress, trust) if trust is not None else None
        return RemoteShards(self.identities.shard_objects, forwarder, self.watches.open)

    def _cache_view(self) -> CacheView:
        config = self.config
        return cache_view(self.core, config.shard_name, self._system.identities, alone=not config.in_site)

    def _virtual_resources(
        self, services: Mapping[str, VirtualWorkspaceHandler], trust: ssl.SSLContext | None
    ) -> VirtualResources:
        """Return the handler of virtual kinds; without a client certificate it serves only this shard's endpoints."""
        forwarder = Forwarder(self.egress, trust) if trust is not None else None
        shard = ShardObject(self.identities.shard_objects, self.config.shard_name)
        return VirtualResources(
            self.core.catalogs,
            shard,
            services,
            Resources(self.core, {}, {}, self.watches),
            forwarder,
            self.watches.open,
        )

    def _shard_trust(self) -> ssl.SSLContext | None:
        """Return the TLS context for virtual workspaces of other shards; None without a client certificate."""
        config = self.config
        if not config.shard_client_cert_file:
            return None
        files = config.shard_client_cert_file, config.shard_client_key_file, config.shard_virtual_workspace_ca_file
        return self._trust(*files)

    def _trust(self, certificate: str, key: str, authorities: str) -> ssl.SSLContext:
        files = client_files(certificate, key, authorities)
        self.client_files.append(files)
        return files.context

    def registrar(self, keys: EventKeys | None = None) -> Registrar:
        """Return the registrar of this shard's Shard object, which announces its keys. Raises KubeconfigError."""
        registration = system.registration(self._system)
        return Registrar(self.store, self._registry(), registration, Path(self.config.root_directory), keys)

    def _registry(self) -> Registry:
        if self._root_target is not None:
            return ClientRegistry(root_shard.root_client(self._root_target, ROOT, MANAGER))
        return LoopbackRegistry(self.loopback, self.identities.shard_objects)

    async def renew(self) -> None:
        """Read keys and client certificates again when their files change, until cancelled. After `pipeline`."""
        await asyncio.gather(
            renew_clients(self.client_files), service_account_keys.reload(self.config, self.identity.keys)
        )

    async def close(self) -> None:
        """Flush the audit log, and close connections to webhooks and other shards."""
        await self.metrics.close()
        await self.egress.close()
        await self._shard_egress.close()
        if self.peers is not None:
            await self.peers.close()
        if self.audit is not None:
            self.audit.close()

    def follower(self, store: MarkStore, access: Access) -> Follower:
        """Return the follower of the other shards' streams. It runs in the writer's process."""
        types = RootTypes(self.identities.workspaces, self.identities.shard_objects)
        region = self.config.labels.get(REGION, "")
        needed_only = self.config.replicated_workspaces == NEEDED
        options = FollowerOptions(
            access, self.config.shard_name, region, types, needed_only=needed_only, store=store.identity.shard_uid
        )
        follower = Follower(store, options, self.registry)
        self.seeker = follower.seek
        self.health.add("replicated-workspaces", Notice(follower.refusal))
        self.health.add("stream-readers", Notice(follower.contention))
        return follower

    async def ask(self, command: bytes) -> bytes:
        """Answer a command about subscriptions, for API workers. Raises NotImplementedError before `subscriptions`."""
        if self.asker is None:
            raise NotImplementedError("no subscriptions are kept")
        return await self.asker(command)

    def _access(self) -> AccessCheck:
        return AccessCheck(self.core.catalogs, self.authorizer, KcpStreamPolicy().published)

    def _follows(self) -> FollowService:
        """What serves requests to follow events, in the writer's process and in each worker."""
        core, config = self.core, self.config
        others = partial(self.placement.others, core.store)
        elsewhere = OtherShardsEvents(self.peers, others) if self.peers is not None and config.in_site else None
        followed = Followed(core.store, self.watches.open, core.catalogs.builtin(LOGICAL_CLUSTERS), elsewhere)
        return FollowService(followed, self._access(), limits_of(config), alone=not config.in_site)

    def subscriptions(self, keys: EventKeys) -> Keeper:
        """Return the keeper of event subscriptions, which runs in the writer's process. `keys` sign this shard's
        events."""
        config, core = self.config, self.core
        file = config.events_file
        shards = partial(self.placement.others, core.store) if config.in_site else tuple
        settings = Settings(limits_of(config), lambda: read_subscription_keys(file), shards)
        keeper = Keeper(
            core.store, self._access(), self.watches.open, core.catalogs.builtin(LOGICAL_CLUSTERS), settings
        )
        keeper.load()
        issue = partial(event_tokens.issue, self.identity.keys)
        requests = Requests(keeper, issue, lambda: {**self._keys_of_shards(), keeper.shard: keys.announced})
        SubscriptionMetrics(keeper.index, keeper.rates, requests.refusals, self.registry)
        self.asker = requests.ask
        return keeper

    def _keys_of_shards(self) -> dict[str, list[str]]:
        """The keys by which events of each shard of the site are verified."""
        with self.store.snapshot() as snapshot:
            shards = each_record(federated(snapshot), Scope(self.identities.shard_objects, ROOT))
            return {each.key.name: announced_keys(each.value) for each in shards} if self.config.in_site else {}

    def manager(self, positions: Positions, follower: Follower | None = None) -> Manager:
        """Return the controllers of this shard, which run in the writer's process. `follower` feeds replica changes."""
        found = controllers(
            self.loopback,
            self.facts,
            self._shard(),
            self.identity.issuer,
            deprecated_urls=feature_gates.parse(self.config.feature_gates).get(_DEPRECATED_URLS, False),
            peers=self.peers,
        )
        calls = ShardCaller(self.peers) if self.peers is not None else None
        found.append(KubernetesSchemas(self.loopback, system.stamp_of(self._system, ROOT), calls))
        found.append(ClusterObjects(Loopback(self.core, "kube-apiserver"), self._kubernetes, self._external_url))
        found.append(StorageProtection(Loopback(self.core, "storage-protection"), self._kubernetes))
        if follower is not None:
            assert follower.copies is not None, "a shard's"
            found += [
                RemoteRoutes(follower.writer, self.identities.workspaces),
                PolicyParameters(self.loopback, self.facts, self.registry),
                CachedCopies(self.loopback, self.facts, self.config.shard_name),
                KeptCopies(self.store, self.facts, self.config.shard_name, follower.copies),
            ]
            if self.config.joins:
                kind = self.core.catalogs.builtin(LOGICAL_CLUSTERS)
                found.append(LateHomes(Loopback(self.core, "kcp-logicalcluster-owner"), kind, follower))
            else:
                found.append(RootRoutes(follower.writer, self.identities.shard_objects))
        manager = Manager(self.store, positions, found, ControllerMetrics(self.registry))
        if follower is not None:
            follower.set_listener(manager)
        unsynced = "controllers have not listed their keys"
        self.health.add("controllers", lambda: None if manager.synced else unsynced)
        return manager


def _egress_policy(config: ShardConfig, url: str) -> Policy:
    """Return the policy for webhook addresses: never the shard itself, at any of its addresses."""
    port = urlsplit(url).port or config.secure_port
    return policy(config.egress_allow_cidr, ((config.bind_address, port),))
