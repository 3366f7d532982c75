package main
import (
_ "k8s.io/client-go/kubernetes"
_ "k8s.io/client-go/dynamic"
_ "k8s.io/client-go/metadata/metadatainformer"
_ "k8s.io/client-go/informers"
_ "k8s.io/client-go/tools/leaderelection"
_ "k8s.io/client-go/restmapper"
_ "k8s.io/client-go/openapi3"
)
func main() {}
