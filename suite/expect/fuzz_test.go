// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"io/fs"
	"testing"
)

// A person writes files of known deviations. Those that come with viplab are the seeds.
func FuzzParse(f *testing.F) {
	files, err := fs.Glob(shipped, "known/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no files: %v", err)
	}
	for _, name := range files {
		text, err := shipped.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, false)
	}
	f.Add([]byte("proxier: a\nexpect:\n- {scenario: 'b*', versions: '>1 || <0', got: Silence, issue: none, reason: c}"), true)
	f.Fuzz(func(t *testing.T, text []byte, draft bool) {
		parse := Parse
		if draft {
			parse = ParseDraft
		}
		if file, err := parse("input", text); err == nil && file.Proxier == "" {
			t.Error("a file without a proxier is accepted")
		}
	})
}
