package main

import (
	"context"
	"fmt"
	"log"

	"atoll.dev/tests/internal/checks"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/clientcmd"
)

// followUntilKilled prints "synced", and then "<what> <name>" for each event of an informer on ConfigMaps, as they come.
// The informer lives through whatever happens to the server meanwhile.
func followUntilKilled(kubeconfig string) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	found, err := connect(checks.Target{Config: config})
	if err != nil {
		log.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(found.typed, 0, informers.WithNamespace(namespace))
	events := follow(factory.Core().V1().ConfigMaps().Informer())
	factory.Start(context.Background().Done())
	factory.WaitForCacheSync(context.Background().Done())
	fmt.Println("synced")
	for event := range events {
		fmt.Println(event)
	}
}
