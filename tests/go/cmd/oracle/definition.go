package main

import (
	"context"
	"encoding/json"
	"math"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	definitionvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// definitionCase asks what the creation of a CustomResourceDefinition in v1 is refused for.
type definitionCase struct {
	Object json.RawMessage `json:"object"`
}

func definition(asked definitionCase) (any, error) {
	var given apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(asked.Object, &given); err != nil {
		return nil, err
	}
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&given)
	var crd apiextensions.CustomResourceDefinition
	err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&given, &crd, nil)
	if err != nil {
		return nil, err
	}
	crd.Status = apiextensions.CustomResourceDefinitionStatus{}
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			crd.Status.StoredVersions = []string{version.Name}
		}
	}
	errs := definitionvalidation.ValidateCustomResourceDefinition(context.Background(), &crd)
	return object{"errors": texts(errs, []string{})}, nil
}

// rulesCase asks what the rules of a schema are estimated to cost, and which do not compile.
type rulesCase struct {
	Schema json.RawMessage `json:"schema"`
}

// ruleAnswer is one rule; a cost of -1 is beyond what fits in 63 bits, a cardinality of -1 unbounded.
type ruleAnswer struct {
	Path        string `json:"path"`
	Error       string `json:"error,omitempty"`
	Cost        int64  `json:"cost"`
	Cardinality int64  `json:"cardinality"`
	UsesOldSelf bool   `json:"usesOldSelf"`
}

func rules(asked rulesCase) (any, error) {
	schema, _, err := structuralOf(asked.Schema)
	if err != nil {
		return nil, err
	}
	found := []ruleAnswer{}
	err = walkRules(schema, model.SchemaDeclType(schema, true), "", &found)
	return object{"rules": found}, err
}

func walkRules(schema *structuralschema.Structural, of *apiservercel.DeclType, path string, found *[]ruleAnswer) error {
	if of == nil {
		return nil
	}
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	results, err := cel.Compile(schema, of, celconfig.PerCallLimit, base, cel.NewExpressionsEnvLoader())
	if err != nil {
		return err
	}
	for _, result := range results {
		rule := ruleAnswer{
			Path: path, Cost: bounded(result.MaxCost), Cardinality: bounded(result.MaxCardinality),
			UsesOldSelf: result.UsesOldSelf,
		}
		if result.Error != nil {
			rule.Error = result.Error.Detail
		}
		*found = append(*found, rule)
	}
	return walkBelow(schema, of, path, found)
}

func walkBelow(schema *structuralschema.Structural, of *apiservercel.DeclType, path string, found *[]ruleAnswer) error {
	for name := range schema.Properties {
		child := schema.Properties[name]
		declared, known := of.Fields[name]
		if escaped, ok := apiservercel.Escape(name); ok && !known {
			declared, known = of.Fields[escaped]
		}
		if !known {
			continue
		}
		if err := walkRules(&child, declared.Type, path+"."+name, found); err != nil {
			return err
		}
	}
	if schema.Items != nil {
		if err := walkRules(schema.Items, of.ElemType, path+"[]", found); err != nil {
			return err
		}
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Structural != nil {
		return walkRules(schema.AdditionalProperties.Structural, of.ElemType, path+"{}", found)
	}
	return nil
}

func bounded(cost uint64) int64 {
	if cost > math.MaxInt64 {
		return -1
	}
	return int64(cost)
}
