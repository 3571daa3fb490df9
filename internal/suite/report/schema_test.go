// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/viplab/viplab/suite/spec"
)

const schemas = "../../../docs/schema/"

// validate checks the JSON form of a value, and that a field which the schema does not know is refused.
func validate(t *testing.T, file string, v any) {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(schemas + file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	value.(map[string]any)["something"] = "else"
	if schema.Validate(value) == nil {
		t.Errorf("%s takes any field", file)
	}
}

func TestSchemas(t *testing.T) {
	whole, other := sample(), sample()
	whole.Date, whole.Command, whole.WallMS = time.Now().UTC(), "viplab conform", 1
	whole.Settings = Settings{IP: "dual", Enforcer: "e"}
	whole.Suite.Shard, whole.Suite.Whole = "1/2", 6
	whole.SetVersion("p", "v1")
	whole.SetFeatures("p", spec.Features(spec.NodePort, spec.ClusterIP))
	whole.SetFeatures("q", nil)
	validate(t, "report.json", whole)
	validate(t, "report.json", Merge())
	other.Results[0].Verdict, other.Results[1].Verdict = spec.Fail, spec.Pass
	c := Compare(whole, other, 2)
	validate(t, "comparison.json", c)
	validate(t, "comparison.json", Compare(whole, whole, 2))
}

// The published schemas have exactly the fields of the types.
func TestSchemasHaveAllFields(t *testing.T) {
	type object struct {
		Properties map[string]object
		Items      *object
		Defs       map[string]object `json:"$defs"`
	}
	read := func(file string) (o object) {
		text, err := os.ReadFile(schemas + file)
		if err == nil {
			err = json.Unmarshal(text, &o)
		}
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	r, c := read("report.json"), read("comparison.json")
	for _, x := range []struct {
		value any
		in    object
	}{
		{Report{}, r}, {Suite{}, r.Properties["suite"]}, {Settings{}, r.Properties["settings"]},
		{Proxier{}, *r.Properties["proxiers"].Items}, {Coverage{}, r.Defs["coverage"]}, {Result{}, r.Defs["result"]},
		{spec.Probed{}, r.Defs["probed"]}, {spec.Hop{}, *r.Defs["probed"].Properties["path"].Items},
		{Comparison{}, c}, {Side{}, c.Defs["side"]}, {Change{}, c.Defs["change"]},
	} {
		var want, got []string
		for name := range x.in.Properties {
			want = append(want, name)
		}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(x.value)) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && f.IsExported() {
				got = append(got, name)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%T has %v, and the schema %v", x.value, got, want)
		}
	}
}
