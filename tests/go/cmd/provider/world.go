package main

import (
	"context"
	"net/url"
	"strings"

	"atoll.dev/tests/internal/checks"
	"atoll.dev/tests/internal/sea"
	"atoll.dev/tests/internal/wildcard"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	exportName = "buoys.sea.example.com"
	consumers  = 10
)

var (
	schemas    = schema.GroupVersionKind{Group: "apis.kcp.io", Version: "v1alpha1", Kind: "APIResourceSchema"}
	exports    = schema.GroupVersionKind{Group: "apis.kcp.io", Version: "v1alpha2", Kind: "APIExport"}
	bindings   = schema.GroupVersionKind{Group: "apis.kcp.io", Version: "v1alpha2", Kind: "APIBinding"}
	slices     = schema.GroupVersionKind{Group: "apis.kcp.io", Version: "v1alpha1", Kind: "APIExportEndpointSlice"}
	workspaces = schema.GroupVersionKind{Group: "tenancy.kcp.io", Version: "v1alpha1", Kind: "Workspace"}
)

// world is what the checks share: who provides, where the virtual workspace is, and what is seen through it.
type world struct {
	config      *rest.Config
	path        string
	claim       map[string]any
	kind        string
	scheme      *runtime.Scheme
	provider    client.Client
	endpoint    string
	manager     manager.Manager
	buoys       *wildcard.Store
	bound       *wildcard.Store
	deployments *wildcard.Store
	members     map[string]client.Client
	clusters    map[string]string
}

func connect(target checks.Target) (*world, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sea.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	parsed, err := url.Parse(target.Config.Host)
	if err != nil {
		return nil, err
	}
	_, path, _ := strings.Cut(parsed.Path, "/clusters/")
	provider, err := client.New(target.Config, client.Options{Scheme: scheme})
	return &world{
		config: target.Config, path: path, scheme: scheme, provider: provider, kind: "universal",
		claim:   map[string]any{"group": "", "resource": "configmaps", "verbs": []any{"*"}},
		members: map[string]client.Client{}, clusters: map[string]string{},
	}, err
}

// at gives a configuration for another URL on the same credentials.
func (w *world) at(url string) *rest.Config {
	config := rest.CopyConfig(w.config)
	config.Host = url
	return config
}

// through gives a configuration for what the virtual workspace shows of a cluster; "*" means all of them.
func (w *world) through(cluster string) *rest.Config {
	return w.at(w.endpoint + "/clusters/" + cluster)
}

// beside gives a client in a workspace below the provider's, as its owner has one.
func (w *world) beside(name string) (client.Client, error) { return w.in(w.path + ":" + name) }

// in gives a client in a workspace.
func (w *world) in(path string) (client.Client, error) {
	base := strings.TrimSuffix(w.config.Host, "/clusters/"+w.path)
	return client.New(w.at(base+"/clusters/"+path), client.Options{Scheme: w.scheme})
}

func object(kind schema.GroupVersionKind, name string, spec map[string]any) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{}}
	made.SetGroupVersionKind(kind)
	made.SetName(name)
	if spec != nil {
		made.Object["spec"] = spec
	}
	return made
}

// settled waits until an object is what it should be, and gives it.
func settled(
	ctx context.Context, of client.Client, kind schema.GroupVersionKind, name string,
	holds func(*unstructured.Unstructured) bool,
) (*unstructured.Unstructured, error) {
	found := object(kind, name, nil)
	err := checks.Until(ctx, kind.Kind+" "+name, func() (bool, error) {
		err := of.Get(ctx, client.ObjectKey{Name: name}, found)
		return err == nil && holds(found), client.IgnoreNotFound(err)
	})
	return found, err
}

func phase(of *unstructured.Unstructured) string {
	found, _, _ := unstructured.NestedString(of.Object, "status", "phase")
	return found
}

func urls(slice *unstructured.Unstructured) []string {
	ends, _, _ := unstructured.NestedSlice(slice.Object, "status", "endpoints")
	found := []string{}
	for _, end := range ends {
		found = append(found, end.(map[string]any)["url"].(string))
	}
	return found
}
