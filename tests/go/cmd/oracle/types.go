package main

import (
	"encoding/json"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// definitionOf is a definition with one version that has the schema.
func definitionOf(kind schema.GroupVersionKind, source json.RawMessage) (*apiextensionsv1.CustomResourceDefinition, error) {
	var props apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(source, &props); err != nil {
		return nil, err
	}
	names := apiextensionsv1.CustomResourceDefinitionNames{
		Plural: "things", Singular: "thing", Kind: kind.Kind, ListKind: kind.Kind + "List",
	}
	version := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: kind.Version, Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &props},
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Names: names, Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version},
		},
	}, nil
}

// typesOf are the merge types of a custom resource, made as the API server makes them.
func typesOf(kind schema.GroupVersionKind, source json.RawMessage) (managedfields.TypeConverter, error) {
	crd, err := definitionOf(kind, source)
	if err != nil {
		return nil, err
	}
	document, err := builder.BuildOpenAPIV3(crd, kind.Version, builder.Options{})
	if err != nil {
		return nil, err
	}
	return managedfields.NewTypeConverter(document.Components.Schemas, false)
}

// internalProps is a schema in the form that validation reads.
func internalProps(source json.RawMessage) (*apiextensions.JSONSchemaProps, error) {
	var given apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(source, &given); err != nil {
		return nil, err
	}
	var props apiextensions.JSONSchemaProps
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&given, &props, nil)
	return &props, err
}

// structuralOf compiles a schema.
func structuralOf(source json.RawMessage) (*structuralschema.Structural, *apiextensions.JSONSchemaProps, error) {
	props, err := internalProps(source)
	if err != nil {
		return nil, nil, err
	}
	found, err := structuralschema.NewStructural(props)
	return found, props, err
}

// kindCase names a built-in kind.
type kindCase struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// typeSchema gives the merge types of a built-in kind as an OpenAPI schema with definitions.
func typeSchema(asked kindCase) (any, error) {
	gv, err := schema.ParseGroupVersion(asked.APIVersion)
	if err != nil {
		return nil, err
	}
	made, err := typedCreater{}.New(gv.WithKind(asked.Kind))
	if err != nil {
		return nil, err
	}
	typed, err := applyconfigurations.NewTypeConverter(scheme.Scheme).ObjectToTyped(made)
	if err != nil {
		return nil, err
	}
	root := typed.TypeRef()
	if root.NamedType == nil {
		return nil, fmt.Errorf("%s has no type", asked.Kind)
	}
	known := typed.Schema()
	definitions := object{}
	collect(known, *root.NamedType, definitions)
	return object{"root": *root.NamedType, "definitions": definitions}, nil
}

// collect writes a named type, and all that it refers to, as OpenAPI schemas.
func collect(known *smdschema.Schema, name string, into object) {
	if _, seen := into[name]; seen {
		return
	}
	into[name] = object{}
	found, _ := known.FindNamedType(name)
	into[name] = written(known, found.Atom, into)
}

func writtenRef(known *smdschema.Schema, ref smdschema.TypeRef, into object) object {
	if ref.NamedType == nil {
		return written(known, ref.Inlined, into)
	}
	collect(known, *ref.NamedType, into)
	made := object{"$ref": "#/components/schemas/" + *ref.NamedType}
	if ref.ElementRelationship != nil && *ref.ElementRelationship == smdschema.Atomic {
		return object{"allOf": []any{made}, "x-kubernetes-map-type": "atomic"}
	}
	return made
}

func written(known *smdschema.Schema, atom smdschema.Atom, into object) object {
	made := object{}
	switch {
	case atom.List != nil && atom.Map != nil:
		made["x-kubernetes-preserve-unknown-fields"] = true
	case atom.List != nil:
		writeList(known, atom.List, made, into)
	case atom.Map != nil:
		writeMap(known, atom.Map, made, into)
	case atom.Scalar != nil:
		writeScalar(*atom.Scalar, made)
	}
	return made
}

func writeScalar(kind smdschema.Scalar, made object) {
	switch kind {
	case smdschema.Numeric:
		made["type"] = "number"
	case smdschema.String:
		made["type"] = "string"
	case smdschema.Boolean:
		made["type"] = "boolean"
	default:
		// Any scalar: times, quantities, int-or-string.
		made["type"], made["format"] = "string", "untyped"
	}
}

func writeList(known *smdschema.Schema, list *smdschema.List, made, into object) {
	made["type"] = "array"
	made["items"] = writtenRef(known, list.ElementType, into)
	switch {
	case list.ElementRelationship != smdschema.Associative:
		made["x-kubernetes-list-type"] = "atomic"
	case len(list.Keys) > 0:
		made["x-kubernetes-list-type"], made["x-kubernetes-list-map-keys"] = "map", list.Keys
	default:
		made["x-kubernetes-list-type"] = "set"
	}
}

func writeMap(known *smdschema.Schema, of *smdschema.Map, made, into object) {
	made["type"] = "object"
	if of.ElementRelationship == smdschema.Atomic {
		made["x-kubernetes-map-type"] = "atomic"
	}
	properties := object{}
	for _, field := range of.Fields {
		property := writtenRef(known, field.Type, into)
		switch field.Default.(type) {
		case string, bool, int, int64, float64:
			property["default"] = field.Default
		}
		properties[field.Name] = property
	}
	if len(properties) > 0 {
		made["properties"] = properties
		return
	}
	made["additionalProperties"] = writtenRef(known, of.ElementType, into)
}
