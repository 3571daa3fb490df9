// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/suite/prove"
	"github.com/viplab/viplab/internal/suite/prove/faults"
)

func TestTableSumsThemes(t *testing.T) {
	one := func(theme, fault string, v prove.Verdict, spec string, err error) trial {
		return trial{fault: faults.Fault{Name: fault}, theme: theme, prove: v, spec: spec, err: err}
	}
	var out strings.Builder
	err := write(&out, []trial{
		one("udp", "a", prove.Caught, "spec", nil), one("udp", "b", prove.Caught, "", nil),
		one("scale", "c", prove.Survived, "", errors.New("too long")),
	})
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
