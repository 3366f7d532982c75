package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"atoll.dev/tests/internal/checks"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var (
	crds  = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	boats = schema.GroupVersionResource{Group: "sea.example.com", Version: "v1", Resource: "boats"}
)

// queries remembers the query strings of requests, to tell a watch-list from a list.
type queries struct {
	next http.RoundTripper
	lock *sync.Mutex
	seen *[]string
}

func (q queries) RoundTrip(request *http.Request) (*http.Response, error) {
	q.lock.Lock()
	*q.seen = append(*q.seen, request.URL.RawQuery)
	q.lock.Unlock()
	return q.next.RoundTrip(request)
}

// watchLists says whether informers begin with a watch-list, which KUBE_FEATURE_WatchListClient=false turns off.
func watchLists() bool {
	return features.FeatureGates().Enabled(features.WatchListClient)
}

// informer syncs and then sees what is made, changed and deleted, in this order.
func informer(ctx context.Context, c clients) error {
	var lock sync.Mutex
	var seen []string
	config := rest.CopyConfig(c.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return queries{next, &lock, &seen} })
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	api := c.typed.CoreV1().ConfigMaps(namespace)
	for number := range 5 {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("before-%d", number)}}
		if _, err := api.Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace(namespace))
	events := follow(factory.Core().V1().ConfigMaps().Informer())
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("%v did not sync", kind)
		}
	}
	lock.Lock()
	first := seen[0]
	lock.Unlock()
	isWatchList := strings.Contains(first, "sendInitialEvents=true")
	if err := checks.Expect("the first request is a watch-list", isWatchList, watchLists()); err != nil {
		return fmt.Errorf("%w: %q", err, first)
	}
	return changes(ctx, c, events)
}

func changes(ctx context.Context, c clients, events <-chan string) error {
	api := c.typed.CoreV1().ConfigMaps(namespace)
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "live"}}
	made, err := api.Create(ctx, made, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Data = map[string]string{"a": "b"}
	if _, err := api.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := api.Delete(ctx, "live", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return await(ctx, events, "added live", "updated live", "deleted live")
}

// metadataInformer knows every ConfigMap by its metadata alone.
func metadataInformer(ctx context.Context, c clients) error {
	factory := metadatainformer.NewSharedInformerFactory(c.metadata, 0)
	found := factory.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	events := follow(found.Informer())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	object, err := found.Lister().ByNamespace(namespace).Get("before-3")
	if err != nil {
		return err
	}
	if partial, ok := object.(*metav1.PartialObjectMetadata); !ok || partial.Name != "before-3" {
		return fmt.Errorf("the lister gave %T", object)
	}
	return changes(ctx, c, events)
}

func customResource(ctx context.Context, c clients) error {
	if _, err := c.dynamic.Resource(crds).Create(ctx, boatDefinition(), metav1.CreateOptions{}); err != nil {
		return err
	}
	api := c.dynamic.Resource(boats).Namespace(namespace)
	boat := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "sea.example.com/v1", "kind": "Boat", "metadata": map[string]any{"name": "ida"},
		"spec": map[string]any{"masts": int64(2)},
	}}
	err := checks.Until(ctx, "boats are served", func() (bool, error) {
		_, err := api.Create(ctx, boat, metav1.CreateOptions{})
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	patch := []byte(`{"spec":{"masts":3}}`)
	changed, err := api.Patch(ctx, "ida", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	masts, _, err := unstructured.NestedInt64(changed.Object, "spec", "masts")
	if err != nil {
		return err
	}
	if err := checks.Expect("masts", masts, 3); err != nil {
		return err
	}
	listed, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if err := checks.Expect("boats", len(listed.Items), 1); err != nil {
		return err
	}
	return api.Delete(ctx, "ida", metav1.DeleteOptions{})
}

// dynamicInformer follows the custom resources by their watch, of which nothing is known at compile time.
func dynamicInformer(ctx context.Context, c clients) error {
	factory := dynamicinformer.NewDynamicSharedInformerFactory(c.dynamic, 0)
	events := follow(factory.ForResource(boats).Informer())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	api := c.dynamic.Resource(boats).Namespace(namespace)
	boat := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "sea.example.com/v1", "kind": "Boat", "metadata": map[string]any{"name": "tender"},
	}}
	if _, err := api.Apply(ctx, "tender", boat, metav1.ApplyOptions{FieldManager: "sea"}); err != nil {
		return err
	}
	if err := unstructured.SetNestedField(boat.Object, int64(1), "spec", "masts"); err != nil {
		return err
	}
	if _, err := api.Apply(ctx, "tender", boat, metav1.ApplyOptions{FieldManager: "sea"}); err != nil {
		return err
	}
	if err := api.Delete(ctx, "tender", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return await(ctx, events, "added tender", "updated tender", "deleted tender")
}

func boatDefinition() *unstructured.Unstructured {
	integer := map[string]any{"type": "integer"}
	spec := map[string]any{"type": "object", "properties": map[string]any{"masts": integer}}
	version := map[string]any{
		"name": "v1", "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "properties": map[string]any{"spec": spec},
		}},
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "boats.sea.example.com"},
		"spec": map[string]any{
			"group": "sea.example.com", "scope": "Namespaced", "versions": []any{version},
			"names": map[string]any{"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
		},
	}}
}

// follow gives an informer's events as "<what> <name>". Enough of them are kept that the informer never waits.
func follow(informer cache.SharedIndexInformer) <-chan string {
	events := make(chan string, 1000)
	tell := func(what string, object any) {
		if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = missed.Obj
		}
		if accessor, ok := object.(metav1.Object); ok {
			events <- what + " " + accessor.GetName()
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { tell("added", object) },
		UpdateFunc: func(_, object any) { tell("updated", object) },
		DeleteFunc: func(object any) { tell("deleted", object) },
	})
	if err != nil {
		panic(err)
	}
	return events
}

// awaitAll reads events until the wanted ones came, in any order; others may come between them.
func awaitAll(ctx context.Context, events <-chan string, wanted ...string) error {
	for len(wanted) > 0 {
		select {
		case found := <-events:
			wanted = slices.DeleteFunc(wanted, func(each string) bool { return each == found })
		case <-ctx.Done():
			return fmt.Errorf("never came: %q", wanted)
		}
	}
	return nil
}

// await reads events until the wanted ones came, in their order; others may come between them.
func await(ctx context.Context, events <-chan string, wanted ...string) error {
	for _, want := range wanted {
		for found := ""; found != want; {
			select {
			case found = <-events:
			case <-ctx.Done():
				return errors.New("never came: " + want)
			}
		}
	}
	return nil
}
