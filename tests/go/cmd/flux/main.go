package main
import (
_ "github.com/fluxcd/pkg/ssa"
)
func main() {}
