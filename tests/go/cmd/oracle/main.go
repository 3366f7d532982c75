package main
import (
_ "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
_ "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
_ "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
_ "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
_ "k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
_ "k8s.io/apimachinery/pkg/util/managedfields"
_ "k8s.io/apimachinery/pkg/util/strategicpatch"
_ "k8s.io/apiserver/pkg/cel/environment"
_ "k8s.io/client-go/applyconfigurations"
_ "k8s.io/client-go/kubernetes/scheme"
_ "sigs.k8s.io/structured-merge-diff/v6/typed"
_ "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
)
func main() {}
