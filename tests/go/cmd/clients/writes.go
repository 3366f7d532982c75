package main

import (
	"context"
	"errors"
	"fmt"

	"atoll.dev/tests/internal/checks"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/retry"
)

// patches sends the three patches that are no apply through a typed client, and a dry run that leaves nothing.
func patches(ctx context.Context, c clients) error {
	api := c.typed.CoreV1().ServiceAccounts(namespace)
	made := &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "patched"}, Secrets: []corev1.ObjectReference{{Name: "one"}},
	}
	if _, err := api.Create(ctx, made, metav1.CreateOptions{}); err != nil {
		return err
	}
	kinds := []struct {
		kind    types.PatchType
		body    string
		secrets int
	}{
		{types.StrategicMergePatchType, `{"secrets":[{"name":"two"}]}`, 2},
		{types.JSONPatchType, `[{"op":"test","path":"/secrets/0/name","value":"two"},{"op":"remove","path":"/secrets/0"}]`, 1},
		{types.MergePatchType, `{"secrets":[{"name":"a"},{"name":"b"},{"name":"c"}]}`, 3},
	}
	for _, patch := range kinds {
		dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
		if _, err := api.Patch(ctx, "patched", patch.kind, []byte(patch.body), dry); err != nil {
			return fmt.Errorf("%s, dry: %w", patch.kind, err)
		}
		changed, err := api.Patch(ctx, "patched", patch.kind, []byte(patch.body), metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("%s: %w", patch.kind, err)
		}
		if err := checks.Expect(string(patch.kind), len(changed.Secrets), patch.secrets); err != nil {
			return err
		}
	}
	_, err := api.Patch(ctx, "patched", types.JSONPatchType, []byte(`[{"op":"test","path":"/secrets/0/name","value":"z"}]`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		return fmt.Errorf("a failing test gave %v", err)
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := api.Get(ctx, "patched", metav1.GetOptions{})
		if err != nil {
			return err
		}
		found.Secrets = nil
		_, err = api.Update(ctx, found, metav1.UpdateOptions{})
		return err
	})
}

// typedApply applies by typed configurations: a no-op keeps the revision, two managers conflict, force decides, and what
// an owner leaves out goes. Extracting gives back what was applied.
func typedApply(ctx context.Context, c clients) error {
	api := c.typed.CoreV1().ConfigMaps(namespace)
	wanted := applycorev1.ConfigMap("applied", namespace).WithData(map[string]string{"a": "1", "b": "2"})
	first, err := api.Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: "one"})
	if err != nil {
		return err
	}
	again, err := api.Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: "one"})
	if err != nil {
		return err
	}
	if err := checks.Expect("revision after a no-op", again.ResourceVersion, first.ResourceVersion); err != nil {
		return err
	}
	other := applycorev1.ConfigMap("applied", namespace).WithData(map[string]string{"a": "3"})
	if _, err := api.Apply(ctx, other, metav1.ApplyOptions{FieldManager: "two"}); !apierrors.IsConflict(err) {
		return fmt.Errorf("a second manager gave %v", err)
	}
	if _, err := api.Apply(ctx, other, metav1.ApplyOptions{FieldManager: "two", Force: true}); err != nil {
		return err
	}
	left := applycorev1.ConfigMap("applied", namespace).WithLabels(map[string]string{"kept": "yes"})
	final, err := api.Apply(ctx, left, metav1.ApplyOptions{FieldManager: "one"})
	if err != nil {
		return err
	}
	if len(final.Data) != 1 || final.Data["a"] != "3" || final.Labels["kept"] != "yes" {
		return fmt.Errorf("left over: %v %v", final.Data, final.Labels)
	}
	return extracted(final)
}

func extracted(found *corev1.ConfigMap) error {
	mine, err := applycorev1.ExtractConfigMap(found, "two")
	if err != nil {
		return err
	}
	if len(mine.Data) != 1 || mine.Labels != nil {
		return fmt.Errorf("extracted %v %v", mine.Data, mine.Labels)
	}
	return nil
}

// watches sees one object's life by a watch of typed clients, protobuf frames included, in order of revisions.
func watches(ctx context.Context, c clients) (any, error) {
	api := c.typed.RbacV1().Roles(namespace)
	listed, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	events, err := api.Watch(ctx, metav1.ListOptions{ResourceVersion: listed.ResourceVersion, LabelSelector: "watched=yes"})
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "watched", Labels: map[string]string{"watched": "yes"}}}
	if role, err = api.Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	role.Rules = []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}}
	if role, err = api.Update(ctx, role, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	role.Labels = nil
	if _, err = api.Update(ctx, role, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	seen := []string{}
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		select {
		case event, open := <-events.ResultChan():
			if !open || event.Type != want {
				return nil, fmt.Errorf("%v instead of %s", event, want)
			}
			seen = append(seen, string(event.Type))
		case <-ctx.Done():
			return nil, errors.New("never came: " + string(want))
		}
	}
	return seen, api.Delete(ctx, "watched", metav1.DeleteOptions{})
}
