package main
import (
_ "helm.sh/helm/v3/pkg/action"
_ "helm.sh/helm/v3/pkg/chart/loader"
)
func main() {}
