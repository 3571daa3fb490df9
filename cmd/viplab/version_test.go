// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionStatesTheCommit(t *testing.T) {
	b := build{Go: "go1.26.8", Platform: "linux/arm64"}
	b.read(&debug.BuildInfo{Main: debug.Module{Version: "v0.3.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "95bda31"}, {Key: "vcs.time", Value: "2026-11-24T04:55:01Z"},
		{Key: "vcs.modified", Value: "true"}}})
	var out bytes.Buffer
	if err := b.write(&out); err != nil {
		t.Fatal(err)
	}
	want := "viplab   v0.3.0\ncommit   95bda31 of 2026-11-24T04:55:01Z, with changes\ngo       go1.26.8\n" +
		"platform linux/arm64\n"
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}

func TestVersionWithoutARepository(t *testing.T) {
	var b build
	b.read(&debug.BuildInfo{})
	var out bytes.Buffer
	if err := b.write(&out); err != nil || !strings.Contains(out.String(), "commit   unknown\n") || b.Version != "(devel)" {
		t.Errorf("%v, %v\n%s", b, err, out.String())
	}
}
