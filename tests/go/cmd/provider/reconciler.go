package main

import (
	"context"
	"sync"

	"atoll.dev/tests/internal/sea"
	"atoll.dev/tests/internal/wildcard"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const finalizer = "sea.example.com/light"

// reconciler makes a light for each buoy of each consumer: it reads what the wildcard shows, and writes through the
// same virtual workspace into the one cluster. The light is a ConfigMap, which the consumer let it have by a claim.
type reconciler struct {
	world   *world
	lock    sync.Mutex
	clients map[string]client.Client
}

// in gives the client for a consumer's cluster.
func (r *reconciler) in(cluster string) (client.Client, error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if found, ok := r.clients[cluster]; ok {
		return found, nil
	}
	options := client.Options{Scheme: r.world.scheme, Mapper: r.world.manager.GetRESTMapper()}
	made, err := client.New(r.world.through(cluster), options)
	if err == nil {
		r.clients[cluster] = made
	}
	return made, err
}

// Reconcile brings one buoy and its light to what its spec says.
func (r *reconciler) Reconcile(ctx context.Context, key wildcard.Key) (ctrl.Result, error) {
	seen := r.world.buoys.Get(key)
	if seen == nil {
		return ctrl.Result{}, nil
	}
	there, err := r.in(key.Cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	buoy := seen.(*sea.Buoy)
	if !buoy.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, letGo(ctx, there, buoy)
	}
	if controllerutil.AddFinalizer(buoy, finalizer) {
		return ctrl.Result{}, there.Update(ctx, buoy)
	}
	light := applycorev1.ConfigMap(buoy.Name+"-light", buoy.Namespace).
		WithData(map[string]string{"colour": buoy.Spec.Colour})
	if err := there.Apply(ctx, light, client.FieldOwner("buoys"), client.ForceOwnership); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, report(ctx, there, buoy)
}

func report(ctx context.Context, there client.Client, buoy *sea.Buoy) error {
	before := buoy.DeepCopyObject().(*sea.Buoy)
	buoy.Status.ObservedGeneration = buoy.Generation
	meta.SetStatusCondition(&buoy.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Shining", ObservedGeneration: buoy.Generation,
	})
	if equality.Semantic.DeepEqual(before.Status, buoy.Status) {
		return nil
	}
	return there.Status().Update(ctx, buoy)
}

// letGo removes the light and then the finalizer.
func letGo(ctx context.Context, there client.Client, buoy *sea.Buoy) error {
	light := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: buoy.Namespace, Name: buoy.Name + "-light"}}
	if err := there.Delete(ctx, light); client.IgnoreNotFound(err) != nil {
		return err
	}
	if controllerutil.RemoveFinalizer(buoy, finalizer) {
		return client.IgnoreNotFound(there.Update(ctx, buoy))
	}
	return nil
}
