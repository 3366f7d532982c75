// Package checks runs the named checks of a command against an API server and tells what they found.
//
// A command lists its checks and calls Main. Each check that held is one line of JSON on standard output,
// {"check": its name, "found": what it verified}; the first that did not ends the process with 1 and its error on
// standard error.
package checks

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Patience is what a check may take, waits included.
const Patience = 60 * time.Second

// Target is where the checks go: a workspace, by a configuration of which nothing is set but where and who, and the
// file it was read from; Arguments are those of the command line that are no flags.
type Target struct {
	Config     *rest.Config
	Kubeconfig string
	Arguments  []string
}

// Check is one thing a client does. What it gives beside the error is told as found; it may be nil.
type Check[T any] struct {
	Name string
	Run  func(context.Context, T) (any, error)
}

// Main reads the flag -kubeconfig, makes what the checks share, and runs them in their order.
func Main[T any](connect func(Target) (T, error), list []Check[T]) {
	// A set of its own: libraries put flags of the same name into the common one.
	flags := flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	path := flags.String("kubeconfig", "", "kubeconfig; its current context is the workspace to fill")
	_ = flags.Parse(os.Args[1:])
	config, err := clientcmd.BuildConfigFromFlags("", *path)
	if err != nil {
		fail("kubeconfig", err)
	}
	// A client's own pace is not what is looked at.
	config.QPS, config.Burst = 1000, 1000
	shared, err := connect(Target{config, *path, flags.Args()})
	if err != nil {
		fail("connect", err)
	}
	for _, check := range list {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		found, err := check.Run(ctx, shared)
		cancel()
		if err != nil {
			fail(check.Name, err)
		}
		told, err := json.Marshal(map[string]any{"check": check.Name, "found": found})
		if err != nil {
			fail(check.Name, err)
		}
		fmt.Println(string(told))
	}
}

func fail(name string, err error) {
	fmt.Fprintf(os.Stderr, "FAILED %s: %v\n", name, err)
	os.Exit(1)
}

// Expect gives an error unless both are the same.
func Expect[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

// Until waits for a condition that becomes true by what others do.
func Until(ctx context.Context, what string, holds func() (bool, error)) error {
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
