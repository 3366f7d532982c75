package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"atoll.dev/tests/internal/checks"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// spy looks at the content type of what passes.
type spy struct {
	next http.RoundTripper
	sent *atomic.Value
}

func (s spy) RoundTrip(request *http.Request) (*http.Response, error) {
	s.sent.Store(request.Header.Get("Content-Type"))
	return s.next.RoundTrip(request)
}

// bodiesAreProtobuf shows that the other checks send what they are meant to send.
func bodiesAreProtobuf(ctx context.Context, c clients) error {
	var sent atomic.Value
	config := rest.CopyConfig(c.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return spy{next, &sent} })
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "spied"}}
	if _, err := typed.CoreV1().ConfigMaps(namespace).Create(ctx, made, metav1.CreateOptions{}); err != nil {
		return err
	}
	return checks.Expect("content type", sent.Load().(string), protobuf)
}

func configMap(ctx context.Context, c clients) error {
	api := c.typed.CoreV1().ConfigMaps(namespace)
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "settings", Labels: map[string]string{"tier": "front"}},
		Data:       map[string]string{"colour": "blue", "empty": ""},
		BinaryData: map[string][]byte{"raw": {0, 255, 1}},
	}
	made, err := api.Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if string(made.BinaryData["raw"]) != "\x00\xff\x01" || made.Data["colour"] != "blue" || made.UID == "" {
		return fmt.Errorf("came back as %v", made)
	}
	stale := made.DeepCopy()
	made.Data["colour"] = "red"
	changed, err := api.Update(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	if err := checks.Expect("colour", changed.Data["colour"], "red"); err != nil {
		return err
	}
	if _, err := api.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		return fmt.Errorf("a stale update gave %v", err)
	}
	if _, err := api.Create(ctx, wanted, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("a second create gave %v", err)
	}
	uid := changed.UID
	err = api.Delete(ctx, "settings", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil {
		return err
	}
	if _, err := api.Get(ctx, "settings", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("a get after the delete gave %v", err)
	}
	return nil
}

func secret(ctx context.Context, c clients) error {
	api := c.typed.CoreV1().Secrets(namespace)
	wanted := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pass-"},
		StringData: map[string]string{"word": "open sesame"},
	}
	made, err := api.Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if !strings.HasPrefix(made.Name, "pass-") || string(made.Data["word"]) != "open sesame" || made.Type != "Opaque" {
		return fmt.Errorf("came back as %s %s with %d entries", made.Name, made.Type, len(made.Data))
	}
	made.Data["word"] = []byte("shut")
	if made, err = api.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := checks.Expect("word", string(made.Data["word"]), "shut"); err != nil {
		return err
	}
	return api.Delete(ctx, made.Name, metav1.DeleteOptions{})
}

func namespaceLives(ctx context.Context, c clients) error {
	api := c.typed.CoreV1().Namespaces()
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}}
	made, err := api.Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Labels["kept"] = "briefly"
	if _, err := api.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	inside := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "inside"}}
	if _, err := c.typed.CoreV1().ConfigMaps(made.Name).Create(ctx, inside, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := api.Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return checks.Until(ctx, "the namespace is gone", func() (bool, error) {
		_, err := api.Get(ctx, made.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}

func event(ctx context.Context, c clients) error {
	api := c.typed.CoreV1().Events(namespace)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	wanted := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "spied.1"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: "spied"},
		Reason:         "Looked", Message: "somebody looked", Type: corev1.EventTypeNormal, Count: 1,
		FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: "clientgo"},
	}
	made, err := api.Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if !made.FirstTimestamp.Equal(&now) {
		return fmt.Errorf("first seen %v, sent %v", made.FirstTimestamp, now)
	}
	made.Count = 2
	if made, err = api.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := checks.Expect("count", made.Count, 2); err != nil {
		return err
	}
	found, err := api.List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=spied,reason=Looked"})
	if err != nil {
		return err
	}
	if err := checks.Expect("events found by their object", len(found.Items), 1); err != nil {
		return err
	}
	return api.Delete(ctx, made.Name, metav1.DeleteOptions{})
}
