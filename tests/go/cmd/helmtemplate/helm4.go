package main

import (
	"fmt"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	release "helm.sh/helm/v4/pkg/release/v1"
)

func helm4(one asked) ([]string, error) {
	chart, err := loader.LoadDir(one.Chart)
	if err != nil {
		return nil, err
	}
	run := action.NewInstall(action.NewConfiguration())
	run.DryRunStrategy, run.Replace = action.DryRunClient, true
	run.ReleaseName, run.Namespace = one.Release, one.Namespace
	if run.KubeVersion, err = common.ParseKubeVersion(one.Kubernetes); err != nil {
		return nil, err
	}
	found, err := run.Run(chart, one.Values)
	if err != nil {
		return nil, err
	}
	made, ok := found.(*release.Release)
	if !ok {
		return nil, fmt.Errorf("a release is a %T", found)
	}
	manifests := []string{made.Manifest}
	for _, hook := range made.Hooks {
		manifests = append(manifests, hook.Manifest)
	}
	return manifests, nil
}
