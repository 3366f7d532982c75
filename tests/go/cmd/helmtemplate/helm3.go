package main

import (
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
)

func helm3(one asked) ([]string, error) {
	chart, err := loader.LoadDir(one.Chart)
	if err != nil {
		return nil, err
	}
	run := action.NewInstall(&action.Configuration{})
	run.ClientOnly, run.DryRun, run.Replace = true, true, true
	run.ReleaseName, run.Namespace = one.Release, one.Namespace
	if run.KubeVersion, err = chartutil.ParseKubeVersion(one.Kubernetes); err != nil {
		return nil, err
	}
	made, err := run.Run(chart, one.Values)
	if err != nil {
		return nil, err
	}
	manifests := []string{made.Manifest}
	for _, hook := range made.Hooks {
		manifests = append(manifests, hook.Manifest)
	}
	return manifests, nil
}
