// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const schemaFile = "../../../docs/schema/trace.json"

// The published schema has the fields of the types, and takes what labs have recorded.
func TestSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		in, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		value, err := jsonschema.UnmarshalJSON(in)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		value.(map[string]any)["walk"].(map[string]any)["steps"].([]any)[0].(map[string]any)["something"] = "else"
		if schema.Validate(value) == nil {
			t.Error("the schema takes any field of a step")
		}
	}
}

func TestSchemaHasAllFields(t *testing.T) {
	type object struct {
		Properties map[string]object
		Items      *object
	}
	var schema struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	inStep := schema.Defs["tuple"].Properties["quoted"]
	places := schema.Properties["places"].Items
	for _, c := range []struct {
		value any
		in    object
	}{
		{Traced{}, schema.object}, {Flow{}, *schema.Properties["flows"].Items}, {Place{}, *places},
		{Walk{}, schema.Defs["walk"]}, {Step{}, schema.Defs["step"]}, {Tuple{}, schema.Defs["tuple"]}, {Quoted{}, inStep},
		{End{}, schema.Defs["end"]}, {Outer{}, schema.Defs["outer"]}, {Frame{}, schema.Defs["frame"]},
		{Loss{}, schema.Defs["loss"]}, {Device{}, schema.Defs["device"]}, {Chain{}, schema.Defs["chain"]},
		{DeviceName{}, schema.Defs["device"].Properties["peer"]},
	} {
		var got []string
		for name := range c.in.Properties {
			got = append(got, name)
		}
		want := fieldsOf(reflect.TypeOf(c.value))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%T: docs/schema/trace.json has the fields\n%q, and the type\n%q", c.value, got, want)
		}
	}
}

// fieldsOf returns the names of a type's fields in JSON.
func fieldsOf(of reflect.Type) (names []string) {
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			names = append(names, fieldsOf(f.Type)...)
		case name != "":
			names = append(names, name)
		}
	}
	return names
}
