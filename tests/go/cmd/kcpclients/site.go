package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"atoll.dev/tests/internal/checks"
	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	kcpclient "github.com/kcp-dev/sdk/client/clientset/versioned/cluster"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// place is a workspace on a shard.
type place struct {
	path    logicalcluster.Path
	cluster logicalcluster.Name
	shard   string
}

// site is what the checks share: clients of the front proxy and of each shard, and the workspaces that they made.
type site struct {
	proxy     *rest.Config
	kcp       kcpclient.ClusterInterface
	home      logicalcluster.Path
	shards    []string
	masters   map[string]kcpclient.ClusterInterface
	provider  place
	consumers []place
	endpoints []string
}

// connect reads the home workspace from the current context, and shards from arguments NAME=URL. Shards are reached
// as the context system:admin.
func connect(target checks.Target) (*site, error) {
	base, path, found := strings.Cut(target.Config.Host, "/clusters/")
	if !found {
		return nil, errors.New("the current context is no workspace")
	}
	made := &site{
		proxy: withHost(target.Config, base), home: logicalcluster.NewPath(path),
		masters: map[string]kcpclient.ClusterInterface{},
	}
	var err error
	if made.kcp, err = kcpclient.NewForConfig(made.proxy); err != nil {
		return nil, err
	}
	admin, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: target.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: "system:admin"},
	).ClientConfig()
	if err != nil {
		return nil, err
	}
	for _, argument := range target.Arguments {
		name, url, _ := strings.Cut(argument, "=")
		made.shards = append(made.shards, name)
		if made.masters[name], err = kcpclient.NewForConfig(withHost(admin, url)); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// withHost gives a configuration for another URL on the same credentials.
func withHost(config *rest.Config, url string) *rest.Config {
	made := rest.CopyConfig(config)
	made.Host = url
	return made
}

// grow makes a workspace below home on a shard, and returns once it is ready.
func (s *site) grow(ctx context.Context, name, shard string) (place, error) {
	workspaces := s.kcp.Cluster(s.home).TenancyV1alpha1().Workspaces()
	_, err := workspaces.Create(ctx, &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: tenancyv1alpha1.WorkspaceSpec{
			Type:     &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"},
			Location: &tenancyv1alpha1.WorkspaceLocation{Selector: metav1.SetAsLabelSelector(map[string]string{"name": shard})},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return place{}, err
	}
	found, err := awaited(ctx, "workspace "+name, func() (*tenancyv1alpha1.Workspace, bool, error) {
		found, err := workspaces.Get(ctx, name, metav1.GetOptions{})
		return found, err == nil && found.Status.Phase == corev1alpha1.LogicalClusterPhaseReady, err
	})
	if err != nil {
		return place{}, err
	}
	return place{s.home.Join(name), logicalcluster.Name(found.Spec.Cluster), shard}, nil
}

// bind binds the provider's export in a workspace, and returns once it is bound.
func (s *site) bind(ctx context.Context, at place) (*apisv1alpha2.APIBinding, error) {
	bindings := s.kcp.Cluster(at.path).ApisV1alpha2().APIBindings()
	wanted := &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: exportName},
		Spec: apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{
			Export: &apisv1alpha2.ExportBindingReference{Path: s.provider.path.String(), Name: exportName},
		}},
	}
	// The export of another shard is known once its rows have come.
	err := checks.Until(ctx, "a binding in "+at.path.String(), func() (bool, error) {
		_, err := bindings.Create(ctx, wanted, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	return awaited(ctx, "bound in "+at.path.String(), func() (*apisv1alpha2.APIBinding, bool, error) {
		found, err := bindings.Get(ctx, exportName, metav1.GetOptions{})
		return found, err == nil && found.Status.Phase == apisv1alpha2.APIBindingPhaseBound, err
	})
}

// awaited asks until what is found is right.
func awaited[T any](ctx context.Context, what string, ask func() (T, bool, error)) (T, error) {
	var found T
	err := checks.Until(ctx, what, func() (right bool, err error) {
		found, right, err = ask()
		return right, err
	})
	if err != nil {
		return found, fmt.Errorf("%w: last was %+v", err, found)
	}
	return found, nil
}
