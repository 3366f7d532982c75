package chart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"atoll.dev/tests/internal/checks"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// workloads are the charts of Kubernetes' own kinds, with the values of their second revision: each changes fields,
// adds objects or entries of lists, and has fewer of others.
var workloads = map[string]map[string]any{
	"storefront": {
		"image": map[string]any{"tag": "2.0"}, "port": 9000, "proxy": false, "autoscaling": map[string]any{"enabled": false},
	},
	"ledger": {"replicas": 5, "readers": 1, "nodePort": false, "budget": 2},
	"courier": {"schedule": "@hourly", "routes": []any{
		map[string]any{"name": "south", "replicas": 3}, map[string]any{"name": "west", "replicas": 1},
	}},
}

// Releases is what one version of Helm does with a release; what writes gives the manifest that the release then has.
type Releases interface {
	Install(name string, files map[string][]byte, values map[string]any) (string, error)
	Upgrade(name string, files map[string][]byte, values map[string]any) (string, error)
	RollBack(name string) (string, error)
	Uninstall(name string) error
}

// Workloads are the checks of the charts of Kubernetes' own kinds. After each step every object of the manifest is as the
// manifest says, and what the step took out of it is gone.
func Workloads[T any](releases func(T) Releases, config func(T) *rest.Config) []checks.Check[T] {
	manifests := map[string]string{}
	var known *cluster
	step := func(run func(Releases, string) (string, error)) func(context.Context, T) (any, error) {
		return func(ctx context.Context, shared T) (any, error) {
			var err error
			if known == nil {
				if known, err = connected(config(shared)); err != nil {
					return nil, err
				}
			}
			counts := map[string]int{}
			for name := range workloads {
				manifest, err := run(releases(shared), name)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				if counts[name], err = known.left(ctx, manifests[name], manifest); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				manifests[name] = manifest
			}
			return counts, nil
		}
	}
	withFiles := func(run func(Releases, string, map[string][]byte) (string, error)) func(Releases, string) (string, error) {
		return func(of Releases, name string) (string, error) {
			contents, err := filesOf(name)
			if err != nil {
				return "", err
			}
			return run(of, name, contents)
		}
	}
	return []checks.Check[T]{
		{Name: "install", Run: step(withFiles(func(of Releases, name string, contents map[string][]byte) (string, error) {
			return of.Install(name, contents, map[string]any{})
		}))},
		{Name: "upgrade", Run: step(withFiles(func(of Releases, name string, contents map[string][]byte) (string, error) {
			return of.Upgrade(name, contents, workloads[name])
		}))},
		{Name: "roll back", Run: step(Releases.RollBack)},
		{Name: "uninstall", Run: step(func(of Releases, name string) (string, error) { return "", of.Uninstall(name) })},
	}
}

// cluster reads what is on the server.
type cluster struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

func connected(config *rest.Config) (*cluster, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &cluster{client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))}, nil
}

func (c *cluster) get(ctx context.Context, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	kind := wanted.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.client.Resource(mapping.Resource).Get(ctx, wanted.GetName(), metav1.GetOptions{})
	}
	return c.client.Resource(mapping.Resource).Namespace(Namespace).Get(ctx, wanted.GetName(), metav1.GetOptions{})
}

// left verifies that each object of a manifest is on the server as the manifest says, and that no other of the manifest
// before it is. It gives the number of objects.
func (c *cluster) left(ctx context.Context, before, after string) (int, error) {
	wanted, err := objects(after)
	if err != nil {
		return 0, err
	}
	for key, each := range wanted {
		live, err := c.get(ctx, each)
		if err != nil {
			return 0, err
		}
		if err := contains(key, live.Object, each.Object); err != nil {
			return 0, err
		}
	}
	former, err := objects(before)
	if err != nil {
		return 0, err
	}
	for key, each := range former {
		if _, err := c.get(ctx, each); wanted[key] == nil && !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("%s should not be there: %v", key, err)
		}
	}
	return len(wanted), nil
}

// objects gives those of a manifest by kind and name.
func objects(manifest string) (map[string]*unstructured.Unstructured, error) {
	found := map[string]*unstructured.Unstructured{}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		each := &unstructured.Unstructured{}
		err := decoder.Decode(&each.Object)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if len(each.Object) > 0 {
			found[each.GetKind()+" "+each.GetName()] = each
		}
	}
}

// contains verifies that all of what is wanted is live; lists have no other entries.
func contains(path string, live, wanted any) error {
	switch wanted := wanted.(type) {
	case map[string]any:
		there, _ := live.(map[string]any)
		for key, each := range wanted {
			if err := contains(path+"."+key, there[key], each); err != nil {
				return err
			}
		}
		return nil
	case []any:
		there, _ := live.([]any)
		if len(there) != len(wanted) {
			return fmt.Errorf("%s has %d entries and should have %d", path, len(there), len(wanted))
		}
		for index, each := range wanted {
			if err := contains(fmt.Sprintf("%s[%d]", path, index), there[index], each); err != nil {
				return err
			}
		}
		return nil
	default:
		return checks.Expect(path, fmt.Sprint(live), fmt.Sprint(wanted))
	}
}
