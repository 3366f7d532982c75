package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

func init() {
	if err := apiextensionsv1.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
}

// strategicCase asks for the original of a built-in kind with a strategic merge patch merged in.
type strategicCase struct {
	kindCase
	Original json.RawMessage `json:"original"`
	Patch    json.RawMessage `json:"patch"`
}

func (k kindCase) create() (runtime.Object, error) {
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	if err != nil {
		return nil, err
	}
	return scheme.Scheme.New(gv.WithKind(k.Kind))
}

func strategic(asked strategicCase) (any, error) {
	kind, err := asked.create()
	if err != nil {
		return nil, err
	}
	original, err := decode[object](asked.Original)
	if err != nil {
		return nil, err
	}
	patch, err := decode[object](asked.Patch)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergeMapPatch(original, patch, kind)
	if err != nil {
		return object{"refused": err.Error()}, nil
	}
	return object{"result": merged}, nil
}

// patchMeta gives a built-in kind as an OpenAPI schema with definitions, of Go's types and their patch tags alone.
func patchMeta(asked kindCase) (any, error) {
	kind, err := asked.create()
	if err != nil {
		return nil, err
	}
	definitions := object{}
	root := reflect.TypeOf(kind).Elem()
	describe(root, definitions)
	return object{"root": typeName(root), "definitions": definitions}, nil
}

func typeName(of reflect.Type) string {
	return strings.ReplaceAll(of.PkgPath(), "/", ".") + "." + of.Name()
}

var marshaler = reflect.TypeFor[json.Marshaler]()

func describe(of reflect.Type, into object) {
	name := typeName(of)
	if _, seen := into[name]; seen {
		return
	}
	made := object{"type": "object"}
	into[name] = made
	properties := object{}
	describeFields(of, properties, into)
	made["properties"] = properties
}

func describeFields(of reflect.Type, properties, into object) {
	for index := range of.NumField() {
		field := of.Field(index)
		parts := strings.Split(field.Tag.Get("json"), ",")
		inline := field.Anonymous && parts[0] == "" || slices.Contains(parts, "inline")
		switch {
		case inline:
			describeFields(field.Type, properties, into)
		case parts[0] != "" && parts[0] != "-":
			property := described(field.Type, into)
			if strategy := field.Tag.Get("patchStrategy"); strategy != "" {
				property["x-kubernetes-patch-strategy"] = strategy
			}
			if key := field.Tag.Get("patchMergeKey"); key != "" {
				property["x-kubernetes-patch-merge-key"] = key
			}
			properties[parts[0]] = property
		}
	}
}

func described(of reflect.Type, into object) object {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Implements(marshaler) || reflect.PointerTo(of).Implements(marshaler) {
		return object{"type": "string", "format": "untyped"}
	}
	switch of.Kind() {
	case reflect.Struct:
		describe(of, into)
		return object{"allOf": []any{object{"$ref": "#/components/schemas/" + typeName(of)}}}
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "format": "byte"}
		}
		return object{"type": "array", "items": described(of.Elem(), into)}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": described(of.Elem(), into)}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64, reflect.Uint8:
		return object{"type": "integer"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	default:
		panic(fmt.Sprintf("no schema for %v", of))
	}
}
