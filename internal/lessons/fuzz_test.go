// SPDX-License-Identifier: Apache-2.0

package lessons

import (
	"testing"
	"testing/fstest"
)

// Teachers write lessons of their own.
func FuzzLoad(f *testing.F) {
	f.Add([]byte("lab: {proxier: iptables}\nneeds: [nft]\nmask: ['[0-9]+']\nsteps:\n- {id: look, run: viplab get pods}\n"+
		"- {id: try, exercise: true, check: 'true'}\n"), []byte("# Title\n\nText.\n\n<!-- step look -->\n\n```\nout\n```\n"))
	f.Add([]byte("steps: [{run: 'a', mask: ['(']}]"), []byte("# A\n## B\n"))
	f.Fuzz(func(t *testing.T, lesson, text []byte) {
		l, err := Load(fstest.MapFS{Manifest: {Data: lesson}, "en.md": {Data: text}}, "mine")
		if err == nil && l.Text("en") == nil {
			t.Error("it has no text")
		}
	})
}
