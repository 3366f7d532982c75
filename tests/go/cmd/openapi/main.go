// Kubernetes' own readers and builders of OpenAPI documents, for tests/contract/openapi.
//
//	openapi documents DIR     v2.json and v2.pb, v3-*.json and v3-*.pb: each protobuf must be what gnostic makes of the
//	                          JSON beside it, and both must be read by kube-openapi without loss
//	openapi definitions FILE  CustomResourceDefinitions in a JSON list: the documents that apiextensions publishes
//	openapi served KUBECONFIG what client-go reads of both versions from a server
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kube-openapi/pkg/spec3"
	utilproto "k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: openapi documents|definitions|served PLACE"))
	}
	switch os.Args[1] {
	case "documents":
		documents(os.Args[2])
	case "definitions":
		definitions(os.Args[2])
	case "served":
		served(os.Args[2])
	default:
		fail(fmt.Errorf("no such command: %s", os.Args[1]))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(path string) []byte {
	data, err := os.ReadFile(path)
	fail(err)
	return data
}

func verified(check string, found any) {
	line, err := json.Marshal(map[string]any{"check": check, "found": found})
	fail(err)
	fmt.Println(string(line))
}

func documents(place string) {
	data := read(filepath.Join(place, "v2.json"))
	wanted, err := openapi_v2.ParseDocument(data)
	fail(err)
	sent, same := &openapi_v2.Document{}, &openapi_v2.Document{}
	fail(proto.Unmarshal(read(filepath.Join(place, "v2.pb")), sent))
	fail(proto.Unmarshal(read(filepath.Join(place, "v2.pb")), same))
	fail(compare("v2.json", wanted, same))
	models, err := utilproto.NewOpenAPIData(sent)
	fail(err)
	var whole spec.Swagger
	complete, err := whole.FromGnostic(sent)
	fail(err)
	verified("v2", map[string]any{"models": len(models.ListModels()), "complete": complete})

	files, err := filepath.Glob(filepath.Join(place, "v3-*.json"))
	fail(err)
	for _, file := range files {
		data := read(file)
		wanted, err := openapi_v3.ParseDocument(data)
		fail(err)
		sent := &openapi_v3.Document{}
		fail(proto.Unmarshal(read(strings.TrimSuffix(file, ".json")+".pb"), sent))
		fail(compare(filepath.Base(file), wanted, sent))
		verified(filepath.Base(file), keptBySpec3(data))
	}
}

// keptBySpec3 says whether a v3 document is the same after kube-openapi read and wrote it.
func keptBySpec3(data []byte) bool {
	var document spec3.OpenAPI
	fail(json.Unmarshal(data, &document))
	written, err := json.Marshal(&document)
	fail(err)
	var before, after any
	fail(json.Unmarshal(data, &before))
	fail(json.Unmarshal(written, &after))
	return reflect.DeepEqual(before, after)
}

func compare(name string, wanted, sent proto.Message) error {
	plain(wanted.ProtoReflect())
	plain(sent.ProtoReflect())
	if at := difference("", wanted.ProtoReflect(), sent.ProtoReflect()); at != "" {
		return fmt.Errorf("%s: %s", name, at)
	}
	return nil
}

// plain rewrites every YAML text as JSON, for the same value has many texts.
func plain(message protoreflect.Message) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Kind() == protoreflect.MessageKind && field.IsList():
			for index := range value.List().Len() {
				plain(value.List().Get(index).Message())
			}
		case field.Kind() == protoreflect.MessageKind:
			plain(value.Message())
		case field.Name() == "yaml":
			text, err := yaml.YAMLToJSON([]byte(value.String()))
			fail(err)
			message.Set(field, protoreflect.ValueOfString(string(text)))
		}
		return true
	})
}

// difference is the first place where two messages differ, "" where there is none.
func difference(at string, wanted, sent protoreflect.Message) string {
	if len(sent.GetUnknown()) != 0 {
		return at + ": unknown fields"
	}
	fields := wanted.Descriptor().Fields()
	for index := range fields.Len() {
		field := fields.Get(index)
		here := at + "." + string(field.Name())
		if wanted.Has(field) != sent.Has(field) {
			return fmt.Sprintf("%s: wanted %v, sent %v", here, wanted.Get(field), sent.Get(field))
		}
		if !wanted.Has(field) {
			continue
		}
		if found := fieldDifference(here, field, wanted.Get(field), sent.Get(field)); found != "" {
			return found
		}
	}
	return ""
}

func fieldDifference(at string, field protoreflect.FieldDescriptor, wanted, sent protoreflect.Value) string {
	if field.Kind() != protoreflect.MessageKind {
		if wanted.Equal(sent) {
			return ""
		}
		return fmt.Sprintf("%s: wanted %v, sent %v", at, wanted, sent)
	}
	if !field.IsList() {
		return difference(at, wanted.Message(), sent.Message())
	}
	if wanted.List().Len() != sent.List().Len() {
		return fmt.Sprintf("%s: wanted %d, sent %d", at, wanted.List().Len(), sent.List().Len())
	}
	for index := range wanted.List().Len() {
		here := fmt.Sprintf("%s[%d]", at, index)
		if found := difference(here, wanted.List().Get(index).Message(), sent.List().Get(index).Message()); found != "" {
			return found
		}
	}
	return ""
}

func definitions(path string) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	fail(json.Unmarshal(read(path), &crds))
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			v3, err := builder.BuildOpenAPIV3(crd, version.Name, builder.Options{IncludeSelectableFields: true})
			fail(err)
			v2, err := builder.BuildOpenAPIV2(crd, version.Name, builder.Options{V2: true, IncludeSelectableFields: true})
			fail(err)
			verified(crd.Name+"/"+version.Name, map[string]any{"v3": v3, "v2": v2})
		}
	}
}

func served(kubeconfig string) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	fail(err)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	fail(err)
	document, err := client.OpenAPISchema()
	fail(err)
	models, err := utilproto.NewOpenAPIData(document)
	fail(err)
	verified("v2", len(models.ListModels()))
	root := openapi3.NewRoot(client.OpenAPIV3())
	versions, err := root.GroupVersions()
	fail(err)
	for _, version := range versions {
		found, err := root.GVSpec(version)
		fail(err)
		verified(version.String(), len(found.Paths.Paths))
	}
}
