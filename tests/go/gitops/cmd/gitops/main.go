// Command gitops synchronises a workspace with manifests as Argo CD does, with its own engine: a cache of everything
// that can be listed and watched, the schemas of openapi v2, three-way differences, waves and pruning.
//
// Its arguments are the manifests. It prints one line of JSON for each check that held, as the commands of the module
// above do; this one stands apart, because the engine is built on other versions of Kubernetes' libraries.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/engine"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync/common"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	mark      = "atoll.dev/synced-by"
	namespace = "default"
	patience  = 90 * time.Second
)

// managed tells what belongs to the synchronisation.
type managed struct{ is bool }

type gitops struct {
	engine  engine.GitOpsEngine
	cache   cache.ClusterCache
	objects []*unstructured.Unstructured
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig; its current context is the workspace to fill")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, err := connect(*kubeconfig, flag.Args())
	if err != nil {
		fail("cache", err)
	}
	tell("cache", found.cache.GetServerVersion())
	for _, check := range []struct {
		name string
		run  func(context.Context) (any, error)
	}{{"definitions", found.defines}, {"sync", found.syncs}, {"sync again", found.syncsAgain}, {"prune", found.prunes}} {
		told, err := check.run(ctx)
		if err != nil {
			fail(check.name, err)
		}
		tell(check.name, told)
	}
}

func tell(name string, found any) {
	told, err := json.Marshal(map[string]any{"check": name, "found": found})
	if err != nil {
		fail(name, err)
	}
	fmt.Println(string(told))
}

func fail(name string, err error) {
	fmt.Fprintf(os.Stderr, "FAILED %s: %v\n", name, err)
	os.Exit(1)
}

func connect(kubeconfig string, paths []string) (*gitops, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 1000, 1000
	found := &gitops{}
	found.cache = cache.NewClusterCache(config, cache.SetLogr(logr.Discard()),
		cache.SetPopulateResourceInfoHandler(func(each *unstructured.Unstructured, _ bool) (any, bool) {
			is := each.GetAnnotations()[mark] != ""
			return &managed{is}, is
		}),
	)
	found.engine = engine.NewEngine(config, found.cache, engine.WithLogr(logr.Discard()))
	if _, err := found.engine.Run(); err != nil {
		return nil, err
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		items, err := kube.SplitYAML(data)
		if err != nil {
			return nil, err
		}
		found.objects = append(found.objects, items...)
	}
	for _, each := range found.objects {
		annotations := each.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[mark] = "test"
		each.SetAnnotations(annotations)
	}
	return found, nil
}

func (g *gitops) sync(ctx context.Context, objects []*unstructured.Unstructured) ([]common.ResourceSyncResult, error) {
	mine := func(each *cache.Resource) bool { return each.Info.(*managed).is }
	return g.engine.Sync(ctx, objects, mine, "1", namespace, sync.WithPrune(true), sync.WithLogr(logr.Discard()))
}

// outcome counts how the objects fared; any that failed is an error.
func outcome(results []common.ResourceSyncResult) (map[string]int, error) {
	found := map[string]int{}
	for _, each := range results {
		if each.Status == common.ResultCodeSyncFailed {
			return nil, fmt.Errorf("%s: %s", each.ResourceKey, each.Message)
		}
		found[string(each.Status)]++
	}
	return found, nil
}

// defines synchronises the definitions alone: the engine discovers what is served once for each synchronisation.
func (g *gitops) defines(ctx context.Context) (any, error) {
	return g.all(ctx, g.definitions())
}

func (g *gitops) definitions() []*unstructured.Unstructured {
	definitions := []*unstructured.Unstructured{}
	for _, each := range g.objects {
		if kube.IsCRD(each) {
			definitions = append(definitions, each)
		}
	}
	return definitions
}

func (g *gitops) syncs(ctx context.Context) (any, error) {
	return g.all(ctx, g.objects)
}

// all synchronises objects, each of which must come out synchronised.
func (g *gitops) all(ctx context.Context, objects []*unstructured.Unstructured) (any, error) {
	results, err := g.sync(ctx, objects)
	if err != nil {
		return nil, err
	}
	found, err := outcome(results)
	if err != nil {
		return nil, err
	}
	if found[string(common.ResultCodeSynced)] != len(objects) {
		return nil, fmt.Errorf("of %d objects: %v", len(objects), found)
	}
	return found, nil
}

func (g *gitops) syncsAgain(ctx context.Context) (any, error) {
	results, err := g.sync(ctx, g.objects)
	if err != nil {
		return nil, err
	}
	return outcome(results)
}

// prunes synchronises with the definitions alone and then with nothing, which takes away all that came before. At once
// it would be a race, in any cluster: the engine deletes what it prunes in one go, and a definition takes its objects
// along.
func (g *gitops) prunes(ctx context.Context) (any, error) {
	definitions := g.definitions()
	objects, err := g.pruned(ctx, len(g.objects), definitions)
	if err != nil {
		return nil, err
	}
	defined, err := g.pruned(ctx, len(definitions), nil)
	if err != nil {
		return nil, err
	}
	if objects+defined != len(g.objects) {
		return nil, fmt.Errorf("of %d objects: %d and %d", len(g.objects), objects, defined)
	}
	return map[string]int{"objects": objects, "definitions": defined}, nil
}

// pruned keeps some of the objects that are there and counts those that went.
func (g *gitops) pruned(ctx context.Context, there int, kept []*unstructured.Unstructured) (int, error) {
	if err := g.known(ctx, there); err != nil {
		return 0, err
	}
	results, err := g.sync(ctx, kept)
	if err != nil {
		return 0, err
	}
	found, err := outcome(results)
	return found[string(common.ResultCodePruned)], err
}

// known waits until the watches of the cache have told of as many objects as are there.
func (g *gitops) known(ctx context.Context, there int) error {
	for {
		found := g.cache.FindResources("", func(each *cache.Resource) bool { return each.Info.(*managed).is })
		if len(found) == there {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cache knows %d of %d objects", len(found), there)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
