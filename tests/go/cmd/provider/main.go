// Command provider is an API's owner: it exports buoys from its workspace, and runs a controller of controller-runtime
// on the URL of the endpoint slice, which serves every workspace that binds them.
//
// Run as administrator it is the consumers, too: it makes their workspaces, binds, and looks from there. With the argument
// "workloads" the consumers have Deployments, which the export claims, and the controller makes a buoy for each of them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"

	"atoll.dev/tests/internal/checks"
	"atoll.dev/tests/internal/sea"
	"atoll.dev/tests/internal/wildcard"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const namespace = "default"

var east = client.ObjectKey{Namespace: namespace, Name: "east"}

func main() {
	ctrl.SetLogger(logr.Discard())
	list := []checks.Check[*world]{
		{Name: "export", Run: exportBuoys},
		{Name: "first binding", Run: bindsFirst},
		{Name: "empty", Run: syncsEmpty},
		{Name: "consumers", Run: bindAll},
		{Name: "manager", Run: startManager},
		{Name: "reconcile", Run: reconciles},
		{Name: "update", Run: updatesOne},
		{Name: "later", Run: servesLater},
		{Name: "stranger", Run: refusesStrangers},
		{Name: "unbind", Run: losesOne},
	}
	if os.Args[len(os.Args)-1] == "workloads" {
		list = []checks.Check[*world]{
			{Name: "export", Run: exportForWorkloads},
			{Name: "consumers", Run: bindForWorkloads},
			{Name: "manager", Run: startWorkloads},
			{Name: "reconcile", Run: marksWorkloads},
			{Name: "scale", Run: followsOne},
			{Name: "rejected", Run: leavesTheRejectedAlone},
			{Name: "delete", Run: losesTheMark},
		}
	}
	checks.Main(connect, list)
}

// exportBuoys offers the schema of the definition, with the world's claims.
func exportBuoys(ctx context.Context, w *world) (any, error) {
	definition := sea.Definition().Spec
	version := definition.Versions[0]
	made, err := plain(map[string]any{
		"group": definition.Group, "scope": definition.Scope, "names": definition.Names,
		"versions": []any{map[string]any{
			"name": version.Name, "served": true, "storage": true, "subresources": version.Subresources,
			"schema": version.Schema.OpenAPIV3Schema,
		}},
	})
	if err != nil {
		return nil, err
	}
	if err := w.provider.Create(ctx, object(schemas, "v1."+exportName, made)); err != nil {
		return nil, err
	}
	offer := map[string]any{
		"resources": []any{map[string]any{
			"name": "buoys", "group": sea.Group.Group, "schema": "v1." + exportName,
			"storage": map[string]any{"crd": map[string]any{}},
		}},
		"permissionClaims": []any{w.claim},
	}
	if err := w.provider.Create(ctx, object(exports, exportName, offer)); err != nil {
		return nil, err
	}
	slice, err := settled(ctx, w.provider, slices, exportName, func(*unstructured.Unstructured) bool { return true })
	if err != nil {
		return nil, err
	}
	return nil, checks.Expect("URLs before anybody bound it", len(urls(slice)), 0)
}

// plain turns typed parts into what an unstructured object may hold.
func plain(made map[string]any) (map[string]any, error) {
	data, err := json.Marshal(made)
	if err != nil {
		return nil, err
	}
	found := map[string]any{}
	return found, json.Unmarshal(data, &found)
}

// bindsFirst binds in one workspace, upon which the slice says where the virtual workspace is.
func bindsFirst(ctx context.Context, w *world) (any, error) {
	if err := w.joins(ctx, "c0"); err != nil {
		return nil, err
	}
	slice, err := settled(ctx, w.provider, slices, exportName, func(found *unstructured.Unstructured) bool {
		return len(urls(found)) == 1
	})
	if err == nil {
		w.endpoint = urls(slice)[0]
	}
	return w.endpoint != "", err
}

// joins makes a workspace that binds the export and accepts its claim.
func (w *world) joins(ctx context.Context, name string) error { return w.binds(ctx, name, "Accepted") }

// binds makes a workspace that binds the export and answers its claim.
func (w *world) binds(ctx context.Context, name, answer string) error {
	if err := w.settles(ctx, name); err != nil {
		return err
	}
	answered := map[string]any{"state": answer, "selector": map[string]any{"matchAll": true}}
	maps.Copy(answered, w.claim)
	binding := object(bindings, exportName, map[string]any{
		"reference":        map[string]any{"export": map[string]any{"path": w.path, "name": exportName}},
		"permissionClaims": []any{answered},
	})
	if err := w.members[name].Create(ctx, binding); err != nil {
		return err
	}
	found, err := settled(ctx, w.members[name], bindings, exportName, func(found *unstructured.Unstructured) bool {
		return phase(found) == "Bound"
	})
	w.clusters[name] = found.GetAnnotations()[wildcard.Annotation]
	return err
}

