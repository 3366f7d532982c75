// Command clientgo walks through what programs built on client-go do to an API server, one named check after the
// other, with client-go's own defaults: typed clients send protobuf bodies, informers begin with a watch-list.
//
// It takes a kubeconfig whose current context is a workspace it may fill, prints "ok <check>" for each check that held
// and leaves with 1 at the first that did not.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	namespace = "default"
	patience  = 30 * time.Second
)

// clients are all made from one configuration, of which nothing is set but where and who.
type clients struct {
	config   *rest.Config
	typed    kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
}

type check struct {
	name string
	run  func(context.Context, clients) error
}

var checks = []check{
	{"typed bodies are protobuf", bodiesAreProtobuf},
	{"configmap", configMap},
	{"secret", secret},
	{"namespace", namespaceLives},
	{"event", event},
	{"access review", accessReview},
	{"token request", tokenRequest},
	{"leader election", leaderElection},
	{"informer", informer},
	{"metadata informer", metadataInformer},
	{"dynamic client", customResource},
}

func main() {
	path := flag.String("kubeconfig", "", "kubeconfig; its current context is used")
	flag.Parse()
	found, err := connect(*path)
	if err != nil {
		fail("connect", err)
	}
	for _, check := range checks {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := check.run(ctx, found)
		cancel()
		if err != nil {
			fail(check.name, err)
		}
		fmt.Println("ok", check.name)
	}
}

func fail(name string, err error) {
	fmt.Printf("FAILED %s: %v\n", name, err)
	os.Exit(1)
}

func connect(path string) (clients, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return clients{}, err
	}
	// The client's own pace is not what is looked at.
	config.QPS, config.Burst = 1000, 1000
	found := clients{config: config}
	if found.typed, err = kubernetes.NewForConfig(config); err != nil {
		return clients{}, err
	}
	if found.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return clients{}, err
	}
	found.metadata, err = metadata.NewForConfig(config)
	return found, err
}

// expect gives an error unless both are the same.
func expect[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

// until waits for a condition that becomes true by what others do.
func until(ctx context.Context, what string, holds func() (bool, error)) error {
	for {
		done, err := holds()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("never came: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
