package main

import (
	"atoll.dev/tests/internal/chart"
	"helm.sh/helm/v3/pkg/action"
)

// releases is Helm 3 on charts whose objects nobody makes ready.
type releases struct{ helm }

func (r releases) Install(name string, files map[string][]byte, values map[string]any) (string, error) {
	found, err := loaded(files)
	if err != nil {
		return "", err
	}
	run := action.NewInstall(r.config)
	run.ReleaseName, run.Namespace, run.Timeout = name, chart.Namespace, timeout
	made, err := run.Run(found, values)
	if err != nil {
		return "", err
	}
	return made.Manifest, nil
}

func (r releases) Upgrade(name string, files map[string][]byte, values map[string]any) (string, error) {
	found, err := loaded(files)
	if err != nil {
		return "", err
	}
	run := action.NewUpgrade(r.config)
	run.Namespace, run.Timeout = chart.Namespace, timeout
	made, err := run.Run(name, found, values)
	if err != nil {
		return "", err
	}
	return made.Manifest, nil
}

func (r releases) RollBack(name string) (string, error) {
	run := action.NewRollback(r.config)
	run.Version, run.Timeout = 1, timeout
	if err := run.Run(name); err != nil {
		return "", err
	}
	made, err := action.NewGet(r.config).Run(name)
	if err != nil {
		return "", err
	}
	return made.Manifest, nil
}

func (r releases) Uninstall(name string) error {
	run := action.NewUninstall(r.config)
	run.Timeout = timeout
	_, err := run.Run(name)
	return err
}