// settles makes a workspace below the provider's and waits until it is ready.
func (w *world) settles(ctx context.Context, name string) error {
	kind := map[string]any{"type": map[string]any{"name": w.kind, "path": "root"}}
	if err := w.provider.Create(ctx, object(workspaces, name, kind)); err != nil {
		return err
	}
	ready := func(found *unstructured.Unstructured) bool { return phase(found) == "Ready" }
	made, err := settled(ctx, w.provider, workspaces, name, ready)
	if err != nil {
		return err
	}
	w.clusters[name], _, _ = unstructured.NestedString(made.Object, "spec", "cluster")
	w.members[name], err = w.beside(name)
	return err
}

// syncsEmpty runs stock informers, with watch-lists, where there is no object yet: they must not wait for one.
func syncsEmpty(ctx context.Context, w *world) (any, error) {
	for _, cluster := range []string{"*", w.clusters["c0"]} {
		made, err := cache.New(w.through(cluster), cache.Options{Scheme: w.scheme})
		if err != nil {
			return nil, err
		}
		if _, err := made.GetInformer(ctx, &sea.Buoy{}); err != nil {
			return nil, err
		}
		running, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { _ = made.Start(running) }()
		if !made.WaitForCacheSync(ctx) {
			return nil, fmt.Errorf("nothing in %s never became known", cluster)
		}
		list := &sea.BuoyList{}
		if err := made.List(ctx, list); err != nil {
			return nil, fmt.Errorf("in %s: %w", cluster, err)
		}
		if err := checks.Expect("buoys in "+cluster, len(list.Items), 0); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// bindAll binds in the other workspaces, and puts a buoy of one name into each.
func bindAll(ctx context.Context, w *world) (any, error) {
	for number := 1; number < consumers; number++ {
		if err := w.joins(ctx, fmt.Sprintf("c%d", number)); err != nil {
			return nil, err
		}
	}
	for _, member := range w.members {
		if err := member.Create(ctx, eastern()); err != nil {
			return nil, err
		}
	}
	return len(w.members), nil
}

func eastern() *sea.Buoy {
	return &sea.Buoy{
		ObjectMeta: metav1.ObjectMeta{Namespace: east.Namespace, Name: east.Name}, Spec: sea.BuoySpec{Colour: "white"},
	}
}

// startManager runs a typed controller on the wildcard of the virtual workspace; leaders are elected at home.
func startManager(ctx context.Context, w *world) (any, error) {
	everywhere, err := w.manages("buoys")
	if err != nil {
		return nil, err
	}
	w.buoys = wildcard.New(everywhere, &sea.Buoy{}, &sea.BuoyList{})
	listed := &unstructured.UnstructuredList{}
	listed.SetGroupVersionKind(bindings)
	w.bound = wildcard.New(everywhere, object(bindings, "", nil), listed)
	w.bound.Follow(context.Background())
	if err := w.runs(ctx, "buoys", w.buoys, &reconciler{world: w, clients: map[string]client.Client{}}); err != nil {
		return nil, err
	}
	return nil, errors.Join(w.buoys.WaitForSync(ctx), w.bound.WaitForSync(ctx))
}

// manages makes the manager, and gives a client of all clusters.
func (w *world) manages(name string) (client.WithWatch, error) {
	made, err := ctrl.NewManager(w.through("*"), ctrl.Options{
		Scheme: w.scheme, Metrics: metricsserver.Options{BindAddress: "0"}, LeaderElection: true,
		LeaderElectionID: name, LeaderElectionNamespace: namespace, LeaderElectionConfig: w.config,
	})
	if err != nil {
		return nil, err
	}
	w.manager = made
	return client.NewWithWatch(w.through("*"), client.Options{Scheme: w.scheme, Mapper: made.GetRESTMapper()})
}

// runs starts the manager with one controller and waits until it is elected.
func (w *world) runs(
	ctx context.Context, name string, source *wildcard.Store, by reconcile.TypedReconciler[wildcard.Key],
) error {
	options := controller.TypedOptions[wildcard.Key]{Reconciler: by, MaxConcurrentReconciles: 4}
	made, err := controller.NewTyped(name, w.manager, options)
	if err != nil {
		return err
	}
	if err := made.Watch(source); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- w.manager.Start(context.Background()) }()
	select {
	case <-w.manager.Elected():
		return nil
	case err := <-ended:
		return fmt.Errorf("the manager ended: %w", err)
	case <-ctx.Done():
		return errors.New("the manager was not elected")
	}
}

// shines waits until a consumer sees, in its own workspace, that its buoy and its light are what the spec says.
func (w *world) shines(ctx context.Context, name, colour string) error {
	return checks.Until(ctx, name+" shines "+colour, func() (bool, error) {
		buoy, light := &sea.Buoy{}, &corev1.ConfigMap{}
		if err := w.members[name].Get(ctx, east, buoy); err != nil {
			return false, err
		}
		err := w.members[name].Get(ctx, client.ObjectKey{Namespace: namespace, Name: "east-light"}, light)
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
		ready := meta.IsStatusConditionTrue(buoy.Status.Conditions, "Ready")
		return ready && light.Data["colour"] == colour && buoy.Status.ObservedGeneration == buoy.Generation, nil
	})
}

func reconciles(ctx context.Context, w *world) (any, error) {
	for name := range w.members {
		if err := w.shines(ctx, name, "white"); err != nil {
			return nil, err
		}
	}
	err := checks.Until(ctx, "every consumer's binding is seen", func() (bool, error) {
		return len(w.bound.Clusters()) == consumers, nil
	})
	return len(w.buoys.Clusters()), errors.Join(err, checks.Expect("clusters", len(w.buoys.Clusters()), consumers))
}

// updatesOne changes one consumer's buoy: nobody else's is touched.
func updatesOne(ctx context.Context, w *world) (any, error) {
	before := &sea.Buoy{}
	if err := w.members["c4"].Get(ctx, east, before); err != nil {
		return nil, err
	}
	changed := &sea.Buoy{}
	if err := w.members["c3"].Get(ctx, east, changed); err != nil {
		return nil, err
	}
	changed.Spec.Colour = "red"
	if err := w.members["c3"].Update(ctx, changed); err != nil {
		return nil, err
	}
	if err := w.shines(ctx, "c3", "red"); err != nil {
		return nil, err
	}
	after := &sea.Buoy{}
	if err := w.members["c4"].Get(ctx, east, after); err != nil {
		return nil, err
	}
	return nil, errors.Join(
		checks.Expect("the other's revision", after.ResourceVersion, before.ResourceVersion), w.shines(ctx, "c4", "white"),
	)
}

// servesLater binds while the controller runs.
func servesLater(ctx context.Context, w *world) (any, error) {
	if err := w.joins(ctx, "later"); err != nil {
		return nil, err
	}
	if err := w.members["later"].Create(ctx, eastern()); err != nil {
		return nil, err
	}
	if err := w.shines(ctx, "later", "white"); err != nil {
		return nil, err
	}
	return nil, checks.Until(ctx, "the new binding is seen", func() (bool, error) {
		return w.bound.Clusters()[w.clusters["later"]] == 1, nil
	})
}

// refusesStrangers asks for a cluster that binds nothing.
func refusesStrangers(ctx context.Context, w *world) (any, error) {
	if err := w.settles(ctx, "stranger"); err != nil {
		return nil, err
	}
	options := client.Options{Scheme: w.scheme, Mapper: w.manager.GetRESTMapper()}
	there, err := client.New(w.through(w.clusters["stranger"]), options)
	if err != nil {
		return nil, err
	}
	for what, err := range map[string]error{
		"list": there.List(ctx, &sea.BuoyList{}), "create": there.Create(ctx, eastern()),
		"claimed list": there.List(ctx, &corev1.ConfigMapList{}), "delete": there.Delete(ctx, eastern()),
	} {
		if !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("%s in a workspace without a binding gave %v", what, err)
		}
	}
	return nil, nil
}

