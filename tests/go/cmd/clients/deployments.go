package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"atoll.dev/tests/internal/checks"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// line is the way to the server, which can be cut for a while.
type line struct {
	lock  sync.Mutex
	isCut bool
	open  []net.Conn
}

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.isCut {
		return nil, errors.New("the line is cut")
	}
	made, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		l.open = append(l.open, made)
	}
	return made, err
}

// set cuts all connections, or lets new ones be made.
func (l *line) set(cut bool) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.isCut = cut
	for _, each := range l.open {
		_ = each.Close()
	}
	l.open = nil
}

// deploymentInformer follows Deployments by a typed informer in one media type: what is made, changed and deleted, also
// while its connections are cut.
func deploymentInformer(media string) func(context.Context, clients) (any, error) {
	return func(ctx context.Context, c clients) (any, error) {
		way, got := &line{}, &atomic.Value{}
		config := rest.CopyConfig(c.config)
		config.ContentType, config.AcceptContentTypes, config.Dial = media, media, way.dial
		config.Wrap(wrapped(got))
		typed, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		api := c.typed.AppsV1().Deployments(namespace)
		for _, name := range []string{"first", "second"} {
			if _, err := api.Create(ctx, deploymentOf(name), metav1.CreateOptions{}); err != nil {
				return nil, err
			}
		}
		factory := informers.NewSharedInformerFactoryWithOptions(typed, time.Minute, informers.WithNamespace(namespace))
		deployments := factory.Apps().V1().Deployments()
		events := follow(deployments.Informer())
		running, cancel := context.WithCancel(ctx)
		defer cancel()
		factory.Start(running.Done())
		factory.WaitForCacheSync(running.Done())
		if err := await(ctx, events, "added first"); err != nil {
			return nil, err
		}
		if err := scaled(ctx, c, "first", 3); err != nil {
			return nil, err
		}
		if err := await(ctx, events, "updated first"); err != nil {
			return nil, err
		}
		way.set(true)
		if err := scaled(ctx, c, "first", 5); err != nil {
			return nil, err
		}
		if err := api.Delete(ctx, "second", metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		if _, err := api.Create(ctx, deploymentOf("third"), metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		way.set(false)
		if err := awaitAll(ctx, events, "updated first", "deleted second", "added third"); err != nil {
			return nil, err
		}
		known, err := deployments.Lister().Deployments(namespace).Get("first")
		if err != nil {
			return nil, err
		}
		strategy := known.Spec.Strategy.RollingUpdate.MaxUnavailable.String()
		if err := checks.Expect("the known one", fmt.Sprint(*known.Spec.Replicas, " ", strategy), "5 25%"); err != nil {
			return nil, err
		}
		if err := api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return nil, err
		}
		return got.Load(), awaitAll(ctx, events, "deleted first", "deleted third")
	}
}

func scaled(ctx context.Context, c clients, name string, replicas int32) error {
	api := c.typed.AppsV1().Deployments(namespace)
	scale, err := api.GetScale(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	scale.Spec.Replicas = replicas
	_, err = api.UpdateScale(ctx, name, scale, metav1.UpdateOptions{})
	return err
}
