package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// fieldsCase asks what a series of writes to one object leaves in it, managedFields included. With a schema the kind is
// a custom resource's, otherwise a built-in one. With status, the endpoints reset what they do not write.
type fieldsCase struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Schema     json.RawMessage `json:"schema"`
	Status     bool            `json:"status"`
	Steps      []fieldsStep    `json:"steps"`
}

// fieldsStep is one write: "update" (a create while there is no object) or "apply".
type fieldsStep struct {
	Do          string          `json:"do"`
	Manager     string          `json:"manager"`
	Force       bool            `json:"force"`
	Subresource string          `json:"subresource"`
	Object      json.RawMessage `json:"object"`
}

// fieldsAnswer has for each step the object as it is then stored, or why the step was refused, which leaves it as it
// was. The time of an entry is "old" when the step left it alone, "new" when it moved it, and "none" when there is none.
type fieldsAnswer struct {
	Steps []any `json:"steps"`
}

var longAgo = metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))

func fields(asked fieldsCase) (any, error) {
	kind, err := kindFor(asked)
	if err != nil {
		return nil, err
	}
	given := fieldsAnswer{Steps: []any{}}
	var live runtime.Object
	for _, step := range asked.Steps {
		next, err := kind.write(live, step)
		if err != nil {
			given.Steps = append(given.Steps, refusal(err))
			continue
		}
		shown, err := kind.shown(next)
		if err != nil {
			return nil, err
		}
		live = next
		given.Steps = append(given.Steps, shown)
	}
	return given, nil
}

// refusal is an error with its causes, sorted: upstream walks a Go map to list them.
func refusal(err error) any {
	causes := []string{}
	if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			causes = append(causes, cause.Field+": "+cause.Message)
		}
	}
	slices.Sort(causes)
	conflict := ""
	if apierrors.IsConflict(err) {
		conflict = "conflict"
		return object{"refused": conflict, "causes": causes}
	}
	return object{"refused": err.Error(), "causes": causes}
}

// fieldsKind is a kind as the field manager needs it.
type fieldsKind struct {
	gvk       schema.GroupVersionKind
	types     managedfields.TypeConverter
	converter runtime.ObjectConvertor
	creater   runtime.ObjectCreater
	custom    bool
	status    bool
}

// customTypes remembers the types of the schema last used: cases of one schema come together.
var customTypes struct {
	source string
	types  managedfields.TypeConverter
}

func kindFor(asked fieldsCase) (fieldsKind, error) {
	gv, err := schema.ParseGroupVersion(asked.APIVersion)
	if err != nil {
		return fieldsKind{}, err
	}
	kind := fieldsKind{gvk: gv.WithKind(asked.Kind), custom: asked.Schema != nil, status: asked.Status}
	if !kind.custom {
		kind.types = applyconfigurations.NewTypeConverter(scheme.Scheme)
		kind.creater, kind.converter = typedCreater{}, sameVersion{}
		return kind, nil
	}
	kind.creater, kind.converter = unstructuredCreater{}, sameVersion{}
	mark := asked.APIVersion + asked.Kind + string(asked.Schema)
	if customTypes.source != mark {
		found, err := typesOf(kind.gvk, asked.Schema)
		if err != nil {
			return fieldsKind{}, err
		}
		customTypes.source, customTypes.types = mark, found
	}
	kind.types = customTypes.types
	return kind, nil
}

func (k fieldsKind) manager(subresource string) (*managedfields.FieldManager, error) {
	ignored := map[fieldpath.APIVersion]fieldpath.Filter{}
	version := fieldpath.APIVersion(k.gvk.GroupVersion().String())
	if k.status && subresource == "" {
		ignored[version] = fieldpath.NewExcludeSetFilter(fieldpath.NewSet(fieldpath.MakePathOrDie("status")))
	} else if subresource == "status" {
		ignored[version] = fieldpath.NewIncludeMatcherFilter(fieldpath.MakePrefixMatcherOrDie("status"))
	}
	build := managedfields.NewDefaultFieldManager
	if k.custom {
		build = managedfields.NewDefaultCRDFieldManager
	}
	return build(k.types, k.converter, noDefaults{}, k.creater, k.gvk, k.gvk.GroupVersion(), subresource, ignored)
}

