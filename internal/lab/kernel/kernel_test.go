// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func find(t *testing.T, findings []Finding, feature Feature) Finding {
	t.Helper()
	for _, f := range findings {
		if f.Feature == feature {
			return f
		}
	}
	t.Fatalf("no finding %q", feature)
	return Finding{}
}

// What the tests themselves rely on must be found.
func TestExamineFindsWhatIsThere(t *testing.T) {
	findings := Examine(t.Context(), Probes())
	for _, feature := range []Feature{"network namespaces", "veth", "bridge", "packet sockets", "conntrack events"} {
		if f := find(t, findings, feature); f.Status != Has {
			t.Errorf("%s: %v: %s", feature, f.Status, f.Detail)
		}
	}
	for _, f := range findings {
		t.Logf("%-24s %-8v %s", f.Feature, f.Status, f.Detail)
		if f.Status == Has && f.Module+f.Package+f.Cure != "" {
			t.Errorf("%s is there and has a cure", f.Feature)
		}
		if f.Status == Lacks && f.Detail == "" {
			t.Errorf("%s is lacking without a reason", f.Feature)
		}
		if f.For == "" {
			t.Errorf("%s is for nothing", f.Feature)
		}
	}
}

// Devices of a kind that the kernel does not have are asked for by the same path as those that it has.
func TestAnUnknownDeviceIsLacking(t *testing.T) {
	p := Probe{Feature: "nonsense", Module: "nonsense", For: "nothing",
		try: device(&netlink.GenericLink{LinkAttrs: named(), LinkType: "nonsense"})}
	f := p.Run(t.Context())
	if f.Status != Lacks || !f.InVM || f.Module != "nonsense" || !strings.Contains(f.Detail, "not supported") {
		t.Errorf("got %+v", f)
	}
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Status
	}{
		{nil, Has},
		{lacking(unix.EOPNOTSUPP), Lacks},
		{lacking(fmt.Errorf("open: %w", os.ErrNotExist)), Unknown},
		{lacking(fmt.Errorf("open: %w", unix.ENOENT)), Lacks},
		{lacking(unix.EPERM), Unknown},
		{errors.New("no answer"), Unknown},
	} {
		p := Probe{bare: true, try: func(context.Context, *netns.NS) (string, error) { return "", c.err }}
		if got := p.Run(t.Context()).Status; got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestNoProgramsAtAll(t *testing.T) {
	t.Setenv("PATH", "")
	findings := Examine(t.Context(), Probes())
	for _, p := range Programs(Probes()) {
		if p.Package == "" {
			continue
		}
		f := find(t, findings, p.Feature)
		if f.Status != Lacks || f.Detail != "not installed" || f.Package == "" {
			t.Errorf("%s: %+v", p.Feature, f)
		}
	}
	// What is tried with a program cannot be told without it.
	for _, feature := range []Feature{"nf_tables nat", "iptables-nft rules", "ip sets"} {
		f := find(t, findings, feature)
		if f.Status != Unknown || !strings.HasSuffix(f.Detail, "is not installed") || f.InVM || f.Module != "" {
			t.Errorf("%s: %+v", feature, f)
		}
	}
}

// A program that refuses some rules stands for a kernel without their modules.
func TestRefusedRulesAreNamed(t *testing.T) {
	for _, c := range []struct {
		complaint string
		status    Status
		detail    string
	}{
		{"Extension recent revision 0 not supported, missing kernel module?", Lacks, "recent: "},
		{"Permission denied (you must be root)", Unknown, "Permission denied"},
	} {
		dir := t.TempDir()
		script := "#!/bin/sh\nif /bin/grep -q 'm recent'; then echo '" + c.complaint + "' >&2; exit 4; fi\n"
		if err := os.WriteFile(filepath.Join(dir, "iptables-fake-restore"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir)
		f := Probe{Module: "x", try: rules("iptables-fake")}.Run(t.Context())
		if f.Status != c.status || !strings.Contains(f.Detail, c.detail) {
			t.Errorf("%q: %+v", c.complaint, f)
		}
	}
}

func TestDetailsAreOneLine(t *testing.T) {
	p := Probe{bare: true, try: func(context.Context, *netns.NS) (string, error) {
		return "a\n\tb" +
			strings.Repeat("c", 500), nil
	}}
	if got := p.Run(t.Context()).Detail; strings.ContainsAny(got, "\n\t") || len(got) > 200 {
		t.Errorf("%q", got)
	}
}