// losesOne unbinds: the controller lets go of the buoy and its light, then nothing of that consumer is seen any more.
func losesOne(ctx context.Context, w *world) (any, error) {
	gone := w.clusters["c5"]
	if err := w.members["c5"].Delete(ctx, object(bindings, exportName, nil)); err != nil {
		return nil, err
	}
	err := checks.Until(ctx, "the binding is gone", func() (bool, error) {
		err := w.members["c5"].Get(ctx, client.ObjectKey{Name: exportName}, object(bindings, "", nil))
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return nil, err
	}
	err = w.members["c5"].Get(ctx, client.ObjectKey{Namespace: namespace, Name: "east-light"}, &corev1.ConfigMap{})
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the light of a consumer that left: %v", err)
	}
	err = checks.Until(ctx, "nothing of it is seen", func() (bool, error) {
		return w.buoys.Clusters()[gone] == 0 && w.bound.Clusters()[gone] == 0, nil
	})
	if err != nil {
		return nil, err
	}
	there, err := client.New(w.through(gone), client.Options{Scheme: w.scheme, Mapper: w.manager.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	if err := there.List(ctx, &sea.BuoyList{}); !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("a list where nothing is bound any more gave %v", err)
	}
	return len(w.buoys.Clusters()), checks.Expect("clusters", len(w.buoys.Clusters()), consumers)
}
