// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/suite/prove/faults"
)

func TestTableSumsThemes(t *testing.T) {
	one := func(theme, fault, spec string, err error) trial {
		return trial{fault: faults.Fault{Name: fault}, theme: theme, spec: spec, err: err}
	}
	var out strings.Builder
	err := write(&out, []trial{
		one("udp", "a", "spec", nil), one("udp", "b", "", nil), one("scale", "c", "", errors.New("too long")),
	}, map[string]bool{"a": true, "b": true})
	if err != nil {
		t.Fatal(err)
	}
	want := `| theme | faults | noticed by scenarios | noticed by specs | not noticed by specs |
|---|---|---|---|---|
| udp | 2 | 2 | 1 | b |
| scale | 1 | 0 | 0 | c (no result) |
| all | 3 | 2 | 1 | 1 without a result |
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}
