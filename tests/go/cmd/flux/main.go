// Command flux applies, checks and takes away manifests as Flux does, with the engine of its kustomize-controller:
// in stages, by forced server-side apply after a dry run, waiting by kstatus.
//
// Its arguments are the manifests to apply, definitions before what they define.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"atoll.dev/tests/internal/checks"
	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// clusterWide are the kinds among the manifests that have no namespace.
var clusterWide = []string{
	"CustomResourceDefinition", "GatewayClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}

// drifts are changes by hand of one kind, each a merge patch and the path of what it changes.
var drifts = map[string]struct {
	patch string
	path  []string
}{
	"HTTPRoute":  {`{"spec":{"hostnames":["drifted.example.com"]}}`, []string{"spec", "hostnames"}},
	"Deployment": {`{"spec":{"template":{"spec":{"serviceAccountName":"drifted"}}}}`, []string{"spec", "template", "spec", "serviceAccountName"}},
}

type flux struct {
	client  client.Client
	manager *ssa.ResourceManager
	objects []*unstructured.Unstructured
}

func main() {
	ctrl.SetLogger(logr.Discard())
	checks.Main(connect, []checks.Check[flux]{
		{Name: "apply", Run: appliesAll},
		{Name: "wait", Run: waits},
		{Name: "apply again", Run: staysUnchanged},
		{Name: "diff", Run: findsNoDrift},
		{Name: "drift", Run: correctsDrift},
		{Name: "delete", Run: deletesAll},
	})
}

func connect(target checks.Target) (flux, error) {
	http, err := rest.HTTPClientFor(target.Config)
	if err != nil {
		return flux{}, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(target.Config, http)
	if err != nil {
		return flux{}, err
	}
	made, err := client.New(target.Config, client.Options{Mapper: mapper})
	if err != nil {
		return flux{}, err
	}
	poller := polling.NewStatusPoller(made, mapper, polling.Options{})
	manager := ssa.NewResourceManager(made, poller, ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"})
	objects, err := manifests(target.Arguments)
	if err != nil {
		return flux{}, err
	}
	manager.SetOwnerLabels(objects, "gateways", "default")
	return flux{made, manager, objects}, normalize.UnstructuredList(objects)
}

func manifests(paths []string) ([]*unstructured.Unstructured, error) {
	objects := []*unstructured.Unstructured{}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		found, err := utils.ReadObjects(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		_ = file.Close()
		objects = append(objects, found...)
	}
	for _, each := range objects {
		if each.GetNamespace() == "" && !slices.Contains(clusterWide, each.GetKind()) {
			each.SetNamespace("default")
		}
	}
	return objects, nil
}

// counted says how often each action occurs.
func counted(set *ssa.ChangeSet) map[string]int {
	found := map[string]int{}
	for _, entry := range set.Entries {
		found[string(entry.Action)]++
	}
	return found
}

func (f flux) only(set *ssa.ChangeSet, action ssa.Action) (any, error) {
	found := counted(set)
	if len(found) != 1 || found[string(action)] != len(f.objects) {
		return nil, fmt.Errorf("of %d objects not all were %s: %v\n%s", len(f.objects), action, found, set)
	}
	return found, nil
}

// appliesAll creates everything, definitions first, each stage only when the one before it is ready.
func appliesAll(ctx context.Context, f flux) (any, error) {
	set, err := f.manager.ApplyAllStaged(ctx, f.objects, ssa.DefaultApplyOptions())
	if err != nil {
		return nil, err
	}
	return f.only(set, ssa.CreatedAction)
}

func waits(_ context.Context, f flux) (any, error) {
	definitions := []*unstructured.Unstructured{}
	for _, each := range f.objects {
		if each.GetKind() == "CustomResourceDefinition" {
			definitions = append(definitions, each)
		}
	}
	return len(definitions), f.manager.Wait(definitions, ssa.WaitOptions{Interval: 100 * time.Millisecond, Timeout: 30 * time.Second})
}

func staysUnchanged(ctx context.Context, f flux) (any, error) {
	set, err := f.manager.ApplyAllStaged(ctx, f.objects, ssa.DefaultApplyOptions())
	if err != nil {
		return nil, err
	}
	return f.only(set, ssa.UnchangedAction)
}

// findsNoDrift compares every object with what a dry run of its apply would leave.
func findsNoDrift(ctx context.Context, f flux) (any, error) {
	for _, each := range f.objects {
		entry, live, merged, err := f.manager.Diff(ctx, each.DeepCopy(), ssa.DefaultDiffOptions())
		if err != nil {
			return nil, err
		}
		if entry.Action != ssa.UnchangedAction {
			return nil, fmt.Errorf("%s is %s\n%v\n%v", entry.Subject, entry.Action, live, merged)
		}
	}
	return len(f.objects), nil
}

// correctsDrift changes an object by hand, as `kubectl edit` would, and has the engine take it back.
func correctsDrift(ctx context.Context, f flux) (any, error) {
	index := slices.IndexFunc(f.objects, func(each *unstructured.Unstructured) bool { return drifts[each.GetKind()].patch != "" })
	if index < 0 {
		return nil, errors.New("nothing among the manifests has a drift")
	}
	wanted := f.objects[index]
	drift, before := drifts[wanted.GetKind()], wanted.DeepCopy()
	if err := f.client.Get(ctx, client.ObjectKeyFromObject(wanted), before); err != nil {
		return nil, err
	}
	patch := client.RawPatch(types.MergePatchType, []byte(drift.patch))
	if err := f.client.Patch(ctx, before.DeepCopy(), patch, client.FieldOwner("kubectl-edit")); err != nil {
		return nil, err
	}
	entry, err := f.manager.Apply(ctx, wanted, ssa.DefaultApplyOptions())
	if err != nil {
		return nil, err
	}
	if err := checks.Expect("action", entry.Action, ssa.ConfiguredAction); err != nil {
		return nil, err
	}
	found := wanted.DeepCopy()
	if err := f.client.Get(ctx, client.ObjectKeyFromObject(wanted), found); err != nil {
		return nil, err
	}
	was, _, _ := unstructured.NestedFieldNoCopy(before.Object, drift.path...)
	is, _, _ := unstructured.NestedFieldNoCopy(found.Object, drift.path...)
	return entry.Subject, checks.Expect("after the drift", fmt.Sprint(is), fmt.Sprint(was))
}

func deletesAll(ctx context.Context, f flux) (any, error) {
	set, err := f.manager.DeleteAll(ctx, f.objects, ssa.DefaultDeleteOptions())
	if err != nil {
		return nil, err
	}
	given, err := f.only(set, ssa.DeletedAction)
	if err != nil {
		return nil, err
	}
	return given, f.manager.WaitForTermination(f.objects, ssa.WaitOptions{Interval: 100 * time.Millisecond, Timeout: 30 * time.Second})
}
