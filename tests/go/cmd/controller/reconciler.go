package main

import (
	"context"

	"atoll.dev/tests/internal/checks"
	"atoll.dev/tests/internal/sea"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const finalizer = "sea.example.com/light"

// reconciler makes a light for each buoy.
type reconciler struct {
	client.Client
}

// Reconcile brings one buoy and its child to what its spec says.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	buoy := &sea.Buoy{}
	if err := r.Get(ctx, request.NamespacedName, buoy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !buoy.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.letGo(ctx, buoy)
	}
	if controllerutil.AddFinalizer(buoy, finalizer) {
		return ctrl.Result{}, r.Update(ctx, buoy)
	}
	if err := r.applyLight(ctx, buoy); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, buoy)
}

func (r *reconciler) applyLight(ctx context.Context, buoy *sea.Buoy) error {
	owner := applymetav1.OwnerReference().WithAPIVersion(sea.Group.String()).WithKind("Buoy").WithName(buoy.Name).
		WithUID(buoy.UID).WithController(true).WithBlockOwnerDeletion(true)
	light := applycorev1.ConfigMap(buoy.Name+"-light", buoy.Namespace).WithOwnerReferences(owner).
		WithData(map[string]string{"colour": buoy.Spec.Colour})
	return r.Apply(ctx, light, client.FieldOwner("buoys"), client.ForceOwnership)
}

func (r *reconciler) report(ctx context.Context, buoy *sea.Buoy) error {
	before := buoy.DeepCopyObject().(*sea.Buoy)
	buoy.Status.ObservedGeneration = buoy.Generation
	meta.SetStatusCondition(&buoy.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Shining", ObservedGeneration: buoy.Generation,
	})
	if equality.Semantic.DeepEqual(before.Status, buoy.Status) {
		return nil
	}
	return r.Status().Update(ctx, buoy)
}

// letGo removes the child and then the finalizer.
func (r *reconciler) letGo(ctx context.Context, buoy *sea.Buoy) error {
	light := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: buoy.Namespace, Name: buoy.Name + "-light"}}
	if err := r.Delete(ctx, light); client.IgnoreNotFound(err) != nil {
		return err
	}
	if controllerutil.RemoveFinalizer(buoy, finalizer) {
		return r.Update(ctx, buoy)
	}
	return nil
}

// scales reads and writes the scale of a buoy, whose replicas are its flashes.
func scales(ctx context.Context, f fleet) (any, error) {
	buoy, err := f.buoy(ctx)
	if err != nil {
		return nil, err
	}
	scale := &autoscalingv1.Scale{}
	if err := f.direct.SubResource("scale").Get(ctx, buoy, scale); err != nil {
		return nil, err
	}
	if err := checks.Expect("replicas", scale.Spec.Replicas, 2); err != nil {
		return nil, err
	}
	scale.Spec.Replicas = 7
	if err := f.direct.SubResource("scale").Update(ctx, buoy, client.WithSubResourceBody(scale)); err != nil {
		return nil, err
	}
	if buoy, err = f.buoy(ctx); err != nil {
		return nil, err
	}
	return nil, checks.Expect("flashes", buoy.Spec.Flashes, 7)
}
