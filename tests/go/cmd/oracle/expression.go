package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// expressionCase asks for the value and the costs of an expression over variables of named types, which have these
// values. Sizes are what the estimate is told of paths such as "s" or "ls.@items": the least and the most.
type expressionCase struct {
	Expression string                     `json:"expression"`
	Types      map[string]string          `json:"types"`
	Variables  map[string]json.RawMessage `json:"variables"`
	Sizes      map[string][2]uint64       `json:"sizes"`
}

// expressionAnswer has the type of the expression, the static estimate, and the cost of its evaluation, with either its
// value, as `shown` writes it, or the error it ended with. One that does not compile has only Issues.
type expressionAnswer struct {
	Issues   string     `json:"issues,omitempty"`
	Type     string     `json:"type,omitempty"`
	Estimate *[2]uint64 `json:"estimate,omitempty"`
	Value    any        `json:"value,omitempty"`
	Error    string     `json:"error,omitempty"`
	Cost     uint64     `json:"cost"`
}

var typesByName = map[string]*cel.Type{
	"bool": cel.BoolType, "int": cel.IntType, "uint": cel.UintType, "double": cel.DoubleType, "string": cel.StringType,
	"bytes": cel.BytesType, "dyn": cel.DynType,
}

// typeNamed reads "list(int)" and "map(string, int)".
func typeNamed(text string) (*cel.Type, error) {
	if found, known := typesByName[text]; known {
		return found, nil
	}
	inner, isList := strings.CutPrefix(text, "list(")
	if isList {
		item, err := typeNamed(strings.TrimSuffix(inner, ")"))
		return cel.ListType(item), err
	}
	inner, isMap := strings.CutPrefix(text, "map(string, ")
	if !isMap {
		return nil, fmt.Errorf("no such type: %s", text)
	}
	value, err := typeNamed(strings.TrimSuffix(inner, ")"))
	return cel.MapType(cel.StringType, value), err
}

// environments keeps what the variables last used gives.
var environments struct {
	types map[string]string
	env   *cel.Env
}

func environmentFor(names map[string]string) (*cel.Env, error) {
	if environments.env != nil && maps.Equal(environments.types, names) {
		return environments.env, nil
	}
	options := []cel.EnvOption{}
	for name, text := range names {
		of, err := typeNamed(text)
		if err != nil {
			return nil, err
		}
		options = append(options, cel.Variable(name, of))
	}
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	set, err := base.Extend(environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: options})
	if err != nil {
		return nil, err
	}
	// Of this version's environment nothing is left out: everything the product knows is compared.
	environments.types, environments.env = names, set.StoredExpressionsEnv()
	return environments.env, nil
}

// sizes tells the estimate what a case says of its variables.
type sizes map[string][2]uint64

func (s sizes) EstimateSize(of checker.AstNode) *checker.SizeEstimate {
	found, known := s[strings.Join(of.Path(), ".")]
	if !known || len(of.Path()) == 0 {
		return nil
	}
	return &checker.SizeEstimate{Min: found[0], Max: found[1]}
}

func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

func expression(asked expressionCase) (any, error) {
	env, err := environmentFor(asked.Types)
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(asked.Expression)
	if issues != nil && issues.Err() != nil {
		return expressionAnswer{Issues: issues.String()}, nil
	}
	program, err := env.Program(ast, cel.CostLimit(celconfig.PerCallLimit))
	if err != nil {
		return expressionAnswer{Issues: err.Error()}, nil
	}
	estimate, err := env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: sizes(asked.Sizes)})
	if err != nil {
		return nil, err
	}
	given := expressionAnswer{Type: ast.OutputType().String(), Estimate: &[2]uint64{estimate.Min, estimate.Max}}
	bound, err := bindings(asked)
	if err != nil {
		return nil, err
	}
	value, details, err := program.Eval(bound)
	if details != nil && details.ActualCost() != nil {
		given.Cost = *details.ActualCost()
	}
	if err != nil {
		given.Error = err.Error()
		return given, nil
	}
	given.Value = shown(value)
	return given, nil
}

// bindings are the values of a case as values of their types: JSON cannot tell 1 from 1u and 1.0.
func bindings(asked expressionCase) (map[string]any, error) {
	bound := map[string]any{}
	for name, raw := range asked.Variables {
		var err error
		switch asked.Types[name] {
		case "uint":
			bound[name], err = decode[uint64](raw)
		case "double":
			bound[name], err = decode[float64](raw)
		case "list(double)":
			bound[name], err = decode[[]float64](raw)
		case "bytes":
			var decoded []byte
			decoded, err = decode[[]byte](raw)
			// Concatenation appends in place where there is room.
			bound[name] = slices.Clip(decoded)
		default:
			bound[name], err = decode[any](raw)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return bound, nil
}

// shown writes a value as a pair of its type's name and JSON of its content.
func shown(value ref.Val) any {
	switch found := value.(type) {
	case types.Bool:
		return []any{"bool", bool(found)}
	case types.Int:
		return []any{"int", int64(found)}
	case types.Uint:
		return []any{"uint", uint64(found)}
	case types.Double:
		// By its bits: no two writers of decimals agree on all doubles. There are many that are no number.
		if math.IsNaN(float64(found)) {
			return []any{"double", "nan"}
		}
		return []any{"double", strconv.FormatUint(math.Float64bits(float64(found)), 16)}
	case types.String:
		return []any{"string", string(found)}
	case types.Bytes:
		return []any{"bytes", []byte(found)}
	case types.Null:
		return []any{"null", nil}
	case *types.Type:
		return []any{"type", found.TypeName()}
	case types.Duration:
		return []any{"duration", strconv.FormatInt(found.Nanoseconds(), 10)}
	case types.Timestamp:
		return []any{"timestamp", fmt.Sprintf("%d.%09d", found.Unix(), found.Nanosecond())}
	case *types.Optional:
		if !found.HasValue() {
			return []any{"optional", nil}
		}
		return []any{"optional", shown(found.GetValue())}
	case traits.Mapper:
		return []any{"map", shownEntries(found)}
	case traits.Lister:
		return []any{"list", shownItems(found)}
	default:
		return []any{"opaque", value.Type().TypeName()}
	}
}

func shownItems(list traits.Lister) []any {
	items := []any{}
	for iterator := list.Iterator(); iterator.HasNext() == types.True; {
		items = append(items, shown(iterator.Next()))
	}
	return items
}

// shownEntries lists a map's entries in the order of their keys' text.
func shownEntries(entries traits.Mapper) []any {
	found := map[string]any{}
	names := []string{}
	for iterator := entries.Iterator(); iterator.HasNext() == types.True; {
		key := iterator.Next()
		name, _ := json.Marshal(shown(key))
		names = append(names, string(name))
		found[string(name)] = []any{shown(key), shown(entries.Get(key))}
	}
	slices.Sort(names)
	listed := []any{}
	for _, name := range names {
		listed = append(listed, found[name])
	}
	return listed
}
