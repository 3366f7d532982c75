// Package chart has the charts that the tests of Helm install, and what their releases must leave in a workspace:
// lighthouse of native kinds with a kind of its own, and three of Deployments and Kubernetes' other kinds.
package chart

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"strings"

	"atoll.dev/tests/internal/checks"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

//go:embed all:lighthouse all:storefront all:ledger all:courier
var files embed.FS

const (
	// Release is the name of the release, Namespace where it is.
	Release, Namespace = "harbour", "default"
)

// First and Second are the values of the two revisions: the second changes some objects and has fewer.
var (
	First  = map[string]any{}
	Second = map[string]any{"colour": "red", "flashes": 5, "extra": false}
)

// Files gives the chart's files by their paths in the chart.
func Files() (map[string][]byte, error) { return filesOf("lighthouse") }

func filesOf(chart string) (map[string][]byte, error) {
	found := map[string][]byte{}
	err := fs.WalkDir(files, chart, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		found[strings.TrimPrefix(path, chart+"/")], err = files.ReadFile(path)
		return err
	})
	return found, err
}

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	lanterns   = schema.GroupVersionResource{Group: "harbour.example.com", Version: "v1", Resource: "lanterns"}
	native     = map[string]schema.GroupVersionResource{
		Release + "-settings": configMaps,
		Release + "-key":      {Version: "v1", Resource: "secrets"},
		Release + "-keeper":   {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	}
)

// Holds verifies what a revision with these values left: every object, with its content, and none that went. It gives
// who manages the fields of the lantern.
func Holds(ctx context.Context, config *rest.Config, values map[string]any, revision int) (any, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	for name, resource := range native {
		if _, err := client.Resource(resource).Namespace(Namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return nil, err
		}
	}
	settings, err := client.Resource(configMaps).Namespace(Namespace).Get(ctx, Release+"-settings", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if err := field(settings, fmt.Sprint(revision), "data", "revision"); err != nil {
		return nil, err
	}
	lantern, err := client.Resource(lanterns).Namespace(Namespace).Get(ctx, Release, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return managers(lantern), content(ctx, client, lantern, values)
}

func content(ctx context.Context, client dynamic.Interface, lantern *unstructured.Unstructured, values map[string]any) error {
	colour, flashes, count := "white", int64(2), 2
	isFirst := len(values) == 0
	if !isFirst {
		colour, flashes, count = "red", 5, 1
	}
	if err := field(lantern, colour, "spec", "colour"); err != nil {
		return err
	}
	if err := field(lantern, flashes, "spec", "flashes"); err != nil {
		return err
	}
	keepers, _, err := unstructured.NestedSlice(lantern.Object, "spec", "keepers")
	if err != nil {
		return err
	}
	if err := checks.Expect("keepers", len(keepers), count); err != nil {
		return err
	}
	_, err = client.Resource(configMaps).Namespace(Namespace).Get(ctx, Release+"-extra", metav1.GetOptions{})
	if isFirst {
		return err
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("what the revision does not have gave %v", err)
	}
	return nil
}

// Gone verifies that nothing of the release is left but its definition, which Helm never takes away.
func Gone(ctx context.Context, config *rest.Config) error {
	if err := Absent(ctx, config); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	left, err := client.Resource(lanterns).Namespace(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return checks.Expect("lanterns", len(left.Items), 0)
}

// Absent verifies that no object of native kinds is there.
func Absent(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	everything := map[string]schema.GroupVersionResource{Release + "-extra": configMaps}
	maps.Copy(everything, native)
	for name, resource := range everything {
		_, err := client.Resource(resource).Namespace(Namespace).Get(ctx, name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s should not be there: %v", name, err)
		}
	}
	return nil
}

func managers(of *unstructured.Unstructured) []string {
	found := []string{}
	for _, entry := range of.GetManagedFields() {
		found = append(found, entry.Manager+" "+string(entry.Operation))
	}
	return found
}

func field[T comparable](of *unstructured.Unstructured, want T, path ...string) error {
	got, _, err := unstructured.NestedFieldNoCopy(of.Object, path...)
	if err != nil {
		return err
	}
	if got != any(want) {
		return fmt.Errorf("%s %s: got %v, want %v", of.GetName(), strings.Join(path, "."), got, want)
	}
	return nil
}
