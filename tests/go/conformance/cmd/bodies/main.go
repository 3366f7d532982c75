// Command bodies reads kinds, a line each (`apps/v1 Deployment`), and prints three objects of each in the types of Go's
// client libraries: full (every field), empty, and zeros (zeroes behind every pointer), with their body in protobuf.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	aggregator "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
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
)

const start = 1_700_000_000

type body struct {
	Name     string         `json:"name"`
	Protobuf []byte         `json:"protobuf"`
	JSON     runtime.Object `json:"json"`
}

// filler sets every field to a value of its own, or to zero.
type filler struct {
	count int
	zeros bool
}

func (f *filler) next() int {
	f.count++
	return f.count
}

func (f *filler) special(value reflect.Value) bool {
	switch found := value.Addr().Interface().(type) {
	case *metav1.TypeMeta:
	case *metav1.Time:
		*found = metav1.Unix(start+int64(f.next()), 0)
	case *metav1.MicroTime:
		*found = metav1.NewMicroTime(time.Unix(start+int64(f.next()), 7000))
	case *resource.Quantity:
		*found = resource.MustParse([]string{"1500m", "3Gi", "7"}[f.next()%3])
	case *intstr.IntOrString:
		if *found = intstr.FromInt32(int32(f.next())); f.count%2 == 0 {
			*found = intstr.FromString(fmt.Sprint(f.count, "%"))
		}
	case *runtime.RawExtension:
		found.Raw = []byte(fmt.Sprintf(`{"a":%d}`, f.next()))
	case *metav1.FieldsV1:
		found.Raw = []byte(`{"f:data":{}}`)
	default:
		return false
	}
	return true
}

func (f *filler) fill(value reflect.Value) {
	if !f.zeros && f.special(value) {
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		if f.zeros && value.Type() != reflect.TypeFor[metav1.ObjectMeta]() && f.isLeaf(value) {
			return
		}
		for i := range value.NumField() {
			if value.Field(i).CanSet() {
				f.fill(value.Field(i))
			}
		}
	case reflect.Pointer:
		if f.zeros && isTime(value.Type().Elem()) {
			return
		}
		value.Set(reflect.New(value.Type().Elem()))
		f.fill(value.Elem())
	case reflect.Slice:
		f.fillSlice(value)
	case reflect.Map:
		f.fillMap(value)
	default:
		f.fillScalar(value)
	}
}

// isLeaf tells types with a form of their own, which stay as they are where all is zero.
func (f *filler) isLeaf(value reflect.Value) bool {
	switch value.Addr().Interface().(type) {
	case *metav1.TypeMeta, *resource.Quantity, *intstr.IntOrString, *runtime.RawExtension, *metav1.FieldsV1:
		return true
	}
	return isTime(value.Type())
}

func isTime(found reflect.Type) bool {
	return found == reflect.TypeFor[metav1.Time]() || found == reflect.TypeFor[metav1.MicroTime]()
}

func (f *filler) fillSlice(value reflect.Value) {
	switch {
	case f.zeros:
	case value.Type().Elem().Kind() == reflect.Uint8:
		value.SetBytes([]byte(fmt.Sprint("é", f.next())))
	default:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		f.fill(value.Index(0))
	}
}

func (f *filler) fillMap(value reflect.Value) {
	if f.zeros {
		return
	}
	key, item := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
	key.SetString(fmt.Sprint("key", f.next()))
	f.fill(item)
	value.Set(reflect.MakeMap(value.Type()))
	value.SetMapIndex(key, item)
}

func (f *filler) fillScalar(value reflect.Value) {
	if f.zeros {
		return
	}
	switch value.Kind() {
	case reflect.String:
		value.SetString(fmt.Sprint("é", f.next()))
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int32:
		value.SetInt(-int64(f.next()))
	case reflect.Int64, reflect.Int:
		value.SetInt(-(1 << 40) - int64(f.next()))
	case reflect.Float64:
		value.SetFloat(0.5)
	case reflect.Uint64:
		value.SetUint(uint64(f.next()))
	default:
		panic(value.Type().String())
	}
}

func bodyOf(name string, kind schema.GroupVersionKind, fill func(runtime.Object)) (body, error) {
	object, err := legacyscheme.Scheme.New(kind)
	if err != nil {
		return body{}, err
	}
	fill(object)
	object.GetObjectKind().SetGroupVersionKind(kind)
	encoded, err := runtime.Encode(protobuf.NewSerializer(legacyscheme.Scheme, legacyscheme.Scheme), object)
	return body{Name: name, Protobuf: encoded, JSON: object}, err
}

func printBodies(line string, answers *json.Encoder) error {
	version, kind, _ := strings.Cut(line, " ")
	group, err := schema.ParseGroupVersion(version)
	if err != nil {
		return err
	}
	forms := map[string]func(runtime.Object){
		"full":  func(object runtime.Object) { (&filler{}).fill(reflect.ValueOf(object).Elem()) },
		"empty": func(runtime.Object) {},
		"zeros": func(object runtime.Object) { (&filler{zeros: true}).fill(reflect.ValueOf(object).Elem()) },
	}
	for _, form := range []string{"full", "empty", "zeros"} {
		found, err := bodyOf(line+" "+form, group.WithKind(kind), forms[form])
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		if err := answers.Encode(found); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	aggregator.Install(legacyscheme.Scheme)
	lines, answers := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := printBodies(lines.Text(), answers); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
