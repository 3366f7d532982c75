package main

import (
	"context"
	"encoding/json"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// structuralCase asks what a create of a custom resource, or an update of old to it, does to it and says of it. Old is
// taken as it is; an update keeps it from being asked what it already violates.
type structuralCase struct {
	Schema json.RawMessage `json:"schema"`
	Object json.RawMessage `json:"object"`
	Old    json.RawMessage `json:"old"`
}

// structuralAnswer has the paths that the schema does not know, the object pruned, the same with defaults, what
// validation says of that, and what the rules of x-kubernetes-validations say at which cost.
type structuralAnswer struct {
	Unknown   []string `json:"unknown"`
	Pruned    object   `json:"pruned"`
	Defaulted object   `json:"defaulted"`
	Errors    []string `json:"errors"`
	Blocked   bool     `json:"blocked"`
	Rules     []string `json:"rules"`
	Cost      int64    `json:"cost"`
}

// compiled is what one schema gives; cases of one schema come together.
var compiled struct {
	source    string
	schema    *structuralschema.Structural
	validator validation.SchemaValidator
	rules     *cel.Validator
}

func compile(source json.RawMessage) error {
	if compiled.source == string(source) {
		return nil
	}
	schema, props, err := structuralOf(source)
	if err != nil {
		return err
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return err
	}
	compiled.source, compiled.schema, compiled.validator = string(source), schema, validator
	compiled.rules = cel.NewValidator(schema, true, celconfig.PerCallLimit)
	return nil
}

func structural(asked structuralCase) (any, error) {
	if err := compile(asked.Schema); err != nil {
		return nil, err
	}
	given := structuralAnswer{Unknown: []string{}, Errors: []string{}, Rules: []string{}}
	sent, err := decode[object](asked.Object)
	if err != nil {
		return nil, err
	}
	unknown, err := coerce(sent)
	if err != nil {
		return object{"refused": err.Error()}, nil
	}
	given.Unknown = append(given.Unknown, unknown...)
	given.Pruned = (&unstructured.Unstructured{Object: sent}).DeepCopy().Object
	defaulting.Default(sent, compiled.schema)
	given.Defaulted = sent
	var old object
	if asked.Old != nil {
		if old, err = decode[object](asked.Old); err != nil {
			return nil, err
		}
	}
	judge(sent, old, &given)
	return given, nil
}

// coerce prunes a decoded object in place, as the decoder of custom resources does.
func coerce(sent object) ([]string, error) {
	kind, version := sent["kind"], sent["apiVersion"]
	options := objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true}
	metadata, found, unknown, err := objectmeta.GetObjectMetaWithOptions(sent, options)
	if err != nil {
		return nil, err
	}
	track := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	unknown = append(unknown, pruning.PruneWithOptions(sent, compiled.schema, true, track)...)
	defaulting.PruneNonNullableNullsWithoutDefaults(sent, compiled.schema)
	refused, more := objectmeta.CoerceWithOptions(nil, sent, compiled.schema, false, objectmeta.CoerceOptions{
		ReturnUnknownFieldPaths: true,
	})
	if refused != nil {
		return nil, refused
	}
	sent["kind"], sent["apiVersion"] = kind, version
	if found {
		if err := objectmeta.SetObjectMeta(sent, metadata); err != nil {
			return nil, err
		}
	}
	return append(unknown, more...), nil
}

// judge validates an object as the strategy of custom resources does, but for the metadata of the object itself.
func judge(sent, old object, given *structuralAnswer) {
	ctx := context.Background()
	var errs field.ErrorList
	var options []validation.ValidationOption
	var ruleOptions []cel.Option
	if old == nil {
		errs = validation.ValidateCustomResource(nil, sent, compiled.validator)
	} else {
		correlated := common.NewCorrelatedObject(sent, old, &model.Structural{Structural: compiled.schema})
		options = append(options, validation.WithRatcheting(correlated))
		ruleOptions = append(ruleOptions, cel.WithRatcheting(correlated))
		errs = validation.ValidateCustomResourceUpdate(nil, sent, old, compiled.validator, options...)
	}
	errs = append(errs, objectmeta.Validate(ctx, nil, sent, compiled.schema, false)...)
	if old == nil || len(listtype.ValidateListSetsAndMaps(nil, compiled.schema, old)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, compiled.schema, sent)...)
	}
	given.Errors = texts(errs, given.Errors)
	if compiled.rules == nil {
		return
	}
	for _, each := range errs {
		switch each.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
			field.ErrorTypeTypeInvalid:
			given.Blocked = true
			return
		}
	}
	const budget = celconfig.RuntimeCELCostBudget
	var before any
	if old != nil {
		before = old
	}
	found, left := compiled.rules.Validate(ctx, nil, compiled.schema, sent, before, budget, ruleOptions...)
	given.Rules, given.Cost = texts(found, given.Rules), budget-left
}

func texts(errs field.ErrorList, into []string) []string {
	for _, each := range errs {
		into = append(into, each.Error())
	}
	return into
}
