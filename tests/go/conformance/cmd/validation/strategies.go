package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kube-aggregator/pkg/registry/apiservice"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"k8s.io/kubernetes/pkg/registry/apps/controllerrevision"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/discovery/endpointslice"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/flowschema"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/prioritylevelconfiguration"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/ipaddress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/networking/servicecidr"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattributesclass"
)

// anyone may do everything: these checks are about objects.
type anyone struct{}

func (anyone) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// strategies are by kind, with "/" and the subresource behind.
var strategies = map[string]any{
	"ControllerRevision":                controllerrevision.Strategy,
	"DaemonSet":                         daemonset.Strategy,
	"DaemonSet/status":                  daemonset.StatusStrategy,
	"Deployment":                        deployment.Strategy,
	"Deployment/status":                 deployment.StatusStrategy,
	"ReplicaSet":                        replicaset.Strategy,
	"ReplicaSet/status":                 replicaset.StatusStrategy,
	"StatefulSet":                       statefulset.Strategy,
	"StatefulSet/status":                statefulset.StatusStrategy,
	"HorizontalPodAutoscaler":           horizontalpodautoscaler.Strategy,
	"HorizontalPodAutoscaler/status":    horizontalpodautoscaler.StatusStrategy,
	"CronJob":                           cronjob.Strategy,
	"CronJob/status":                    cronjob.StatusStrategy,
	"Job":                               job.Strategy,
	"Job/status":                        job.StatusStrategy,
	"Endpoints":                         endpoint.Strategy,
	"LimitRange":                        limitrange.Strategy,
	"Node":                              node.Strategy,
	"Node/status":                       node.StatusStrategy,
	"PersistentVolume":                  persistentvolume.Strategy,
	"PersistentVolume/status":           persistentvolume.StatusStrategy,
	"PersistentVolumeClaim":             persistentvolumeclaim.Strategy,
	"PersistentVolumeClaim/status":      persistentvolumeclaim.StatusStrategy,
	"Pod":                               pod.Strategy,
	"Pod/status":                        pod.StatusStrategy,
	"Pod/ephemeralcontainers":           pod.EphemeralContainersStrategy,
	"Pod/resize":                        pod.ResizeStrategy,
	"PodTemplate":                       podtemplate.Strategy,
	"ReplicationController":             replicationcontroller.Strategy,
	"ReplicationController/status":      replicationcontroller.StatusStrategy,
	"Service":                           service.Strategy,
	"Service/status":                    service.StatusStrategy,
	"EndpointSlice":                     endpointslice.Strategy,
	"FlowSchema":                        flowschema.Strategy,
	"FlowSchema/status":                 flowschema.StatusStrategy,
	"PriorityLevelConfiguration":        prioritylevelconfiguration.Strategy,
	"PriorityLevelConfiguration/status": prioritylevelconfiguration.StatusStrategy,
	"Ingress":                           ingress.Strategy,
	"Ingress/status":                    ingress.StatusStrategy,
	"IngressClass":                      ingressclass.Strategy,
	"IPAddress":                         ipaddress.Strategy,
	"NetworkPolicy":                     networkpolicy.Strategy,
	"ServiceCIDR":                       servicecidr.Strategy,
	"ServiceCIDR/status":                servicecidr.StatusStrategy,
	"RuntimeClass":                      runtimeclass.Strategy,
	"PodDisruptionBudget":               poddisruptionbudget.Strategy,
	"PodDisruptionBudget/status":        poddisruptionbudget.StatusStrategy,
	"DeviceClass":                       deviceclass.Strategy,
	"ResourceClaim":                     resourceclaim.NewStrategy(nil, nil),
	"ResourceClaim/status":              resourceclaim.NewStatusStrategy(resourceclaim.NewStrategy(nil, anyone{})),
	"ResourceClaimTemplate":             resourceclaimtemplate.NewStrategy(nil),
	"ResourceSlice":                     resourceslice.Strategy,
	"PriorityClass":                     priorityclass.Strategy,
	"CSIDriver":                         csidriver.Strategy,
	"CSINode":                           csinode.Strategy,
	"CSIStorageCapacity":                csistoragecapacity.Strategy,
	"StorageClass":                      storageclass.Strategy,
	"VolumeAttachment":                  volumeattachment.Strategy,
	"VolumeAttachment/status":           volumeattachment.StatusStrategy,
	"VolumeAttributesClass":             volumeattributesclass.Strategy,
	"APIService":                        apiservice.NewStrategy(legacyscheme.Scheme),
}

func strategyOf(kind schema.GroupKind, subresource string) (strategy, error) {
	name := kind.Kind
	if subresource != "" {
		name += "/" + subresource
	}
	found, ok := strategies[name].(strategy)
	if !ok {
		return nil, fmt.Errorf("no strategy for %s", name)
	}
	return found, nil
}
