package main
import (
_ "helm.sh/helm/v4/pkg/action"
_ "helm.sh/helm/v4/pkg/chart/loader"
)
func main() {}
