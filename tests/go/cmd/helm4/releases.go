package main

import (
	"atoll.dev/tests/internal/chart"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
)

// releases is Helm 4 on charts whose objects nobody makes ready.
type releases struct{ helm }

func (r releases) Install(name string, files map[string][]byte, values map[string]any) (string, error) {
	found, err := loaded(files)
	if err != nil {
		return "", err
	}
	run := action.NewInstall(r.config)
	run.ReleaseName, run.Namespace, run.Timeout, run.WaitStrategy = name, chart.Namespace, timeout, kube.HookOnlyStrategy
	made, err := run.Run(found, values)
	if err != nil {
		return "", err
	}
	return made.(*release.Release).Manifest, nil
}

func (r releases) Upgrade(name string, files map[string][]byte, values map[string]any) (string, error) {
	found, err := loaded(files)
	if err != nil {
		return "", err
	}
	run := action.NewUpgrade(r.config)
	run.Namespace, run.Timeout, run.WaitStrategy = chart.Namespace, timeout, kube.HookOnlyStrategy
	run.ServerSideApply = "auto"
	made, err := run.Run(name, found, values)
	if err != nil {
		return "", err
	}
	return made.(*release.Release).Manifest, nil
}

func (r releases) RollBack(name string) (string, error) {
	run := action.NewRollback(r.config)
	run.Version, run.Timeout, run.WaitStrategy = 1, timeout, kube.HookOnlyStrategy
	run.ServerSideApply = "auto"
	if err := run.Run(name); err != nil {
		return "", err
	}
	made, err := action.NewGet(r.config).Run(name)
	if err != nil {
		return "", err
	}
	return made.(*release.Release).Manifest, nil
}

func (r releases) Uninstall(name string) error {
	run := action.NewUninstall(r.config)
	run.Timeout, run.WaitStrategy = timeout, kube.HookOnlyStrategy
	_, err := run.Run(name)
	return err
}
