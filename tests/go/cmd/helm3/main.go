// Command helm3 installs, upgrades, rolls back and uninstalls a chart of native kinds and one CRD with Helm 3 as a
// library, which patches on the client's side. With the argument "workloads" it
// does so with three charts of Kubernetes' own kinds, and waits for nothing to become ready.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"atoll.dev/tests/internal/chart"
	"atoll.dev/tests/internal/checks"
	"helm.sh/helm/v3/pkg/action"
	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/cli"
	"k8s.io/client-go/rest"
)

const timeout = 30 * time.Second

type helm struct {
	rest   *rest.Config
	config *action.Configuration
	chart  *helmchart.Chart
}

func main() {
	log.SetOutput(io.Discard)
	list := []checks.Check[helm]{
		{Name: "dry run", Run: dryRun},
		{Name: "install", Run: install},
		{Name: "upgrade", Run: upgrade},
		{Name: "history", Run: history},
		{Name: "roll back", Run: rollBack},
		{Name: "uninstall", Run: uninstall},
	}
	if slices.Contains(os.Args, "workloads") {
		list = chart.Workloads(func(h helm) chart.Releases { return releases{h} }, func(h helm) *rest.Config { return h.rest })
	}
	checks.Main(connect, list)
}

func connect(target checks.Target) (helm, error) {
	settings := cli.New()
	settings.KubeConfig = target.Kubeconfig
	settings.SetNamespace(chart.Namespace)
	found := helm{rest: target.Config, config: &action.Configuration{}}
	if err := found.config.Init(settings.RESTClientGetter(), chart.Namespace, "secret", func(string, ...any) {}); err != nil {
		return helm{}, err
	}
	contents, err := chart.Files()
	if err != nil {
		return helm{}, err
	}
	found.chart, err = loaded(contents)
	return found, err
}

func loaded(contents map[string][]byte) (*helmchart.Chart, error) {
	files := []*loader.BufferedFile{}
	for name, data := range contents {
		files = append(files, &loader.BufferedFile{Name: name, Data: data})
	}
	return loader.LoadFiles(files)
}

func (h helm) installation() *action.Install {
	run := action.NewInstall(h.config)
	run.ReleaseName, run.Namespace, run.Timeout, run.Wait = chart.Release, chart.Namespace, timeout, true
	return run
}

// dryRun asks the server about everything and leaves nothing.
func dryRun(ctx context.Context, h helm) (any, error) {
	run := h.installation()
	run.DryRun, run.DryRunOption, run.Wait = true, "server", false
	made, err := run.Run(&helmchart.Chart{Metadata: h.chart.Metadata, Values: h.chart.Values, Templates: h.native()}, chart.First)
	if err != nil {
		return nil, err
	}
	return len(made.Manifest), chart.Absent(ctx, h.rest)
}

// native is the chart without what needs its definition.
func (h helm) native() []*helmchart.File {
	found := []*helmchart.File{}
	for _, file := range h.chart.Templates {
		if !strings.Contains(file.Name, "lantern") {
			found = append(found, file)
		}
	}
	return found
}

func install(ctx context.Context, h helm) (any, error) {
	made, err := h.installation().Run(h.chart, chart.First)
	if err != nil {
		return nil, err
	}
	if err := checks.Expect("revision", made.Version, 1); err != nil {
		return nil, err
	}
	return chart.Holds(ctx, h.rest, chart.First, 1)
}

func upgrade(ctx context.Context, h helm) (any, error) {
	run := action.NewUpgrade(h.config)
	run.Namespace, run.Timeout, run.Wait = chart.Namespace, timeout, true
	made, err := run.Run(chart.Release, h.chart, chart.Second)
	if err != nil {
		return nil, err
	}
	if err := checks.Expect("revision", made.Version, 2); err != nil {
		return nil, err
	}
	return chart.Holds(ctx, h.rest, chart.Second, 2)
}

func history(_ context.Context, h helm) (any, error) {
	found, err := action.NewHistory(h.config).Run(chart.Release)
	if err != nil {
		return nil, err
	}
	states := []string{}
	for _, each := range found {
		states = append(states, fmt.Sprint(each.Version, " ", each.Info.Status))
	}
	return states, checks.Expect("revisions", len(found), 2)
}

func rollBack(ctx context.Context, h helm) (any, error) {
	run := action.NewRollback(h.config)
	run.Version, run.Timeout, run.Wait = 1, timeout, true
	if err := run.Run(chart.Release); err != nil {
		return nil, err
	}
	// The manifests of a rollback are those of the revision it goes back to.
	return chart.Holds(ctx, h.rest, chart.First, 1)
}

func uninstall(ctx context.Context, h helm) (any, error) {
	run := action.NewUninstall(h.config)
	run.Timeout, run.Wait = timeout, true
	if _, err := run.Run(chart.Release); err != nil {
		return nil, err
	}
	return nil, chart.Gone(ctx, h.rest)
}
