package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

// policyCase asks what an expression of a policy gives on a request. Of says what it is for: "validation", "message",
// "annotation", "apply" or "patch". A namespace is that of the request.
type policyCase struct {
	Of         string              `json:"of"`
	Expression string              `json:"expression"`
	Variables  []policyVariable    `json:"variables"`
	Object     json.RawMessage     `json:"object"`
	Old        json.RawMessage     `json:"oldObject"`
	Params     json.RawMessage     `json:"params"`
	Namespace  json.RawMessage     `json:"namespace"`
	User       string              `json:"user"`
	Groups     []string            `json:"groups"`
	Extra      map[string][]string `json:"extra"`
	DryRun     bool                `json:"dryRun"`
}

// policyVariable is one entry of spec.variables.
type policyVariable struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

func (v policyVariable) GetName() string          { return v.Name }
func (v policyVariable) GetExpression() string    { return v.Expression }
func (v policyVariable) ReturnTypes() []*cel.Type { return []*cel.Type{cel.AnyType, cel.DynType} }

// expressionOf is an expression with the types that its value may have.
type expressionOf struct {
	text  string
	types []*cel.Type
}

func (e expressionOf) GetExpression() string    { return e.text }
func (e expressionOf) ReturnTypes() []*cel.Type { return e.types }

