package main

import (
	"context"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"github.com/kcp-dev/sdk/apis/tenancy/initialization"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/kcp-dev/multicluster-provider/initializingworkspaces"
	"github.com/kcp-dev/multicluster-provider/pkg/handlers"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// initialize runs a controller of the LogicalClusters that wait for a type's initializer.
func initialize(config *rest.Config, scheme *runtime.Scheme, name string) error {
	home, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	kind := &tenancyv1alpha1.WorkspaceType{}
	if err := home.Get(context.Background(), client.ObjectKey{Name: name}, kind); err != nil {
		return err
	}
	provider, err := initializingworkspaces.New(config, name, initializingworkspaces.Options{
		Scheme: scheme, Handlers: handlers.Handlers{announcer{}},
	})
	if err != nil {
		return err
	}
	manager, err := newManager(config, scheme, provider)
	if err != nil {
		return err
	}
	made := &initializer{manager, initialization.InitializerForType(kind)}
	err = mcbuilder.ControllerManagedBy(manager).Named("initializer").For(&corev1alpha1.LogicalCluster{}).Complete(made)
	if err != nil {
		return err
	}
	return start(manager)
}

// initializer puts a mark into a new workspace and lets it go on.
type initializer struct {
	manager mcmanager.Manager
	name    corev1alpha1.LogicalClusterInitializer
}

func (i *initializer) Reconcile(ctx context.Context, request mcreconcile.Request) (ctrl.Result, error) {
	workspace, err := i.manager.GetCluster(ctx, request.ClusterName)
	if err != nil {
		return ctrl.Result{}, err
	}
	writes, cluster := workspace.GetClient(), &corev1alpha1.LogicalCluster{}
	if err := writes.Get(ctx, request.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !initialization.InitializerPresent(i.name, cluster.Status.Initializers) {
		return ctrl.Result{}, nil
	}
	mark := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "initialized"},
		Data:       map[string]string{"cluster": request.ClusterName},
	}
	// The namespace is made by another initializer: an error is tried again.
	if err := writes.Create(ctx, mark); err != nil && !apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, err
	}
	patch := client.MergeFrom(cluster.DeepCopy())
	cluster.Status.Initializers = initialization.EnsureInitializerAbsent(i.name, cluster.Status.Initializers)
	return ctrl.Result{}, writes.Status().Patch(ctx, cluster, patch)
}
