// Command controller runs a manager of controller-runtime whose one controller reconciles a custom resource: it reads
// from the cache, applies a child on the server's side, writes status, and holds the object by a finalizer until the
// child is gone.
package main

import (
	"context"
	"errors"
	"fmt"

	"atoll.dev/tests/internal/checks"
	"atoll.dev/tests/internal/sea"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const namespace = "default"

// fleet is what the checks share: a client that reads from the server, and the manager.
type fleet struct {
	direct  client.Client
	manager manager.Manager
}

func main() {
	ctrl.SetLogger(logr.Discard())
	checks.Main(connect, []checks.Check[fleet]{
		{Name: "definition", Run: defineBuoys},
		{Name: "manager", Run: startManager},
		{Name: "reconcile", Run: reconciles},
		{Name: "update", Run: updates},
		{Name: "child", Run: restoresChild},
		{Name: "scale", Run: scales},
		{Name: "no-op", Run: settles},
		{Name: "finalizer", Run: finalizes},
	})
}

func connect(target checks.Target) (fleet, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, sea.AddToScheme} {
		if err := add(scheme); err != nil {
			return fleet{}, err
		}
	}
	direct, err := client.New(target.Config, client.Options{Scheme: scheme})
	if err != nil {
		return fleet{}, err
	}
	made, err := ctrl.NewManager(target.Config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "buoys", LeaderElectionNamespace: namespace,
	})
	return fleet{direct: direct, manager: made}, err
}

// defineBuoys creates the definition by a typed client and waits until it is established.
func defineBuoys(ctx context.Context, f fleet) (any, error) {
	if err := f.direct.Create(ctx, sea.Definition()); err != nil {
		return nil, err
	}
	return nil, checks.Until(ctx, "buoys established", func() (bool, error) {
		found := apiextensionsv1.CustomResourceDefinition{}
		if err := f.direct.Get(ctx, client.ObjectKey{Name: "buoys.sea.example.com"}, &found); err != nil {
			return false, err
		}
		for _, condition := range found.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
}

// startManager starts the manager, which first becomes the leader; its caches sync by watch-lists.
func startManager(ctx context.Context, f fleet) (any, error) {
	err := ctrl.NewControllerManagedBy(f.manager).For(&sea.Buoy{}).Owns(&corev1.ConfigMap{}).
		Complete(&reconciler{Client: f.manager.GetClient()})
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- f.manager.Start(context.Background()) }()
	select {
	case <-f.manager.Elected():
	case err := <-ended:
		return nil, fmt.Errorf("the manager ended: %w", err)
	case <-ctx.Done():
		return nil, errors.New("the manager was not elected")
	}
	if !f.manager.GetCache().WaitForCacheSync(ctx) {
		return nil, errors.New("the caches did not sync")
	}
	return nil, nil
}

func (f fleet) buoy(ctx context.Context) (*sea.Buoy, error) {
	found := &sea.Buoy{}
	return found, f.direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "east"}, found)
}

func (f fleet) light(ctx context.Context) (*corev1.ConfigMap, error) {
	found := &corev1.ConfigMap{}
	return found, f.direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "east-light"}, found)
}

// shines waits until child and status say what the spec does.
func (f fleet) shines(ctx context.Context, colour string) error {
	return checks.Until(ctx, "the light shines "+colour, func() (bool, error) {
		buoy, err := f.buoy(ctx)
		if err != nil {
			return false, err
		}
		light, err := f.light(ctx)
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
		ready := meta.IsStatusConditionTrue(buoy.Status.Conditions, "Ready")
		return ready && light.Data["colour"] == colour && buoy.Status.ObservedGeneration == buoy.Generation, nil
	})
}

func reconciles(ctx context.Context, f fleet) (any, error) {
	made := &sea.Buoy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "east"},
		Spec:       sea.BuoySpec{Colour: "white", Flashes: 2},
	}
	if err := f.direct.Create(ctx, made); err != nil {
		return nil, err
	}
	if err := f.shines(ctx, "white"); err != nil {
		return nil, err
	}
	light, err := f.light(ctx)
	if err != nil {
		return nil, err
	}
	if !metav1.IsControlledBy(light, made) {
		return nil, fmt.Errorf("owners of the child: %v", light.OwnerReferences)
	}
	buoy, err := f.buoy(ctx)
	if err != nil {
		return nil, err
	}
	return buoy.Generation, checks.Expect("generation after writes of status", buoy.Generation, 1)
}

// updates changes the spec by a patch from what was read, and writes a status that the main endpoint ignores.
func updates(ctx context.Context, f fleet) (any, error) {
	buoy, err := f.buoy(ctx)
	if err != nil {
		return nil, err
	}
	changed := buoy.DeepCopyObject().(*sea.Buoy)
	changed.Spec.Colour = "red"
	changed.Status.Turns = 1000
	if err := f.direct.Patch(ctx, changed, client.MergeFromWithOptions(buoy, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, err
	}
	if err := f.shines(ctx, "red"); err != nil {
		return nil, err
	}
	buoy.Spec.Colour = "green"
	if err := f.direct.Update(ctx, buoy); !apierrors.IsConflict(err) {
		return nil, fmt.Errorf("an update from an old revision gave %v", err)
	}
	found, err := f.buoy(ctx)
	if err != nil {
		return nil, err
	}
	if found.Status.Turns >= 1000 {
		return nil, errors.New("the main endpoint wrote status")
	}
	return found.Generation, checks.Expect("generation", found.Generation, 2)
}

// restoresChild takes the child away, which its controller makes again.
func restoresChild(ctx context.Context, f fleet) (any, error) {
	light, err := f.light(ctx)
	if err != nil {
		return nil, err
	}
	uid := light.UID
	if err := f.direct.Delete(ctx, light, client.Preconditions{UID: &uid}); err != nil {
		return nil, err
	}
	return nil, checks.Until(ctx, "another child", func() (bool, error) {
		found, err := f.light(ctx)
		return err == nil && found.UID != uid, client.IgnoreNotFound(err)
	})
}

// settles reconciles again what has settled: applies that change nothing make no revision.
func settles(ctx context.Context, f fleet) (any, error) {
	if err := f.shines(ctx, "red"); err != nil {
		return nil, err
	}
	before, err := f.buoy(ctx)
	if err != nil {
		return nil, err
	}
	again := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(before)}
	for range 3 {
		if _, err := (&reconciler{Client: f.direct}).Reconcile(ctx, again); err != nil {
			return nil, err
		}
	}
	after, err := f.buoy(ctx)
	if err != nil {
		return nil, err
	}
	return after.ResourceVersion, checks.Expect("revision", after.ResourceVersion, before.ResourceVersion)
}

// finalizes deletes the object, which goes when the controller has let go of it, and its child with it.
func finalizes(ctx context.Context, f fleet) (any, error) {
	buoy, err := f.buoy(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.direct.Delete(ctx, buoy, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return nil, err
	}
	return nil, checks.Until(ctx, "the buoy is gone", func() (bool, error) {
		_, err := f.buoy(ctx)
		if !apierrors.IsNotFound(err) {
			return false, err
		}
		_, err = f.light(ctx)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}
