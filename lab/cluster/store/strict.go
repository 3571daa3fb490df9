// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// unmarshalStrict decodes an object as API servers do, and returns what they would say: every field that does not
// exist, or the first value of a wrong type. An unknown field comes with the fields that there are.
func unmarshalStrict(text []byte, into Object) (mistakes []string) {
	unknown, err := kjson.UnmarshalStrict(text, into, kjson.DisallowUnknownFields)
	wrong := (*json.UnmarshalTypeError)(nil)
	switch {
	case errors.As(err, &wrong) && wrong.Type.Kind() == reflect.String &&
		(wrong.Value == "bool" || wrong.Value == "number"):
		return []string{fmt.Sprintf("%s: wants a string, got a %s; "+
			"YAML reads 1, true, yes and off as strings in quotes only", wrong.Field, wrong.Value)}
	case errors.As(err, &wrong):
		return []string{fmt.Sprintf("%s: wants %s, got %s", wrong.Field, wrong.Type, wrong.Value)}
	case err != nil:
		return []string{err.Error()}
	}
	for _, u := range unknown {
		mistake := u.Error()
		if at, ok := u.(kjson.FieldError); ok {
			mistake += alternatives(reflect.TypeOf(into), at.FieldPath())
		}
		mistakes = append(mistakes, mistake)
	}
	return mistakes
}

// alternatives returns the fields that exist where an unknown one was found, as the end of a message.
func alternatives(t reflect.Type, path string) string {
	steps := strings.Split(path, ".")
	unknown := steps[len(steps)-1]
	for _, step := range steps[:len(steps)-1] {
		name, _, _ := strings.Cut(step, "[")
		t = fieldsOf(t)[name]
	}
	known := slices.Sorted(maps.Keys(fieldsOf(t)))
	if len(known) == 0 {
		return ""
	}
	best, distance, guess := "", 3, "" // a mistake of three letters is another word
	for _, k := range known {
		if d := editDistance(strings.ToLower(unknown), strings.ToLower(k)); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		guess = fmt.Sprintf(", did you mean %q?", best)
	}
	return fmt.Sprintf("%s (allowed: %s)", guess, strings.Join(known, ", "))
}

// fieldsOf returns the fields of a struct, or of the structs in a list or map, by JSON name; none for other types.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	for t != nil && slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, t.Kind()) {
		t = t.Elem()
	}
	out := map[string]reflect.Type{}
	if t == nil || t.Kind() != reflect.Struct {
		return out
	}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			out[name] = f.Type
		}
	}
	return out
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
