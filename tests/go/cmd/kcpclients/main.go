// Command kcpclients is kcp's own cluster-aware clients on a site: one client set for all workspaces through the front
// proxy, and one for each shard, whose lists and watches go over all of its workspaces.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"atoll.dev/tests/internal/checks"
	"atoll.dev/tests/internal/sea"
	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	applyapis "github.com/kcp-dev/sdk/client/applyconfiguration/apis/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	exportName = "buoys.sea.example.com"
	schemaName = "v1." + exportName
	marked     = "sea.example.com/marked"
)

func main() {
	checks.Main(connect, []checks.Check[*site]{
		{Name: "workspaces", Run: growAll},
		{Name: "logical clusters", Run: readsLogicalClusters},
		{Name: "export", Run: exportBuoys},
		{Name: "bindings", Run: bindAll},
		{Name: "endpoints", Run: readsEndpoints},
		{Name: "older version", Run: readsOlderVersion},
		{Name: "updates", Run: updatesAll},
		{Name: "wildcard list", Run: listsEveryShard},
		{Name: "wildcard watch", Run: watchesEveryShard},
		{Name: "shards", Run: readsShards},
		{Name: "discovery", Run: discovers},
		{Name: "conflict", Run: conflicts},
		{Name: "delete", Run: deletesOne},
	})
}

// growAll makes the provider's workspace on the first shard and a consumer on each.
func growAll(ctx context.Context, s *site) (any, error) {
	var err error
	if s.provider, err = s.grow(ctx, "provider", s.shards[0]); err != nil {
		return nil, err
	}
	for _, shard := range s.shards {
		made, err := s.grow(ctx, "on-"+shard, shard)
		if err != nil {
			return nil, err
		}
		s.consumers = append(s.consumers, made)
	}
	return len(s.consumers), nil
}

// readsLogicalClusters compares each workspace's own LogicalCluster with its Workspace.
func readsLogicalClusters(ctx context.Context, s *site) (any, error) {
	for _, at := range append([]place{s.provider}, s.consumers...) {
		clusters := s.kcp.Cluster(at.path).CoreV1alpha1().LogicalClusters()
		found, err := clusters.Get(ctx, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if found.Spec.Owner == nil {
			return nil, fmt.Errorf("%s: no owner", at.path)
		}
		err = errors.Join(
			checks.Expect("cluster", logicalcluster.From(found), at.cluster),
			checks.Expect("path", found.Annotations[core.LogicalClusterPathAnnotationKey], at.path.String()),
			checks.Expect("owner", found.Spec.Owner.Name, at.path.Base()),
			checks.Expect("phase", found.Status.Phase, corev1alpha1.LogicalClusterPhaseReady),
		)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at.path, err)
		}
	}
	return nil, nil
}

// exportBuoys makes the schema by a typed create and the export by an apply configuration.
func exportBuoys(ctx context.Context, s *site) (any, error) {
	definition := sea.Definition().Spec
	version := definition.Versions[0]
	shape, err := json.Marshal(version.Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	schema := &apisv1alpha1.APIResourceSchema{
		ObjectMeta: metav1.ObjectMeta{Name: schemaName},
		Spec: apisv1alpha1.APIResourceSchemaSpec{
			Group: definition.Group, Names: definition.Names, Scope: definition.Scope,
			Versions: []apisv1alpha1.APIResourceVersion{{
				Name: version.Name, Served: true, Storage: true, Schema: runtime.RawExtension{Raw: shape},
				Subresources: *version.Subresources,
			}},
		},
	}
	mine := s.kcp.Cluster(s.provider.path)
	if _, err := mine.ApisV1alpha1().APIResourceSchemas().Create(ctx, schema, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	storage := applyapis.ResourceSchemaStorage().WithCRD(apisv1alpha2.ResourceSchemaStorageCRD{})
	offer := applyapis.APIExport(exportName).WithSpec(applyapis.APIExportSpec().WithResources(
		applyapis.ResourceSchema().WithName("buoys").WithGroup(definition.Group).WithSchema(schemaName).WithStorage(storage),
	))
	exports := mine.ApisV1alpha2().APIExports()
	options := metav1.ApplyOptions{FieldManager: "kcpclients", Force: true}
	if _, err := exports.Apply(ctx, offer, options); err != nil {
		return nil, err
	}
	found, err := awaited(ctx, "identity", func() (*apisv1alpha2.APIExport, bool, error) {
		found, err := exports.Get(ctx, exportName, metav1.GetOptions{})
		return found, err == nil && conditions.IsTrue(found, apisv1alpha2.APIExportIdentityValid), err
	})
	if err != nil {
		return nil, err
	}
	return nil, checks.Expect("length of the identity", len(found.Status.IdentityHash), 64)
}

func bindAll(ctx context.Context, s *site) (any, error) {
	for _, at := range s.consumers {
		found, err := s.bind(ctx, at)
		if err != nil {
			return nil, err
		}
		err = errors.Join(
			checks.Expect("bound resources", len(found.Status.BoundResources), 1),
			checks.Expect("export's cluster", found.Status.APIExportClusterName, s.provider.cluster.String()),
		)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at.path, err)
		}
	}
	return nil, nil
}

// readsEndpoints waits until the slice names each shard that binds.
func readsEndpoints(ctx context.Context, s *site) (any, error) {
	slices := s.kcp.Cluster(s.provider.path).ApisV1alpha1().APIExportEndpointSlices()
	found, err := awaited(ctx, "endpoints", func() (*apisv1alpha1.APIExportEndpointSlice, bool, error) {
		found, err := slices.Get(ctx, exportName, metav1.GetOptions{})
		return found, err == nil && len(found.Status.APIExportEndpoints) == len(s.shards), err
	})
	if err != nil {
		return nil, err
	}
	return len(found.Status.APIExportEndpoints), nil
}

