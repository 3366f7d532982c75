package main

import (
	"context"
	"fmt"
	"strings"

	"atoll.dev/tests/internal/checks"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// updatable is a typed client of one kind.
type updatable[T metav1.Object] interface {
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
}

// updatesAll reads an object of each kind, in each version that the types have, and puts it back with a label.
func updatesAll(ctx context.Context, s *site) (any, error) {
	mine, theirs, home := s.kcp.Cluster(s.provider.path), s.kcp.Cluster(s.consumers[0].path), s.kcp.Cluster(s.home)
	workspace := s.consumers[0].path.Base()
	kinds := map[string]func() error{
		"export v1alpha1":  func() error { return puts(ctx, mine.ApisV1alpha1().APIExports(), exportName, "one") },
		"export v1alpha2":  func() error { return puts(ctx, mine.ApisV1alpha2().APIExports(), exportName, "two") },
		"schema":           func() error { return puts(ctx, mine.ApisV1alpha1().APIResourceSchemas(), schemaName, "one") },
		"slice":            func() error { return puts(ctx, mine.ApisV1alpha1().APIExportEndpointSlices(), exportName, "one") },
		"binding v1alpha1": func() error { return puts(ctx, theirs.ApisV1alpha1().APIBindings(), exportName, "one") },
		"binding v1alpha2": func() error { return puts(ctx, theirs.ApisV1alpha2().APIBindings(), exportName, "two") },
		"workspace":        func() error { return puts(ctx, home.TenancyV1alpha1().Workspaces(), workspace, "one") },
	}
	for kind, put := range kinds {
		if err := put(); err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
	}
	return len(kinds), nil
}

// puts updates one object until nobody was faster, and compares labels and annotations with what was sent.
func puts[T metav1.Object](ctx context.Context, objects updatable[T], name, value string) error {
	return checks.Until(ctx, "update of "+name, func() (bool, error) {
		found, err := objects.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		labels := map[string]string{marked: value}
		for key, value := range found.GetLabels() {
			if key != marked {
				labels[key] = value
			}
		}
		found.SetLabels(labels)
		changed, err := objects.Update(ctx, found, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if !equality.Semantic.DeepEqual(written(changed.GetLabels()), written(found.GetLabels())) ||
			!equality.Semantic.DeepEqual(changed.GetAnnotations(), found.GetAnnotations()) {
			return false, fmt.Errorf("sent %v %v, got %v %v",
				found.GetLabels(), found.GetAnnotations(), changed.GetLabels(), changed.GetAnnotations())
		}
		// A spec that lost or gained anything would be of a new generation.
		return true, checks.Expect("generation", changed.GetGeneration(), found.GetGeneration())
	})
}

// written leaves out labels that the server keeps: a slice has one until its own path is known where it lies.
func written(labels map[string]string) map[string]string {
	left := map[string]string{}
	for key, value := range labels {
		if !strings.HasPrefix(key, "internal.apis.kcp.io/") {
			left[key] = value
		}
	}
	return left
}
