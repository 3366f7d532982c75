package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"atoll.dev/tests/internal/checks"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// listener looks at the content type of what comes back.
type listener struct {
	next http.RoundTripper
	got  *atomic.Value
}

func (l listener) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	if err == nil {
		l.got.Store(response.Header.Get("Content-Type"))
	}
	return response, err
}

func wrapped(got *atomic.Value) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return listener{next, got} }
}

// deploymentDefinition serves Deployments and declares nothing of them.
func deploymentDefinition() *unstructured.Unstructured {
	open := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{
			"name":        "deployments.apps",
			"annotations": map[string]any{"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes"},
		},
		"spec": map[string]any{
			"group": "apps", "scope": "Namespaced",
			"names": map[string]any{"plural": "deployments", "singular": "deployment", "kind": "Deployment"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "properties": map[string]any{"spec": open, "status": open},
				}},
			}},
		},
	}}
}

func deploymentOf(name string) *appsv1.Deployment {
	one, none, port := int32(1), int32(0), intstr.FromString("http")
	surge, labels, no := intstr.FromInt32(1), map[string]string{"app": name}, false
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: port}}}
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	source := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}
	containers := []corev1.Container{
		{Name: "main", Image: "main:1", Resources: corev1.ResourceRequirements{Limits: limits}, LivenessProbe: probe,
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}, Env: []corev1.EnvVar{{Name: "EMPTY"}}},
		{Name: "side", Image: "side:1", Command: []string{"run", ""}},
	}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: containers, Volumes: []corev1.Volume{{Name: "v", VolumeSource: source}},
			AutomountServiceAccountToken: &no, SecurityContext: &corev1.PodSecurityContext{}},
	}
	update := &appsv1.RollingUpdateDeployment{MaxSurge: &surge}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: &one, RevisionHistoryLimit: &none, Template: template,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: update}},
	}
}

// deployments are written and read by a typed client, in protobuf both ways, though a definition serves them.
func deployments(ctx context.Context, c clients) error {
	if _, err := c.dynamic.Resource(crds).Create(ctx, deploymentDefinition(), metav1.CreateOptions{}); err != nil {
		return err
	}
	var got atomic.Value
	config := rest.CopyConfig(c.config)
	config.ContentType, config.AcceptContentTypes = protobuf, protobuf+",application/json"
	config.Wrap(wrapped(&got))
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	api, wanted := typed.AppsV1().Deployments(namespace), deploymentOf("web")
	var made *appsv1.Deployment
	err = checks.Until(ctx, "deployments are served", func() (bool, error) {
		made, err = api.Create(ctx, wanted, metav1.CreateOptions{})
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	if !apiequality.Semantic.DeepEqual(made.Spec, wanted.Spec) {
		return fmt.Errorf("came back as %v", made.Spec)
	}
	same, err := api.Update(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	if err := checks.Expect("revision", same.ResourceVersion, made.ResourceVersion); err != nil {
		return err
	}
	if err := checks.Expect("content type", got.Load().(string), protobuf); err != nil {
		return err
	}
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:2"}]}}}}`)
	changed, err := api.Patch(ctx, "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	images := map[string]string{}
	for _, each := range changed.Spec.Template.Spec.Containers {
		images[each.Name] = each.Image
	}
	if err := checks.Expect("images", fmt.Sprint(images), "map[main:main:1 side:side:2]"); err != nil {
		return err
	}
	listed, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if err := checks.Expect("deployments", len(listed.Items), 1); err != nil {
		return err
	}
	return api.Delete(ctx, "web", metav1.DeleteOptions{})
}