// readsOlderVersion reads the export as v1alpha1.
func readsOlderVersion(ctx context.Context, s *site) (any, error) {
	exports := s.kcp.Cluster(s.provider.path).ApisV1alpha1().APIExports()
	found, err := exports.Get(ctx, exportName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if len(found.Spec.LatestResourceSchemas) != 1 {
		return nil, fmt.Errorf("schemas: %v", found.Spec.LatestResourceSchemas)
	}
	return nil, checks.Expect("schema", found.Spec.LatestResourceSchemas[0], schemaName)
}

// listsEveryShard finds at each shard its own consumer's binding among all workspaces', and no other shard's.
func listsEveryShard(ctx context.Context, s *site) (any, error) {
	for _, at := range s.consumers {
		found, err := s.masters[at.shard].ApisV1alpha2().APIBindings().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		seen := map[logicalcluster.Name]bool{}
		for index := range found.Items {
			if found.Items[index].Name == exportName {
				seen[logicalcluster.From(&found.Items[index])] = true
			}
		}
		for _, other := range s.consumers {
			if err := checks.Expect("binding of "+other.shard+" at "+at.shard, seen[other.cluster], other == at); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// watchesEveryShard watches the LogicalClusters of each shard while one of them changes.
func watchesEveryShard(ctx context.Context, s *site) (any, error) {
	for _, at := range s.consumers {
		clusters := s.masters[at.shard].CoreV1alpha1().LogicalClusters()
		listed, err := clusters.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		events, err := clusters.Watch(ctx, metav1.ListOptions{ResourceVersion: listed.ResourceVersion})
		if err != nil {
			return nil, err
		}
		if err := s.mark(ctx, at); err != nil {
			return nil, err
		}
		err = sees(ctx, events, at)
		events.Stop()
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// mark puts an annotation on the LogicalCluster of a workspace, through the proxy.
func (s *site) mark(ctx context.Context, at place) error {
	clusters := s.kcp.Cluster(at.path).CoreV1alpha1().LogicalClusters()
	return checks.Until(ctx, "mark", func() (bool, error) {
		found, err := clusters.Get(ctx, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		found.Annotations[marked] = at.shard
		changed, err := clusters.Update(ctx, found, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		// The types lack a field of the spec, which is kept.
		return true, checks.Expect("generation", changed.Generation, found.Generation)
	})
}

func sees(ctx context.Context, events watch.Interface, at place) error {
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				return errors.New("the watch ended")
			}
			found, right := event.Object.(*corev1alpha1.LogicalCluster)
			if right && logicalcluster.From(found) == at.cluster && found.Annotations[marked] == at.shard {
				return nil
			}
		case <-ctx.Done():
			return errors.New("never came: the change of " + at.path.String())
		}
	}
}

// readsShards reads the Shard of each, which lies in root.
func readsShards(ctx context.Context, s *site) (any, error) {
	root := s.masters[corev1alpha1.RootShard].Cluster(core.RootCluster.Path())
	for _, name := range s.shards {
		found, err := root.CoreV1alpha1().Shards().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if found.Spec.BaseURL == "" || found.Spec.VirtualWorkspaceURL == "" {
			return nil, fmt.Errorf("%s has no URLs: %+v", name, found.Spec)
		}
	}
	return nil, nil
}

// discovers asks a consumer which groups it serves.
func discovers(ctx context.Context, s *site) (any, error) {
	for _, at := range s.consumers {
		groups, err := s.kcp.Cluster(at.path).Discovery().ServerGroups()
		if err != nil {
			return nil, err
		}
		served := map[string]bool{}
		for _, group := range groups.Groups {
			served[group.Name] = true
		}
		for _, name := range []string{sea.Group.Group, "apis.kcp.io", "core.kcp.io", "tenancy.kcp.io"} {
			if !served[name] {
				return nil, fmt.Errorf("%s does not serve %s", at.path, name)
			}
		}
	}
	return nil, nil
}

// conflicts creates a Workspace of a name that is taken, and one of a type that does not exist.
func conflicts(ctx context.Context, s *site) (any, error) {
	workspaces := s.kcp.Cluster(s.home).TenancyV1alpha1().Workspaces()
	twice := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: s.consumers[0].path.Base()}}
	if _, err := workspaces.Create(ctx, twice, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("a name that is taken gave %v", err)
	}
	strange := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: "strange"},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "nosuch", Path: "root"}},
	}
	if _, err := workspaces.Create(ctx, strange, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("a type that does not exist gave %v", err)
	}
	return nil, nil
}

// deletesOne deletes the last consumer, and waits until the proxy serves it no more and the slice has forgotten it.
func deletesOne(ctx context.Context, s *site) (any, error) {
	gone := s.consumers[len(s.consumers)-1]
	workspaces := s.kcp.Cluster(s.home).TenancyV1alpha1().Workspaces()
	begun := time.Now()
	if err := workspaces.Delete(ctx, gone.path.Base(), metav1.DeleteOptions{}); err != nil {
		return nil, err
	}
	err := checks.Until(ctx, gone.path.String()+" is gone", func() (bool, error) {
		_, err := workspaces.Get(ctx, gone.path.Base(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return nil, err
	}
	err = checks.Until(ctx, "nobody is led there", func() (bool, error) {
		_, err := s.kcp.Cluster(gone.path).CoreV1alpha1().LogicalClusters().Get(ctx, "cluster", metav1.GetOptions{})
		return apierrors.IsForbidden(err) || apierrors.IsNotFound(err), nil
	})
	return time.Since(begun).Round(time.Millisecond).String(), err
}
