// Command providers is two controllers on kcp's multicluster-provider, which finds the shards of a site by itself:
//
//	providers -kubeconfig K apiexport SLICE     each circle of each consumer of an export gets a mark and a status
//	providers -kubeconfig K initializing TYPE   each new workspace of a type gets a mark, and then goes on
//
// The current context is the workspace of the slice or of the type. It runs until it is ended, and prints a line for
// each workspace that joins (`engaged CLUSTER`) and leaves (`disengaged CLUSTER`).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/kcp-dev/logicalcluster/v3"
)

func main() {
	log.SetLogger(logr.Discard())
	// A set of its own: controller-runtime puts a flag of the same name into the common one.
	flags := flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig; its current context is the workspace of the slice or type")
	_ = flags.Parse(os.Args[1:])
	if err := run(*kubeconfig, flags.Arg(0), flags.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, kind, name string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apisv1alpha1.AddToScheme, corev1alpha1.AddToScheme, tenancyv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	switch kind {
	case "apiexport":
		return serveExport(config, scheme, name)
	case "initializing":
		return initialize(config, scheme, name)
	}
	return fmt.Errorf("%q is neither apiexport nor initializing", kind)
}

func newManager(config *rest.Config, scheme *runtime.Scheme, provider multicluster.Provider) (mcmanager.Manager, error) {
	options := mcmanager.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}}
	return mcmanager.New(config, provider, options)
}

func start(manager mcmanager.Manager) error {
	return manager.Start(context.Background())
}

// announcer prints who joins and leaves.
type announcer struct{}

func (announcer) OnAdd(obj client.Object)     { fmt.Println("engaged", logicalcluster.From(obj)) }
func (announcer) OnUpdate(_, _ client.Object) {}
func (announcer) OnDelete(obj client.Object)  { fmt.Println("disengaged", logicalcluster.From(obj)) }
