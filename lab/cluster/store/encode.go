// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"io"
	"reflect"

	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/runtime"
)

// Encode writes objects as YAML documents that Decode and kubectl take. What says nothing is left out: an empty status,
// null timestamps, empty resources of containers.
func Encode(w io.Writer, objs ...Object) error {
	for i, o := range objs {
		text, err := encodeOne(o)
		if err != nil {
			return fmt.Errorf("%T %s: %w", o, KeyOf(o), err)
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

func encodeOne(o Object) ([]byte, error) {
	if r := ResourceOf(o); r != nil {
		o = copyOf(o)
		setTypeMeta(o, r)
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
