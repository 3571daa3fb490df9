// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"bytes"
	"testing"
)

// A person writes cases, and manifests of policies.
func FuzzLoad(f *testing.F) {
	cases, err := Static()
	if err != nil {
		f.Fatal(err)
	}
	for i := 0; i < len(cases); i += 90 {
		var text bytes.Buffer
		if err := WriteCases(&text, cases[i]); err != nil {
			f.Fatal(err)
		}
		f.Add(text.Bytes())
	}
	f.Add([]byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {podSelector: {}, " +
		"ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}], ports: [{port: 80, endPort: 90}]}]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if cases, err := Load("input", text); err == nil && len(cases) == 0 {
			t.Error("neither cases nor an error")
		}
	})
}
