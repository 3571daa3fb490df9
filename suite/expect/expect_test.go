// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/viplab/viplab/lab"
)

func parse(t *testing.T, entries string) *File {
	t.Helper()
	f, err := Parse("mine.yaml", []byte("proxier: mine\nexpect:\n"+entries))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestMistakesAreNamed(t *testing.T) {
	const two = "proxier: x\nexpect: []\n---\nproxier: y"
	for text, want := range map[string]string{
		two:          "more than one document",
		"expect: []": "does not name its proxier",
		"":           "does not name its proxier",
		"proxier: x\nexpect: [{scenario: a, isue: none, reason: r}]":                              "isue",
		"proxier: x\nexpect: [{scenario: a, reason: r}]":                                          "issue",
		"proxier: x\nexpect: [{scenario: a, issue: TODO, reason: r}]":                             "issue",
		"proxier: x\nexpect: [{scenario: a, issue: none}]":                                        "reason",
		"proxier: x\nexpect: [{issue: none, reason: r}]":                                          "no scenario",
		"proxier: x\nexpect: [{scenario: a, issue: none, reason: r, got: Answer}]":                `got "Answer"`,
		"proxier: x\nexpect: [{scenario: a, issue: none, reason: r, versions: new}]":              `versions "new"`,
		"proxier: x\nexpect: [{scenario: a, issue: none, reason: r, families: [5]}]":              "family 5",
		"proxier: x\nexpect: [{scenario: a, issue: none, reason: r, flaky: true}]":                "flaky needs an issue",
		"proxier: x\nexpect: [{scenario: a, issue: none, reason: r, with: {pods: briged}}]":       `with pods: unknown`,
		"proxier: x\nexpect: [{scenario: a, issue: none, reason: r}, {scenario: b, issue: none}]": "entry 2 (b)",
		"proxier: x\nexpect: [{scenario: a, issue: none, reason: r, rows: {a: b}}]":               "map",
	} {
		if _, err := Parse("mine.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "mine.yaml") {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestEntriesApply(t *testing.T) {
	for entry, want := range map[string]bool{
		"":                             true,
		`modes: [iptables]`:            true,
		`modes: [nftables, ipvs]`:      false,
		`versions: ">=1.32 <1.37"`:     true,
		`versions: "<1.36"`:            false,
		`versions: ">=1.37"`:           false,
		`with: {pods: bridge}`:         true,
		`with: {pods: routed}`:         false,
		`with: {detect-local-mode: X}`: false,
		`families: [4]`:                true,
		`families: [4, 6]`:             true,
		`families: [6]`:                false,
	} {
		f := parse(t, "- {scenario: a, issue: none, reason: r, "+entry+"}\n")
		k, err := f.For(Run{
			Mode: "iptables", Modes: []string{"iptables", "ipvs", "nftables"}, Version: "v1.36.3",
			With: map[string]string{"ip": "4", "pods": "bridge", "detect-local-mode": "none"},
		}, []string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(k.Of("a")) == 1; got != want {
			t.Errorf("%s: applies %t, want %t", entry, got, want)
		}
		if len(k.Of("b")) != 0 {
			t.Errorf("%s: applies to another scenario", entry)
		}
	}
	f := parse(t, `- {scenario: a, issue: none, reason: r, versions: "<2"}`)
	if k, err := f.For(Run{}, []string{"a"}); err != nil || len(k.Of("a")) != 0 {
		t.Errorf("%v: an entry of some versions applies to an unknown one", err)
	}
}

func TestEntriesThatCannotBeRight(t *testing.T) {
	f := parse(t, "- {scenario: a, issue: none, reason: r}\n- {scenario: a, issue: none, reason: r, rows: [x]}\n")
	if _, err := f.For(Run{}, []string{"a"}); err == nil || !strings.Contains(err.Error(), "two entries apply to a") {
		t.Errorf("overlapping entries: %v", err)
	}
	if _, err := f.For(Run{}, []string{"b"}); err == nil || !strings.Contains(err.Error(), `no scenario "a"`) {
		t.Errorf("an unknown scenario: %v", err)
	}
	r := Run{Mode: "ipvs", Modes: []string{"iptables", "ipvs"}, With: map[string]string{"ip": "4", "pods": "bridge"}}
	for entry, want := range map[string]string{
		"modes: [iptable]":    `no mode "iptable" (modes: iptables, ipvs)`,
		"with: {pod: routed}": `no setting "pod" (settings: ip, pods)`,
	} {
		f := parse(t, "- {scenario: a, issue: none, reason: r, "+entry+"}\n")
		if _, err := f.For(r, []string{"a"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", entry, err, want)
		}
	}
}

func TestRows(t *testing.T) {
	e := Entry{Rows: []string{"gone/*", "*/client/nodeport"}, Families: []int{4}, Got: "Reply"}
	for _, c := range []struct {
		label  string
		family lab.Family
		want   bool
	}{
		{"gone/c1/clusterip", lab.V4, true}, {"gone/c1/clusterip", lab.V6, false}, {"here/c1/clusterip", lab.V4, false},
		{"here/client/nodeport", lab.V4, true}, {"here/client/nodeport/udp", lab.V4, false},
	} {
		if got := e.Concerns(c.label, c.family); got != c.want {
			t.Errorf("%s %s: %t", c.label, c.family, got)
		}
	}
	if !e.Expects("Reply", "Reply") || e.Expects("Reply", "Silence") || !(Entry{}).Expects("Silence") {
		t.Error("an entry explains other outcomes than its own")
	}
	if e.Expects() || !(Entry{}).Expects() {
		t.Error("a failure without an outcome is that of an entry with one")
	}
	if (Entry{}).Expects(NotReady) || !(Entry{Got: NotReady}).Expects(NotReady) {
		t.Error("a program that does not converge is known if, and only if, the entry says so")
	}
}

func TestEncodedEntriesAreForAPerson(t *testing.T) {
	data, err := Encode("mine", []Entry{{Scenario: "a", Rows: []string{"x"}, Got: "Reply"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("mine.yaml", data); err == nil {
		t.Errorf("entries without a reason are accepted:\n%s", data)
	}
	if f, err := ParseDraft("mine.yaml", data); err != nil || f.Expect[0].Issue != "TODO" {
		t.Errorf("%v: %+v", err, f)
	}
	if _, err := ParseDraft("mine.yaml", []byte("proxier: mine\nexpect:\n- scenario: a\n")); err == nil {
		t.Error("a draft without an issue is accepted")
	}
	f, err := Parse("mine.yaml", []byte(strings.ReplaceAll(string(data), "TODO", "none")))
	if err != nil || f.Proxier != "mine" || fmt.Sprint(f.Expect[0].Rows) != "[x]" {
		t.Errorf("%v: %+v", err, f)
	}
}

// TestShippedEntriesDoNotOverlap: in each mode of each release that was run, no two entries apply to the same row.
func TestShippedEntriesDoNotOverlap(t *testing.T) {
	f, err := Shipped("kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range f.Expect {
		ids = append(ids, e.Scenario)
	}
	modes := []string{"iptables", "ipvs", "nftables", "userspace"}
	for _, mode := range modes {
		for _, version := range []string{"v1.24.17", "v1.25.9", "v1.30.4", "v1.31.4", "v1.33.5", "v1.34.4", "v1.36.3"} {
			for _, ip := range []string{"4", "dual"} {
				r := Run{Mode: mode, Modes: modes, Version: version, With: map[string]string{
					"ip": ip, "pods": "bridge", "detect-local-mode": "ClusterCIDR",
				}}
				if _, err := f.For(r, ids); err != nil {
					t.Errorf("%s %s, --ip %s: %v", mode, version, ip, err)
				}
			}
		}
	}
}

func TestShippedFilesAreValid(t *testing.T) {
	files, err := shipped.ReadDir("known")
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(file.Name(), ".yaml")
		f, err := Shipped(name)
		if err != nil || f.Proxier != name {
			t.Errorf("%s: %v", file.Name(), err)
		}
	}
	for _, builtIn := range []string{"iptables", "iptables-legacy", "ipvs", "nftables", "userspace"} {
		if f, err := Shipped(builtIn); f != nil || err != nil {
			t.Errorf("the built-in proxier %s has expectations: %v, %v", builtIn, f, err)
		}
	}
}
