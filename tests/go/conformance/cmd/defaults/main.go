// Command defaults reads objects in JSON, a line each, and prints them as kube-apiserver decodes them, in the types of
// their kinds with the defaults of its code: {"object": ..., "protobuf": its body}, or {"error": ...}. An autoscaler has
// "converted" too: the same in the other version.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	aggregator "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
)

const maxLine = 16 * 1024 * 1024

type answer struct {
	Object    runtime.Object `json:"object,omitempty"`
	Protobuf  []byte         `json:"protobuf,omitempty"`
	Converted runtime.Object `json:"converted,omitempty"`
	Error     string         `json:"error,omitempty"`
}

func answerTo(line []byte) answer {
	object, kind, err := legacyscheme.Codecs.UniversalDeserializer().Decode(line, nil, nil)
	if err != nil {
		return answer{Error: err.Error()}
	}
	legacyscheme.Scheme.Default(object)
	body, err := runtime.Encode(protobuf.NewSerializer(legacyscheme.Scheme, legacyscheme.Scheme), object)
	if err != nil {
		return answer{Error: err.Error()}
	}
	converted, err := otherVersion(object, *kind)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Object: object, Protobuf: body, Converted: converted}
}

// otherVersion returns an autoscaler in its other version, with defaults, and nothing for other kinds.
func otherVersion(object runtime.Object, kind schema.GroupVersionKind) (runtime.Object, error) {
	if kind.Kind != "HorizontalPodAutoscaler" {
		return nil, nil
	}
	version := schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal}
	internal, err := legacyscheme.Scheme.ConvertToVersion(object, version)
	if err != nil {
		return nil, err
	}
	version.Version = "v1"
	if kind.Version == "v1" {
		version.Version = "v2"
	}
	converted, err := legacyscheme.Scheme.ConvertToVersion(internal, version)
	if err != nil {
		return nil, err
	}
	legacyscheme.Scheme.Default(converted)
	return converted, nil
}

func main() {
	aggregator.Install(legacyscheme.Scheme)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, maxLine)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := answers.Encode(answerTo(lines.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
