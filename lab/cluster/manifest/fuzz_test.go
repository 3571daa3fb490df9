// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

// FuzzManifest decodes and applies what a person may write. What the store has taken, it can write, and read again.
func FuzzManifest(f *testing.F) {
	files, err := filepath.Glob("../store/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no manifests: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{
		`{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}]}`,
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: NodePort, ipFamilyPolicy: PreferDualStack, " +
			"externalTrafficPolicy: Local, ports: [{port: 80, targetPort: http, nodePort: 30000}]}",
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a}\naddressType: IPv4\nendpoints:\n" +
			"- {addresses: [10.0.0.1], conditions: {ready: true}}\nports: [{port: 1}]",
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {completionMode: Indexed, completions: 2, template: " +
			"{spec: {restartPolicy: Never, containers: [{name: a, image: nginx}]}}}",
		"&a [*a]", "a: &a [x]\nb: [*a, *a]", "--- {}\n---\nkind: 1", "\xff", "? {}\n: 1",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		objects, err := Decode("input", text)
		if err != nil {
			return
		}
		state := store.New(store.Config{Stack: lab.Dual})
		for _, o := range objects {
			if state.Apply(o) != nil {
				return
			}
			var again bytes.Buffer
			if err := Encode(&again, o); err != nil {
				t.Fatalf("%T: %v", o, err)
			}
			if _, err := Decode("output", again.Bytes()); err != nil {
				t.Fatalf("%v\n%s", err, again.Bytes())
			}
		}
	})
}
