package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/kcp-dev/multicluster-provider/apiexport"
	pathaware "github.com/kcp-dev/multicluster-provider/path-aware"
	"github.com/kcp-dev/multicluster-provider/pkg/handlers"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	"github.com/kcp-dev/sdk/apis/core"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

const finalizer = "shapes.example.com/mark"

var circles = schema.GroupVersionKind{Group: "shapes.example.com", Version: "v1", Kind: "Circle"}

// serveExport runs a controller of circles in all workspaces that bind the export of a slice.
func serveExport(config *rest.Config, scheme *runtime.Scheme, slice string) error {
	provider, err := pathaware.New(config, slice, apiexport.Options{
		Scheme: scheme, Handlers: handlers.Handlers{announcer{}},
	})
	if err != nil {
		return err
	}
	manager, err := newManager(config, scheme, provider)
	if err != nil {
		return err
	}
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(circles)
	err = mcbuilder.ControllerManagedBy(manager).Named("circles").For(kind).Complete(&circleReconciler{manager})
	if err != nil {
		return err
	}
	return start(manager)
}

// circleReconciler makes a mark for each circle, a ConfigMap, and an Event; the consumer lets it have both by claims.
type circleReconciler struct{ manager mcmanager.Manager }

func (r *circleReconciler) Reconcile(ctx context.Context, request mcreconcile.Request) (ctrl.Result, error) {
	consumer, err := r.manager.GetCluster(ctx, request.ClusterName)
	if err != nil {
		return ctrl.Result{}, err
	}
	writes := consumer.GetClient()
	circle := &unstructured.Unstructured{}
	circle.SetGroupVersionKind(circles)
	if err := writes.Get(ctx, request.NamespacedName, circle); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	mark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name + "-mark"}}
	if circle.GetDeletionTimestamp() != nil {
		if err := writes.Delete(ctx, mark); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
		if controllerutil.RemoveFinalizer(circle, finalizer) {
			return ctrl.Result{}, client.IgnoreNotFound(writes.Update(ctx, circle))
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(circle, finalizer) {
		return ctrl.Result{}, writes.Update(ctx, circle)
	}
	path, err := r.pathOf(ctx, consumer)
	if err != nil {
		return ctrl.Result{}, err
	}
	_, err = controllerutil.CreateOrUpdate(ctx, writes, mark, func() error {
		mark.Data = map[string]string{"cluster": request.ClusterName, "path": path}
		return nil
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	events := consumer.GetEventRecorder("circles")
	events.Eventf(circle, nil, corev1.EventTypeNormal, "Marked", "Mark", "%s has its mark", request.Name)
	return ctrl.Result{}, report(ctx, writes, circle)
}

// pathOf reads a consumer's path from its binding, and finds the consumer by it as it does by its cluster.
func (r *circleReconciler) pathOf(ctx context.Context, consumer cluster.Cluster) (string, error) {
	bindings := &apisv1alpha1.APIBindingList{}
	if err := consumer.GetClient().List(ctx, bindings); err != nil {
		return "", err
	}
	if len(bindings.Items) != 1 {
		return "", fmt.Errorf("%d bindings", len(bindings.Items))
	}
	path := bindings.Items[0].Annotations[core.LogicalClusterPathAnnotationKey]
	found, err := r.manager.GetCluster(ctx, path)
	if err == nil && found != consumer {
		err = errors.New(path + " is another cluster")
	}
	return path, err
}

// report counts the generation that was seen into the status.
func report(ctx context.Context, writes client.Client, circle *unstructured.Unstructured) error {
	seen, _, _ := unstructured.NestedInt64(circle.Object, "status", "replicas")
	if seen == circle.GetGeneration() {
		return nil
	}
	if err := unstructured.SetNestedField(circle.Object, circle.GetGeneration(), "status", "replicas"); err != nil {
		return err
	}
	return writes.Status().Update(ctx, circle)
}
