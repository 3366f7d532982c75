// Command clients walks through what programs built on client-go do to an API server, one named check after the other,
// with client-go's own defaults: typed clients send protobuf bodies, informers begin with a watch-list.
//
// With the argument "workloads" it does what needs Deployments that nobody has to define. `clients follow KUBECONFIG` instead
// tells what an informer sees, until it is killed.
package main

import (
	"context"
	"os"
	"slices"

	"atoll.dev/tests/internal/checks"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

const namespace = "default"

// clients are all made from one configuration, of which nothing is set but where and who.
type clients struct {
	config    *rest.Config
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	discovery discovery.DiscoveryInterface
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "follow" {
		followUntilKilled(os.Args[2])
	}
	list := []checks.Check[clients]{
		{Name: "typed bodies are protobuf", Run: plain(bodiesAreProtobuf)},
		{Name: "configmap", Run: plain(configMap)},
		{Name: "secret", Run: plain(secret)},
		{Name: "namespace", Run: plain(namespaceLives)},
		{Name: "event", Run: plain(event)},
		{Name: "access review", Run: plain(accessReview)},
		{Name: "token request", Run: plain(tokenRequest)},
		{Name: "patches", Run: plain(patches)},
		{Name: "apply", Run: plain(typedApply)},
		{Name: "watch", Run: watches},
		{Name: "leader election", Run: plain(leaderElection)},
		{Name: "informer", Run: plain(informer)},
		{Name: "metadata informer", Run: plain(metadataInformer)},
		{Name: "dynamic client", Run: plain(customResource)},
		{Name: "dynamic informer", Run: plain(dynamicInformer)},
		{Name: "deployments", Run: plain(deployments)},
		{Name: "discovery", Run: discovered},
		{Name: "REST mapper", Run: mapped},
		{Name: "openapi v2", Run: openAPIv2},
		{Name: "openapi v3", Run: openAPIv3},
		{Name: "pages", Run: pages},
	}
	if slices.Contains(os.Args, "workloads") {
		list = []checks.Check[clients]{
			{Name: "protobuf informer", Run: deploymentInformer(protobuf)},
			{Name: "JSON informer", Run: deploymentInformer("application/json")},
		}
	}
	checks.Main(connect, list)
}

func connect(target checks.Target) (clients, error) {
	var err error
	config := target.Config
	found := clients{config: config}
	if found.typed, err = kubernetes.NewForConfig(config); err != nil {
		return clients{}, err
	}
	if found.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return clients{}, err
	}
	found.discovery = found.typed.Discovery()
	found.metadata, err = metadata.NewForConfig(config)
	return found, err
}

// plain is a check that has nothing to tell beyond that it held.
func plain(run func(context.Context, clients) error) func(context.Context, clients) (any, error) {
	return func(ctx context.Context, c clients) (any, error) { return nil, run(ctx, c) }
}
