// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"io"
	"reflect"

	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/viplab/viplab/lab/cluster/store"
)

// Encode writes objects as YAML documents for Decode and kubectl, without empty parts such as an empty status.
func Encode(w io.Writer, objs ...store.Object) error {
	for i, o := range objs {
		text, err := encodeOne(o)
		if err != nil {
			return fmt.Errorf("%T %s: %w", o, store.KeyOf(o), err)
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

func encodeOne(o store.Object) ([]byte, error) {
	if r := store.ResourceOf(o); r != nil {
		o = o.DeepCopyObject().(store.Object)
		r.SetTypeMeta(o)
		o.SetManagedFields(nil)
	}
	v, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	prune(v)
	if isBlank(v["status"]) {
		delete(v, "status")
	}
	return yaml.Marshal(v)
}

// noise are fields that mean nothing if they are empty, unlike an empty podSelector or emptyDir.
var noise = map[string]bool{"resources": true, "strategy": true, "loadBalancer": true, "daemonEndpoints": true,
	"nodeInfo": true}

// isBlank reports whether every part of a value is empty, so that it can be omitted.
func isBlank(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if !isBlank(e) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	default:
		return v == nil || reflect.ValueOf(v).IsZero()
	}
}

func prune(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			prune(e)
			if e == nil || noise[k] && isBlank(e) {
				delete(v, k)
			}
		}
	case []any:
		for _, e := range v {
			prune(e)
		}
	}
}
