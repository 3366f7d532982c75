// Command informers is kcp's shared informers on all workspaces of each shard:
//
//	informers -kubeconfig K NAME=URL...
//
// It runs until it is ended. Once the caches of a shard are filled it prints `synced NAME`; then `bound NAME CLUSTER
// BINDING` for each APIBinding that is bound, and `unbound NAME CLUSTER BINDING` for each that is gone, where the lister
// of that cluster has it or has it no more. The user of the context system:admin asks. Workspaces are of an export, so
// their wildcard names its identity, as that of kcp's own controllers does.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	"github.com/kcp-dev/sdk/apis/core"
	kcpclient "github.com/kcp-dev/sdk/client/clientset/versioned/cluster"
	"github.com/kcp-dev/sdk/client/informers/externalversions"
	listers "github.com/kcp-dev/sdk/client/listers/apis/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const workspaces = "/clusters/*/apis/tenancy.kcp.io/v1alpha1/workspaces"

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig with the contexts base and system:admin")
	flag.Parse()
	if err := run(*kubeconfig, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

func run(kubeconfig string, shards []string) error {
	proxy, err := inContext(kubeconfig, "base")
	if err != nil {
		return err
	}
	identity, err := identityOf(proxy, "tenancy.kcp.io")
	if err != nil {
		return err
	}
	admin, err := inContext(kubeconfig, "system:admin")
	if err != nil {
		return err
	}
	admin.Wrap(func(next http.RoundTripper) http.RoundTripper { return &identifier{next, identity} })
	for _, shard := range shards {
		name, url, _ := strings.Cut(shard, "=")
		if err := follow(admin, name, url); err != nil {
			return err
		}
	}
	return nil
}

func inContext(kubeconfig, name string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: name}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
}

// identityOf reads the identity hash of an export of root.
func identityOf(proxy *rest.Config, export string) (string, error) {
	clients, err := kcpclient.NewForConfig(proxy)
	if err != nil {
		return "", err
	}
	root := clients.Cluster(core.RootCluster.Path())
	found, err := root.ApisV1alpha2().APIExports().Get(context.Background(), export, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return found.Status.IdentityHash, nil
}

// identifier puts the identity into wildcard requests of workspaces.
type identifier struct {
	next     http.RoundTripper
	identity string
}

func (i *identifier) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Path == workspaces {
		request = request.Clone(request.Context())
		request.URL.Path += ":" + i.identity
	}
	return i.next.RoundTrip(request)
}

// follow starts the informers of a shard and waits until they are filled.
func follow(admin *rest.Config, name, url string) error {
	config := rest.CopyConfig(admin)
	config.Host = url
	clients, err := kcpclient.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := externalversions.NewSharedInformerFactory(clients, 0)
	bindings := factory.Apis().V1alpha2().APIBindings()
	factory.Core().V1alpha1().LogicalClusters().Informer()
	factory.Tenancy().V1alpha1().Workspaces().Informer()
	made := &printer{name, bindings.Lister()}
	_, err = bindings.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: made.seen, UpdateFunc: func(_, obj any) { made.seen(obj) }, DeleteFunc: made.gone,
	})
	if err != nil {
		return err
	}
	ctx := context.Background()
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("%s: %v was not filled", name, kind)
		}
	}
	fmt.Println("synced", name)
	return nil
}

type printer struct {
	shard string
	lists listers.APIBindingClusterLister
}

func (p *printer) seen(obj any) {
	binding := obj.(*apisv1alpha2.APIBinding)
	cluster := logicalcluster.From(binding)
	_, err := p.lists.Cluster(cluster).Get(binding.Name)
	if err == nil && binding.Status.Phase == apisv1alpha2.APIBindingPhaseBound {
		fmt.Println("bound", p.shard, cluster, binding.Name)
	}
}

func (p *printer) gone(obj any) {
	if last, unknown := obj.(cache.DeletedFinalStateUnknown); unknown {
		obj = last.Obj
	}
	binding := obj.(*apisv1alpha2.APIBinding)
	cluster := logicalcluster.From(binding)
	if _, err := p.lists.Cluster(cluster).Get(binding.Name); err != nil {
		fmt.Println("unbound", p.shard, cluster, binding.Name)
	}
}
