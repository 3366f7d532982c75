package main

import (
	"context"
	"fmt"
	"strings"

	"atoll.dev/tests/internal/checks"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/pager"
)

// discovered reads discovery in both its forms, which must name the same resources.
func discovered(_ context.Context, c clients) (any, error) {
	_, aggregated, err := c.discovery.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	_, separate, err := c.discovery.WithLegacy().ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	first, second := names(aggregated), names(separate)
	for name := range first {
		if !second[name] {
			return nil, fmt.Errorf("%s is in the aggregated form alone", name)
		}
	}
	version, err := c.discovery.ServerVersion()
	if err != nil {
		return nil, err
	}
	return map[string]any{"version": version.GitVersion, "resources": len(first)},
		checks.Expect("resources in the separate form", len(second), len(first))
}

func names(lists []*metav1.APIResourceList) map[string]bool {
	found := map[string]bool{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			found[fmt.Sprintf("%s %s %s %v %v", list.GroupVersion, resource.Name, resource.Kind, resource.Namespaced, resource.Verbs)] = true
		}
	}
	return found
}

// mapped asks the mapper that controllers use, which forgets and asks again for what it does not know.
func mapped(_ context.Context, c clients) (any, error) {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.discovery))
	short, err := restmapper.NewShortcutExpander(mapper, c.discovery, nil).ResourceFor(schema.GroupVersionResource{Resource: "cm"})
	if err != nil {
		return nil, err
	}
	boat, err := mapper.RESTMapping(schema.GroupKind{Group: boats.Group, Kind: "Boat"})
	if err != nil {
		return nil, err
	}
	if err := checks.Expect("resource of Boat", boat.Resource, boats); err != nil {
		return nil, err
	}
	return []string{short.String(), string(boat.Scope.Name())},
		checks.Expect("cm", short, corev1.SchemeGroupVersion.WithResource("configmaps"))
}

// openAPIv2 reads the document as protobuf, as older tools do.
func openAPIv2(_ context.Context, c clients) (any, error) {
	document, err := c.discovery.OpenAPISchema()
	if err != nil {
		return nil, err
	}
	definitions := map[string]bool{}
	for _, each := range document.GetDefinitions().GetAdditionalProperties() {
		definitions[each.GetName()] = true
	}
	for _, name := range []string{"io.k8s.api.core.v1.ConfigMap", "com.example.sea.v1.Boat"} {
		if !definitions[name] {
			return nil, fmt.Errorf("no definition of %s among %d", name, len(definitions))
		}
	}
	if len(document.GetPaths().GetPath()) == 0 {
		return nil, fmt.Errorf("no paths")
	}
	return len(definitions), nil
}

// openAPIv3 reads every document there is, of which one must describe the custom resource.
func openAPIv3(_ context.Context, c clients) (any, error) {
	paths, err := c.discovery.OpenAPIV3().Paths()
	if err != nil {
		return nil, err
	}
	for path, group := range paths {
		if _, err := group.Schema("application/json"); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	root := openapi3.NewRoot(c.discovery.OpenAPIV3())
	document, err := root.GVSpec(boats.GroupVersion())
	if err != nil {
		return nil, err
	}
	if document.Components.Schemas["com.example.sea.v1.Boat"] == nil {
		return nil, fmt.Errorf("the document of boats does not describe them")
	}
	return len(paths), operations(document.Paths.Paths)
}

func operations[P any](paths map[string]P) error {
	for path := range paths {
		if strings.HasSuffix(path, "/boats/{name}") {
			return nil
		}
	}
	return fmt.Errorf("no operations on one boat among %d paths", len(paths))
}

// pages lists in chunks by continue tokens, which read one revision.
func pages(ctx context.Context, c clients) (any, error) {
	api := c.typed.CoreV1().ConfigMaps(namespace)
	for number := range 25 {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("page-%02d", number), Labels: map[string]string{"paged": "yes"}}}
		if _, err := api.Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	reader := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return api.List(ctx, options)
	}))
	reader.PageSize = 7
	seen := 0
	err := reader.EachListItem(ctx, metav1.ListOptions{LabelSelector: "paged=yes"}, func(runtime.Object) error {
		seen++
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := checks.Expect("items of all pages", seen, 25); err != nil {
		return nil, err
	}
	return seen, api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "paged=yes"})
}
