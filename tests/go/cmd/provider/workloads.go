package main

import (
	"context"
	"fmt"
	"sync"

	"atoll.dev/tests/internal/checks"
	"atoll.dev/tests/internal/sea"
	"atoll.dev/tests/internal/wildcard"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// exportForWorkloads offers buoys and claims the Deployments of root's export, by its identity.
func exportForWorkloads(ctx context.Context, w *world) (any, error) {
	root, err := w.in("root")
	if err != nil {
		return nil, err
	}
	offered := object(exports, "kubernetes", nil)
	if err := root.Get(ctx, client.ObjectKeyFromObject(offered), offered); err != nil {
		return nil, err
	}
	identity, _, err := unstructured.NestedString(offered.Object, "status", "identityHash")
	if err != nil {
		return nil, err
	}
	w.kind = "kubernetes"
	w.claim = map[string]any{"group": "apps", "resource": "deployments", "identityHash": identity, "verbs": []any{"*"}}
	return exportBuoys(ctx, w)
}

// bindForWorkloads makes ten consumers with a Deployment each, and one that rejects the claim.
func bindForWorkloads(ctx context.Context, w *world) (any, error) {
	if _, err := bindsFirst(ctx, w); err != nil {
		return nil, err
	}
	for number := 1; number < consumers; number++ {
		if err := w.joins(ctx, fmt.Sprintf("c%d", number)); err != nil {
			return nil, err
		}
	}
	if err := w.binds(ctx, "closed", "Rejected"); err != nil {
		return nil, err
	}
	for _, member := range w.members {
		if err := member.Create(ctx, workload()); err != nil {
			return nil, err
		}
	}
	return len(w.members), nil
}

func workload() *appsv1.Deployment {
	labels, replicas := map[string]string{"app": east.Name}, int32(2)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: east.Namespace, Name: east.Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main:1"}}},
			},
		},
	}
}

// marker keeps a buoy that flashes as often as a Deployment has replicas, and reports what it saw in the Deployment's
// status. The buoy belongs to the Deployment.
type marker struct {
	world       *world
	deployments *wildcard.Store
	lock        sync.Mutex
	clients     map[string]client.Client
}

func (m *marker) in(cluster string) (client.Client, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if found, ok := m.clients[cluster]; ok {
		return found, nil
	}
	options := client.Options{Scheme: m.world.scheme, Mapper: m.world.manager.GetRESTMapper()}
	made, err := client.New(m.world.through(cluster), options)
	if err == nil {
		m.clients[cluster] = made
	}
	return made, err
}

// Reconcile brings the buoy of one Deployment to what its spec says.
func (m *marker) Reconcile(ctx context.Context, key wildcard.Key) (ctrl.Result, error) {
	seen := m.deployments.Get(key)
	if seen == nil {
		return ctrl.Result{}, nil
	}
	there, err := m.in(key.Cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	deployment := seen.(*appsv1.Deployment)
	buoy := &sea.Buoy{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	_, err = ctrl.CreateOrUpdate(ctx, there, buoy, func() error {
		buoy.Spec = sea.BuoySpec{Colour: "green", Flashes: *deployment.Spec.Replicas}
		return ctrl.SetControllerReference(deployment, buoy, m.world.scheme)
	})
	if err != nil || deployment.Status.ObservedGeneration == deployment.Generation {
		return ctrl.Result{}, err
	}
	deployment.Status.ObservedGeneration = deployment.Generation
	deployment.Status.Replicas = *deployment.Spec.Replicas
	return ctrl.Result{}, there.Status().Update(ctx, deployment)
}

// startWorkloads runs the controller on the Deployments of all consumers.
func startWorkloads(ctx context.Context, w *world) (any, error) {
	everywhere, err := w.manages("workloads")
	if err != nil {
		return nil, err
	}
	w.deployments = wildcard.New(everywhere, &appsv1.Deployment{}, &appsv1.DeploymentList{})
	by := &marker{world: w, deployments: w.deployments, clients: map[string]client.Client{}}
	if err := w.runs(ctx, "workloads", w.deployments, by); err != nil {
		return nil, err
	}
	return nil, w.deployments.WaitForSync(ctx)
}

// marked waits until a consumer sees, in its own workspace, the buoy and the status of its Deployment.
func (w *world) marked(ctx context.Context, name string, flashes int32) error {
	return checks.Until(ctx, fmt.Sprintf("%s flashes %d times", name, flashes), func() (bool, error) {
		buoy, deployment := &sea.Buoy{}, &appsv1.Deployment{}
		if err := w.members[name].Get(ctx, east, deployment); err != nil {
			return false, err
		}
		if err := w.members[name].Get(ctx, east, buoy); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		isSeen := deployment.Status.ObservedGeneration == deployment.Generation && deployment.Status.Replicas == flashes
		return isSeen && buoy.Spec.Flashes == flashes && metav1.IsControlledBy(buoy, deployment), nil
	})
}

func marksWorkloads(ctx context.Context, w *world) (any, error) {
	for number := range consumers {
		if err := w.marked(ctx, fmt.Sprintf("c%d", number), 2); err != nil {
			return nil, err
		}
	}
	return len(w.deployments.Clusters()), checks.Expect("clusters", len(w.deployments.Clusters()), consumers)
}

// followsOne scales one consumer's Deployment: nobody else's buoy is touched.
func followsOne(ctx context.Context, w *world) (any, error) {
	before, after := &sea.Buoy{}, &sea.Buoy{}
	if err := w.members["c4"].Get(ctx, east, before); err != nil {
		return nil, err
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":7}}`))
	if err := w.members["c3"].Patch(ctx, workload(), patch); err != nil {
		return nil, err
	}
	if err := w.marked(ctx, "c3", 7); err != nil {
		return nil, err
	}
	if err := w.members["c4"].Get(ctx, east, after); err != nil {
		return nil, err
	}
	return nil, checks.Expect("the other's revision", after.ResourceVersion, before.ResourceVersion)
}

// leavesTheRejectedAlone looks at the consumer that rejected the claim: nothing was made there, and nothing is shown of it.
func leavesTheRejectedAlone(ctx context.Context, w *world) (any, error) {
	err := w.members["closed"].Get(ctx, east, &sea.Buoy{})
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the buoy of a Deployment that is not claimed: %v", err)
	}
	there, err := client.New(w.through(w.clusters["closed"]), client.Options{Scheme: w.scheme, Mapper: w.manager.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	listed := &appsv1.DeploymentList{}
	if err := there.List(ctx, listed); err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	return nil, checks.Expect("Deployments that are shown", len(listed.Items), 0)
}

// losesTheMark deletes a Deployment: its buoy goes with it.
func losesTheMark(ctx context.Context, w *world) (any, error) {
	if err := w.members["c5"].Delete(ctx, workload()); err != nil {
		return nil, err
	}
	return nil, checks.Until(ctx, "the buoy is gone", func() (bool, error) {
		err := w.members["c5"].Get(ctx, east, &sea.Buoy{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}