func (k fieldsKind) write(live runtime.Object, step fieldsStep) (runtime.Object, error) {
	manager, err := k.manager(step.Subresource)
	if err != nil {
		return nil, err
	}
	creates := live == nil
	if creates {
		if live, err = k.creater.New(k.gvk); err != nil {
			return nil, err
		}
	}
	live = live.DeepCopyObject()
	age(live)
	sent, err := decode[object](step.Object)
	if err != nil {
		return nil, err
	}
	if !creates {
		// What has no uid does not exist yet for the field manager.
		setUID(live, "1")
	}
	if step.Do == "apply" {
		applied, err := manager.Apply(live, &unstructured.Unstructured{Object: sent}, step.Manager, step.Force)
		if err != nil {
			return nil, err
		}
		return k.held(applied)
	}
	updated, err := k.decoded(sent)
	if err != nil {
		return nil, err
	}
	if !creates {
		setUID(updated, "1")
	}
	return manager.UpdateNoErrors(live, updated, step.Manager), nil
}

// decoded is an object in the form in which the server holds those of its kind.
func (k fieldsKind) decoded(sent object) (runtime.Object, error) {
	if k.custom {
		return &unstructured.Unstructured{Object: sent}, nil
	}
	into, err := k.creater.New(k.gvk)
	if err != nil {
		return nil, err
	}
	return into, runtime.DefaultUnstructuredConverter.FromUnstructured(sent, into)
}

// held is what an apply gave in the form in which the server holds objects of the kind, as its converter makes it.
func (k fieldsKind) held(applied runtime.Object) (runtime.Object, error) {
	open, isOpen := applied.(*unstructured.Unstructured)
	if k.custom || !isOpen {
		return applied, nil
	}
	return k.decoded(open.Object)
}

// shown is an object as JSON, with times that can be compared.
func (k fieldsKind) shown(live runtime.Object) (object, error) {
	copied := live.DeepCopyObject()
	accessor, err := meta.Accessor(copied)
	if err != nil {
		return nil, err
	}
	times := []string{}
	for _, entry := range accessor.GetManagedFields() {
		times = append(times, timeOf(entry))
	}
	accessor.SetUID("")
	shown, err := runtime.DefaultUnstructuredConverter.ToUnstructured(copied)
	if err != nil {
		return nil, err
	}
	entries, _, _ := unstructured.NestedSlice(shown, "metadata", "managedFields")
	for index, entry := range entries {
		entry.(object)["time"] = times[index]
	}
	if len(entries) > 0 {
		return shown, unstructured.SetNestedSlice(shown, entries, "metadata", "managedFields")
	}
	return shown, nil
}

func timeOf(entry metav1.ManagedFieldsEntry) string {
	switch {
	case entry.Time == nil:
		return "none"
	case entry.Time.Equal(&longAgo):
		return "old"
	default:
		return "new"
	}
}

func setUID(of runtime.Object, uid types.UID) {
	if accessor, err := meta.Accessor(of); err == nil {
		accessor.SetUID(uid)
	}
}

// age gives all entries a time of which one can tell that no write of now set it.
func age(live runtime.Object) {
	accessor, err := meta.Accessor(live)
	if err != nil {
		return
	}
	entries := slices.Clone(accessor.GetManagedFields())
	for index := range entries {
		if entries[index].Time != nil {
			entries[index].Time = longAgo.DeepCopy()
		}
	}
	accessor.SetManagedFields(entries)
}

// unstructuredCreater makes the empty objects of custom resources.
type unstructuredCreater struct{}

func (unstructuredCreater) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	made := &unstructured.Unstructured{Object: object{}}
	made.SetGroupVersionKind(kind)
	return made, nil
}

// typedCreater makes the empty objects of built-in kinds; unlike the scheme's own they know their kind.
type typedCreater struct{}

func (typedCreater) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	made, err := scheme.Scheme.New(kind)
	if err == nil {
		made.GetObjectKind().SetGroupVersionKind(kind)
	}
	return made, err
}

// sameVersion converts between the versions of a kind that has one.
type sameVersion struct{}

func (sameVersion) Convert(in, out, context any) error {
	return fmt.Errorf("no conversion of %T into %T", in, out)
}

func (sameVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (sameVersion) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}
