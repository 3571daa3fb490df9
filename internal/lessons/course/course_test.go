// SPDX-License-Identifier: Apache-2.0

package course

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pages is the folder of the pages that "make lessons" writes.
const pages = "../../../docs/lessons"

func TestLessons(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	index, err := os.ReadFile(filepath.Join(pages, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, l := range all {
		if got := l.Languages(); !slices.Equal(got, []string{"en", "ko"}) {
			t.Errorf("%s: the languages are %v", l.Name, got)
		}
		for _, s := range l.Steps {
			if !s.Recorded {
				t.Errorf("%s: step %s has no recorded output: run \"make lessons\"", l.Name, s.ID)
			}
		}
		for _, lang := range l.Languages() {
			file := filepath.Join(lang, l.Name+".md")
			want = append(want, file)
			if got, err := os.ReadFile(filepath.Join(pages, file)); err != nil || string(got) != l.Page(lang) {
				t.Errorf("docs/lessons/%s is not what its sources say: run \"make lessons\": %v", file, err)
			}
			if link := fmt.Sprintf("](%s)", file); !strings.Contains(string(index), link) {
				t.Errorf("docs/lessons/README.md has no link %s", link)
			}
		}
	}
	found, _ := filepath.Glob(pages + "/[a-z][a-z]/*.md")
	if len(found) != len(want) {
		t.Errorf("docs/lessons has pages without a lesson: %v, want %v", found, want)
	}
}