// policyAnswer has the value of an expression, as `shown` writes it, or why there is none, and the cost.
type policyAnswer struct {
	Value any    `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
	Cost  int64  `json:"cost"`
}

func (p policyCase) accessor() plugincel.ExpressionAccessor {
	switch p.Of {
	case "apply":
		return &patch.ApplyConfigurationCondition{Expression: p.Expression}
	case "patch":
		return &patch.JSONPatchCondition{Expression: p.Expression}
	case "message":
		return expressionOf{p.Expression, []*cel.Type{cel.StringType}}
	case "annotation":
		return expressionOf{p.Expression, []*cel.Type{cel.StringType, cel.NullType}}
	default:
		return expressionOf{p.Expression, []*cel.Type{cel.BoolType}}
	}
}

// base is the environment that all policies extend.
var base = environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())

// compiledPolicy is the expression of a case with the variables that it sees.
func (p policyCase) compile() (*plugincel.CompositedCompiler, plugincel.MutatingEvaluator, error) {
	compiler, err := plugincel.NewCompositedCompiler(base)
	if err != nil {
		return nil, nil, err
	}
	options := plugincel.OptionalVariableDeclarations{HasParams: p.Params != nil, HasAuthorizer: false}
	for _, variable := range p.Variables {
		compiler.CompileAndStoreVariable(variable, options, environment.StoredExpressions)
	}
	options.HasPatchTypes = p.Of == "apply" || p.Of == "patch"
	return compiler, compiler.CompileMutatingEvaluator(p.accessor(), options, environment.StoredExpressions), nil
}

var (
	thingKind     = schema.GroupVersionKind{Group: "example.io", Version: "v1", Kind: "Thing"}
	thingResource = schema.GroupVersionResource{Group: "example.io", Version: "v1", Resource: "things"}
)

// unstructuredOf decodes an object; nil for none.
func unstructuredOf(raw json.RawMessage) (runtime.Object, error) {
	if raw == nil {
		return nil, nil
	}
	content, err := decode[object](raw)
	if err != nil || content == nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// request is the case as the patchers of a mutating policy take it.
func (p policyCase) request(types managedfields.TypeConverter) (patch.Request, error) {
	made := patch.Request{MatchedResource: thingResource, TypeConverter: types}
	obj, err := unstructuredOf(p.Object)
	if err != nil {
		return made, err
	}
	old, err := unstructuredOf(p.Old)
	if err != nil {
		return made, err
	}
	if p.Params != nil {
		if made.OptionalVariables.VersionedParams, err = unstructuredOf(p.Params); err != nil {
			return made, err
		}
	}
	if p.Namespace != nil {
		var namespace corev1.Namespace
		if err := json.Unmarshal(p.Namespace, &namespace); err != nil {
			return made, err
		}
		made.Namespace = &namespace
	}
	operation, options := admission.Create, runtime.Object(&metav1.CreateOptions{})
	if old != nil {
		operation, options = admission.Update, &metav1.UpdateOptions{}
	}
	who := &user.DefaultInfo{Name: p.User, Groups: p.Groups, Extra: p.Extra}
	attributes := admission.NewAttributesRecord(
		obj, old, thingKind, "default", "n", thingResource, "", operation, options, p.DryRun, who)
	made.VersionedAttributes = &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: thingKind,
		VersionedObject: admission.NewLazyObject(obj), VersionedOldObject: admission.NewLazyObject(old),
	}
	made.ObjectInterfaces = admission.NewObjectInterfacesFromScheme(runtime.NewScheme())
	return made, nil
}

// evaluated is the value of the expression of a case, and its cost.
func evaluated(ctx context.Context, evaluator plugincel.MutatingEvaluator, on patch.Request) policyAnswer {
	if problems := evaluator.CompilationErrors(); len(problems) > 0 {
		return policyAnswer{Error: errors.Join(problems...).Error()}
	}
	attributes := on.VersionedAttributes
	asked := plugincel.CreateAdmissionRequest(
		attributes.Attributes, metav1.GroupVersionResource(on.MatchedResource),
		metav1.GroupVersionKind(attributes.VersionedKind))
	asked.Options = runtime.RawExtension{}
	found, left, err := evaluator.ForInput(
		ctx, attributes, asked, on.OptionalVariables, plugincel.CreateNamespaceObject(on.Namespace),
		celconfig.RuntimeCELCostBudget)
	if err != nil {
		return policyAnswer{Error: err.Error()}
	}
	given := policyAnswer{Cost: celconfig.RuntimeCELCostBudget - left}
	if found.Error != nil {
		given.Error = found.Error.Error()
		return given
	}
	given.Value = shown(found.EvalResult)
	return given
}

func policy(asked policyCase) (any, error) {
	compiler, evaluator, err := asked.compile()
	if err != nil {
		return nil, err
	}
	on, err := asked.request(nil)
	if err != nil {
		return nil, err
	}
	return evaluated(compiler.CreateContext(context.Background()), evaluator, on), nil
}

// mutationCase asks what a mutation makes of an object of a custom resource with a schema.
type mutationCase struct {
	policyCase
	Schema json.RawMessage `json:"schema"`
}

// mutationAnswer is the object or the reason why there is none, and the cost of the expression.
type mutationAnswer struct {
	Result  object `json:"result,omitempty"`
	Refused string `json:"refused,omitempty"`
	Cost    int64  `json:"cost"`
}

// convertible keeps the merge types of the schema last used.
var convertible struct {
	source string
	types  managedfields.TypeConverter
}

func typesFor(source json.RawMessage) (managedfields.TypeConverter, error) {
	if convertible.source == string(source) {
		return convertible.types, nil
	}
	made, err := typesOf(thingKind, source)
	if err == nil {
		convertible.source, convertible.types = string(source), made
	}
	return made, err
}

func mutation(asked mutationCase) (any, error) {
	types, err := typesFor(asked.Schema)
	if err != nil {
		return nil, err
	}
	compiler, evaluator, err := asked.compile()
	if err != nil {
		return nil, err
	}
	on, err := asked.request(types)
	if err != nil {
		return nil, err
	}
	ctx := compiler.CreateContext(context.Background())
	given := mutationAnswer{Cost: evaluated(ctx, evaluator, on).Cost}
	patcher := patch.NewApplyConfigurationPatcher(evaluator)
	if asked.Of == "patch" {
		patcher = patch.NewJSONPatcher(evaluator)
	}
	patched, err := patcher.Patch(compiler.CreateContext(context.Background()), on, celconfig.RuntimeCELCostBudget)
	if err != nil {
		given.Refused = err.Error()
		return given, nil
	}
	given.Result = patched.(*unstructured.Unstructured).Object
	return given, nil
}
