// Command validation reads writes in JSON, a line each, and prints the errors with which kube-apiserver refuses them:
// {"object": ...} is a create, with "old" an update, with "subresource" an update of its part.
// An answer is {"errors": [{"type", "field", "message"}]}, or {"failure": ...} for an object that is not decoded.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	aggregator "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/capabilities"
)

const (
	maxLine   = 16 * 1024 * 1024
	namespace = "default"
)

type write struct {
	Object      json.RawMessage `json:"object"`
	Old         json.RawMessage `json:"old"`
	Subresource string          `json:"subresource"`
}

type fieldError struct {
	Type    metav1.CauseType `json:"type"`
	Field   string           `json:"field"`
	Message string           `json:"message"`
}

type answer struct {
	Errors  []fieldError `json:"errors"`
	Failure string       `json:"failure,omitempty"`
}

// strategy is what the registry of a kind does on create and update.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

func decoded(raw []byte) (runtime.Object, *schema.GroupVersionKind, error) {
	return legacyscheme.Codecs.UniversalDecoder().Decode(raw, nil, nil)
}

func contextFor(kind *schema.GroupVersionKind, subresource string, isNamespaced bool) context.Context {
	ctx := genericrequest.WithUser(context.Background(), &user.DefaultInfo{Name: "somebody"})
	ctx = genericrequest.WithRequestInfo(ctx, &genericrequest.RequestInfo{
		IsResourceRequest: true, APIGroup: kind.Group, APIVersion: kind.Version, Subresource: subresource,
	})
	if isNamespaced {
		return genericrequest.WithNamespace(ctx, namespace)
	}
	return genericrequest.WithNamespace(ctx, metav1.NamespaceNone)
}

// run returns the error of a write; a panic, which kube-apiserver answers with 500, is one.
func run(request write) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	object, kind, err := decoded(request.Object)
	if err != nil {
		return err
	}
	chosen, err := strategyOf(kind.GroupKind(), request.Subresource)
	if err != nil {
		return err
	}
	ctx := contextFor(kind, request.Subresource, chosen.NamespaceScoped())
	if request.Old == nil {
		accessor, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		rest.FillObjectMetaSystemFields(accessor)
		return rest.BeforeCreate(chosen, ctx, object)
	}
	old, _, err := decoded(request.Old)
	if err != nil {
		return err
	}
	return rest.BeforeUpdate(chosen, ctx, object, old)
}

func answerTo(line []byte) answer {
	var request write
	if err := json.Unmarshal(line, &request); err != nil {
		return answer{Failure: err.Error()}
	}
	err := run(request)
	if err == nil {
		return answer{Errors: []fieldError{}}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Reason != metav1.StatusReasonInvalid {
		return answer{Failure: err.Error()}
	}
	found := answer{Errors: []fieldError{}}
	for _, cause := range status.Status().Details.Causes {
		found.Errors = append(found.Errors, fieldError{cause.Type, cause.Field, cause.Message})
	}
	return found
}

func main() {
	aggregator.Install(legacyscheme.Scheme)
	capabilities.Setup(true, 0)
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
