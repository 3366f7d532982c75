// Package wildcard keeps the objects that a virtual workspace shows of many logical clusters, as the source of a
// controller of controller-runtime. Stock informers know an object by namespace and name alone, which is not enough
// where every consumer has an object of the same name; here the cluster belongs to the key.
package wildcard

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Annotation is where an object says in which logical cluster it is.
const Annotation = "kcp.io/cluster"

// Key is what an object is known by across clusters.
type Key struct {
	Cluster string
	types.NamespacedName
}

// KeyOf gives the key of an object.
func KeyOf(object metav1.Object) Key {
	name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	return Key{object.GetAnnotations()[Annotation], name}
}

// Store follows one kind in all clusters that its client sees. It is a source of controller-runtime.
type Store struct {
	client  client.WithWatch
	kind    client.Object
	list    client.ObjectList
	lock    sync.Mutex
	objects map[Key]client.Object
	changed func(Key)
	synced  chan struct{}
	once    sync.Once
}

// New gives a store that follows nothing until it is started.
func New(of client.WithWatch, kind client.Object, list client.ObjectList) *Store {
	return &Store{
		client: of, kind: kind, list: list, objects: map[Key]client.Object{}, changed: func(Key) {},
		synced: make(chan struct{}),
	}
}

// Start follows until the context ends; every key of something that changed goes into the queue.
func (s *Store) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[Key]) error {
	s.changed = queue.Add
	s.Follow(ctx)
	return nil
}

// Follow is Start without a queue.
func (s *Store) Follow(ctx context.Context) {
	calls := &cache.ListWatch{ListWithContextFunc: s.listed, WatchFuncWithContext: s.watched}
	source := cache.ToListWatcherWithWatchListSemantics(calls, withoutWatchList{})
	reflector := cache.NewReflectorWithOptions(source, s.kind, reflected{s}, cache.ReflectorOptions{})
	go reflector.RunWithContext(ctx)
}

// WaitForSync waits for the first whole list.
func (s *Store) WaitForSync(ctx context.Context) error {
	select {
	case <-s.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Get gives a copy of an object, nil if there is none.
func (s *Store) Get(key Key) client.Object {
	s.lock.Lock()
	defer s.lock.Unlock()
	if found, ok := s.objects[key]; ok {
		return found.DeepCopyObject().(client.Object)
	}
	return nil
}

// Clusters gives the number of objects in each cluster.
func (s *Store) Clusters() map[string]int {
	s.lock.Lock()
	defer s.lock.Unlock()
	found := map[string]int{}
	for key := range s.objects {
		found[key.Cluster]++
	}
	return found
}

func (s *Store) listed(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list := s.list.DeepCopyObject().(client.ObjectList)
	return list, s.client.List(ctx, list, &client.ListOptions{Raw: &options})
}

func (s *Store) watched(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return s.client.Watch(ctx, s.list.DeepCopyObject().(client.ObjectList), &client.ListOptions{Raw: &options})
}

// withoutWatchList: a reflector collects the objects of a watch-list by namespace and name, too.
type withoutWatchList struct{}

func (withoutWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// reflected is the side of a store that a reflector writes.
type reflected struct{ *Store }

func (r reflected) Add(given any) error {
	object := given.(client.Object)
	r.lock.Lock()
	r.objects[KeyOf(object)] = object
	r.lock.Unlock()
	r.changed(KeyOf(object))
	return nil
}

func (r reflected) Update(given any) error { return r.Add(given) }

func (r reflected) Delete(given any) error {
	key := KeyOf(given.(client.Object))
	r.lock.Lock()
	delete(r.objects, key)
	r.lock.Unlock()
	r.changed(key)
	return nil
}

func (r reflected) Replace(given []any, _ string) error {
	found, changed := map[Key]client.Object{}, map[Key]bool{}
	for _, each := range given {
		object := each.(client.Object)
		found[KeyOf(object)], changed[KeyOf(object)] = object, true
	}
	r.lock.Lock()
	for key := range r.objects {
		changed[key] = true
	}
	r.objects = found
	r.lock.Unlock()
	for key := range changed {
		r.changed(key)
	}
	r.once.Do(func() { close(r.synced) })
	return nil
}

func (r reflected) Resync() error { return nil }
