// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/scenarios/catalogue"
)

func TestRewrite(t *testing.T) {
	const input = "*nat\n:KUBE-POSTROUTING - [0:0]\n-A KUBE-POSTROUTING -j MASQUERADE\n-A KUBE-MARK-MASQ -j MARK " +
		"--or-mark 0x4000\nCOMMIT\n"
	for name, c := range map[string]struct {
		rewrites []Rewrite
		want     string
		changed  int
	}{
		"nothing matches": {[]Rewrite{{XTables, `^-A KUBE-FORWARD`, ""}}, input, 0},
		"another tool":    {[]Rewrite{{NFT, `MASQUERADE`, ""}}, input, 0},
		"a line is dropped": {
			[]Rewrite{{XTables, `^-A KUBE-POSTROUTING .*`, ""}},
			"*nat\n:KUBE-POSTROUTING - [0:0]\n-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\nCOMMIT\n", 1,
		},
		"a line is changed and another added, by two rewrites": {
			[]Rewrite{{XTables, `--or-mark 0x(\d)000`, "--or-mark 0x${1}001"}, {XTables, `^COMMIT$`, "-A EXTRA\nCOMMIT"}},
			"*nat\n:KUBE-POSTROUTING - [0:0]\n-A KUBE-POSTROUTING -j MASQUERADE\n-A KUBE-MARK-MASQ -j MARK --or-mark " +
				"0x4001\n-A EXTRA\nCOMMIT\n", 2,
		},
	} {
		got, changed, err := rewrite(c.rewrites, XTables, []byte(input))
		if err != nil || string(got) != c.want || changed != c.changed {
			t.Errorf("%s: %d lines changed, %v, and this is left:\n%s", name, changed, err, got)
		}
	}
	if _, _, err := rewrite([]Rewrite{{XTables, "(", ""}}, XTables, nil); err == nil {
		t.Error("an expression that is none is taken")
	}
}

func TestWhoReadsStandardInput(t *testing.T) {
	for _, c := range []struct {
		tool Tool
		args []string
		want bool
	}{
		{XTables, []string{"--noflush", "-w", "5"}, true},
		{NFT, []string{"-f", "-"}, true},
		{NFT, []string{"--check", "-f", "-"}, true},
		{NFT, []string{"-f", "/etc/nftables.conf"}, false},
		{NFT, []string{"--json", "list", "tables"}, false},
		{IPSet, []string{"restore", "-exist"}, true},
		{IPSet, []string{"list"}, false},
	} {
		if got := reads(c.tool, c.args); got != c.want {
			t.Errorf("%s %q: %t", c.tool, c.args, got)
		}
	}
}

func TestFaultsAreWellWritten(t *testing.T) {
	all, immune, err := All()
	if err != nil || len(immune) == 0 {
		t.Fatal(err, immune)
	}
	names := map[string]bool{}
	for _, f := range all {
		if err := f.Validate(); err != nil {
			t.Error(err)
		}
		if names[f.Name] {
			t.Errorf("%s is there twice", f.Name)
		}
		names[f.Name] = true
	}
	for _, bad := range []Fault{
		{}, {Name: "Bad Name", Description: "All.", Scenarios: []string{"a-b"}},
		{Name: "regexp", Description: "All.", Scenarios: []string{"a-b"}, Text: []Rewrite{{XTables, "(", ""}}},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}

// A row of the catalogue names the faults that its scenario must notice.
func TestRowsNameFaults(t *testing.T) {
	row := func(id string, p catalogue.Part) catalogue.Behaviour {
		p.Description = "It works."
		return catalogue.Behaviour{ID: id, Part: p}
	}
	groups := []catalogue.Group{{Rows: []catalogue.Behaviour{
		row("noticed", catalogue.Part{Faults: []string{"no-forwarding", "udp-ports-lost"}}),
		row("safe", catalogue.Part{Immune: "no packet comes near a proxier"}),
		row("undecided", catalogue.Part{}),
	}}}
	all, immune, err := claimed(groups)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if want := f.Name == "no-forwarding" || f.Name == "udp-ports-lost"; slices.Contains(f.Scenarios, "noticed") != want {
			t.Errorf("%s: %v", f.Name, f.Scenarios)
		}
	}
	if len(immune) != 1 || immune["safe"] == "" {
		t.Errorf("immune: %v", immune)
	}
	groups[0].Rows = append(groups[0].Rows, row("misspelt", catalogue.Part{Faults: []string{"no-such-fault"}}),
		row("both", catalogue.Part{Faults: []string{"no-forwarding"}, Immune: "it is odd"}))
	_, _, err = claimed(groups)
	for _, want := range []string{catalogue.File, `scenario misspelt: unknown fault "no-such-fault"`, "scenario both"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q in it", err, want)
		}
	}
}

func TestWhichProxiersAFaultIsFor(t *testing.T) {
	for _, c := range []struct {
		f    Fault
		want []string
	}{
		{Fault{}, []string{"a", "b", "c"}},
		{Fault{Except: []string{"b"}}, []string{"a", "c"}},
		{Fault{Proxiers: []string{"a", "b"}}, []string{"a", "b"}},
		{Fault{Proxiers: []string{"a", "b"}, Except: []string{"b"}}, []string{"a"}},
	} {
		got := slices.DeleteFunc([]string{"a", "b", "c"}, func(p string) bool { return !c.f.For(p) })
		if !slices.Equal(got, c.want) {
			t.Errorf("%v but %v: for %v, want %v", c.f.Proxiers, c.f.Except, got, c.want)
		}
	}
}
