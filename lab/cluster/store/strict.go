// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// problem is something wrong at a place of a document.
type problem struct{ field, detail string }

// checkValue compares a parsed document with the Go type it is for, and finds every field that does not exist and every
// value of a wrong type: a decoder would stop at the first.
func checkValue(path string, v any, t reflect.Type) []problem {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if v == nil {
		return nil
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return checkSpecial(path, v, t)
	}
	switch t.Kind() {
	case reflect.Struct:
		return checkStruct(path, v, t)
	case reflect.Map:
		return checkMap(path, v, t)
	case reflect.Slice:
		return checkSlice(path, v, t)
	default:
		return checkScalar(path, v, t)
	}
}

func wrongType(path, want string, got any) []problem {
	return []problem{{path, fmt.Sprintf("wants %s, got %s", want, describe(got))}}
}

func describe(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the string %q", v)
	case bool:
		return fmt.Sprintf("the boolean %t", v)
	default:
		return fmt.Sprintf("the number %v", v)
	}
}

// checkSpecial is for types that parse themselves.
func checkSpecial(path string, v any, t reflect.Type) []problem {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, reflect.New(t).Interface())
	}
	if err == nil {
		return nil
	}
	switch t {
	case reflect.TypeFor[intstr.IntOrString]():
		return wrongType(path, "an integer or a string", v)
	case reflect.TypeFor[apiresource.Quantity]():
		return wrongType(path, "a quantity such as 100m or 64Mi", v)
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return wrongType(path, "a time such as 2006-01-02T15:04:05Z", v)
	default:
		return []problem{{path, err.Error()}}
	}
}

func checkStruct(path string, v any, t reflect.Type) []problem {
	object, ok := v.(map[string]any)
	if !ok {
		return wrongType(path, "an object", v)
	}
	known := fieldsOf(t)
	var out []problem
	for _, name := range slices.Sorted(maps.Keys(object)) {
		at := join(path, name)
		if ft, ok := known[name]; ok {
			out = append(out, checkValue(at, object[name], ft)...)
		} else {
			out = append(out, problem{at, unknownField(name, slices.Sorted(maps.Keys(known)))})
		}
	}
	return out
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// fieldsOf maps the names that JSON uses for the fields of a struct to their types.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range fieldsIn(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && (name == "" || strings.Contains(options, "inline")):
			maps.Copy(out, fieldsOf(f.Type))
		case name != "" && name != "-":
			out[name] = f.Type
		}
	}
	return out
}

func fieldsIn(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

func unknownField(name string, known []string) string {
	best, distance := "", 3 // a mistake of three letters is another word
	for _, k := range known {
		d := editDistance(strings.ToLower(name), strings.ToLower(k))
		if d < distance {
			best, distance = k, d
		}
	}
	guess := ""
	if best != "" {
		guess = fmt.Sprintf(", did you mean %q?", best)
	}
	return fmt.Sprintf("unknown field%s (allowed: %s)", guess, strings.Join(known, ", "))
}

// editDistance counts the letters to insert, delete or replace to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func checkMap(path string, v any, t reflect.Type) []problem {
	object, ok := v.(map[string]any)
	if !ok {
		return wrongType(path, "an object", v)
	}
	var out []problem
	for _, name := range slices.Sorted(maps.Keys(object)) {
		out = append(out, checkValue(fmt.Sprintf("%s[%s]", path, name), object[name], t.Elem())...)
	}
	return out
}

func checkSlice(path string, v any, t reflect.Type) []problem {
	if t.Elem().Kind() == reflect.Uint8 {
		return checkScalar(path, v, reflect.TypeFor[string]()) // bytes are base64 in JSON
	}
	list, ok := v.([]any)
	if !ok {
		return wrongType(path, "a list", v)
	}
	var out []problem
	for i, item := range list {
		out = append(out, checkValue(fmt.Sprintf("%s[%d]", path, i), item, t.Elem())...)
	}
	return out
}

func checkScalar(path string, v any, t reflect.Type) []problem {
	switch t.Kind() {
	case reflect.String:
		switch v := v.(type) {
		case string:
		case bool:
			return wrongType(path, "a string (without quotes YAML reads y, yes, on, n, no and off as booleans)", v)
		case int64, float64:
			return wrongType(path, fmt.Sprintf("a string (in quotes: \"%v\")", v), v)
		default:
			return wrongType(path, "a string", v)
		}
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			return wrongType(path, "true or false", v)
		}
	case reflect.Int32, reflect.Int64, reflect.Int:
		n, ok := v.(int64)
		if !ok {
			return wrongType(path, "an integer", v)
		}
		if t.Kind() == reflect.Int32 && (n < math.MinInt32 || n > math.MaxInt32) {
			return wrongType(path, "an integer of 32 bits", v)
		}
	}
	return nil
}
