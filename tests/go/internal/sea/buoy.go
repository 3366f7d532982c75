// Package sea is an API as a project's generated types look: a group, a version, and buoys in it.
package sea

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the group and version of the API.
var Group = schema.GroupVersion{Group: "sea.example.com", Version: "v1"}

// Buoy is the custom resource, as a project's generated types look.
type Buoy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              BuoySpec   `json:"spec"`
	Status            BuoyStatus `json:"status,omitempty"`
}

// BuoySpec is what is wanted.
type BuoySpec struct {
	Colour  string `json:"colour"`
	Flashes int32  `json:"flashes,omitempty"`
}

// BuoyStatus is what is.
type BuoyStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Turns              int64              `json:"turns,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// BuoyList is a list of them.
type BuoyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Buoy `json:"items"`
}

// DeepCopyObject copies all of it.
func (b *Buoy) DeepCopyObject() runtime.Object {
	copied := *b
	copied.ObjectMeta = *b.ObjectMeta.DeepCopy()
	copied.Status.Conditions = nil
	for _, condition := range b.Status.Conditions {
		copied.Status.Conditions = append(copied.Status.Conditions, *condition.DeepCopy())
	}
	return &copied
}

// DeepCopyObject copies all of them.
func (l *BuoyList) DeepCopyObject() runtime.Object {
	copied := *l
	copied.ListMeta = *l.ListMeta.DeepCopy()
	copied.Items = nil
	for index := range l.Items {
		copied.Items = append(copied.Items, *l.Items[index].DeepCopyObject().(*Buoy))
	}
	return &copied
}

// AddToScheme makes a scheme know the types.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(Group, &Buoy{}, &BuoyList{})
	metav1.AddToGroupVersion(scheme, Group)
	return nil
}

// Definition is the CustomResourceDefinition of buoys.
func Definition() *apiextensionsv1.CustomResourceDefinition {
	text := func(values ...string) apiextensionsv1.JSONSchemaProps {
		schema := apiextensionsv1.JSONSchemaProps{Type: "string"}
		for _, value := range values {
			schema.Enum = append(schema.Enum, apiextensionsv1.JSON{Raw: []byte(`"` + value + `"`)})
		}
		return schema
	}
	number := apiextensionsv1.JSONSchemaProps{Type: "integer", Format: "int64"}
	mapped := "map"
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps, required ...string) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties, Required: required}
	}
	condition := object(map[string]apiextensionsv1.JSONSchemaProps{
		"type": text(), "status": text("True", "False", "Unknown"), "reason": text(), "message": text(),
		"observedGeneration": number, "lastTransitionTime": {Type: "string", Format: "date-time"},
	}, "type", "status", "reason", "message", "lastTransitionTime")
	root := object(map[string]apiextensionsv1.JSONSchemaProps{
		"spec": object(map[string]apiextensionsv1.JSONSchemaProps{"colour": text("white", "red", "green"), "flashes": number}, "colour"),
		"status": object(map[string]apiextensionsv1.JSONSchemaProps{
			"observedGeneration": number, "turns": number,
			"conditions": {
				Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &condition},
				XListType: &mapped, XListMapKeys: []string{"type"},
			},
		}),
	}, "spec")
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "buoys.sea.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: Group.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "buoys", Singular: "buoy", Kind: "Buoy", ListKind: "BuoyList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale: &apiextensionsv1.CustomResourceSubresourceScale{
						SpecReplicasPath: ".spec.flashes", StatusReplicasPath: ".status.turns",
					},
				},
			}},
		},
	}
}
