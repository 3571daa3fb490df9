// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func TestScript(t *testing.T) {
	tx := &Transaction{Table: NAT}
	tx.Write("A", []Rule{NewRule(Comment("two words"), Return), NewRule(Comment(`a "quoted" \ word`), Jump("B"))})
	tx.Write("B", nil)
	tx.Insert("OUTPUT", NewRule(Jump("A")))
	tx.Remove("OUTPUT", NewRule(Jump("C")))
	tx.Delete("D")
	tx.Delete("C")
	want := `*nat
:A - [0:0]
:B - [0:0]
:D - [0:0]
:C - [0:0]
-A A -m comment --comment "two words" -j RETURN
-A A -m comment --comment "a \"quoted\" \\ word" -j B
-I OUTPUT -j A
-D OUTPUT -j C
-X C
-X D
COMMIT
`
	if got := string(Script(&Transaction{Table: Filter}, tx)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTarget(t *testing.T) {
	for rule, want := range map[Rule]string{
		`-d 10.0.0.1/32 -j KUBE-SVC-1`:                  "KUBE-SVC-1",
		`-m comment --comment "-j NOT" -j YES`:          "YES",
		`-m comment --comment "a \"-j NOT" -g YES -x y`: "YES",
		`-m comment --comment count`:                    "",
		`-j`:                                            "",
		``:                                              "",
	} {
		if got := rule.Target(); got != want {
			t.Errorf("%s: got %q, want %q", rule, got, want)
		}
	}
}

// TestSetGone runs a save program that fails twice because another program removed a set, and one that fails for good.
func TestSetGone(t *testing.T) {
	ns, err := netns.New("n1")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	dir := t.TempDir()
	real, err := Find(ns, NFTables, lab.V4, filepath.Join(dir, "lock"))
	if err != nil {
		t.Skip(err)
	}
	defer real.Close()
	tx := &Transaction{Table: Filter}
	tx.Write("MINE", nil) // without a table, Save starts no program
	if err := real.Restore(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	program := func(name, script string) *Programs {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
		fake, err := Find(ns, NFTables, lab.V4, filepath.Join(dir, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		fake.save = path
		return fake
	}
	disturbed := program("disturbed", `echo x >> `+dir+`/runs
if [ $(wc -l < `+dir+`/runs) -lt 3 ]; then echo "save: Set with index 13 in kernel doesn't exist." >&2; exit 2; fi
printf '*filter\n:MINE - [0:0]\nCOMMIT\n'
`)
	saved, err := disturbed.Save(t.Context())
	if err != nil {
		t.Fatal("disturbed twice:", err)
	}
	if _, ok := saved.Of(Filter).Chains["MINE"]; !ok {
		t.Errorf("disturbed twice: got %v, want the chain MINE", saved.Of(Filter).Chains)
	}
	if _, err := program("broken", "echo no table >&2; exit 1\n").Save(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "no table") {
		t.Errorf("got %v, want what the program complains about", err)
	}
}

func TestRestoreAndSave(t *testing.T) {
	programsOf(t, func(t *testing.T, _ *netns.NS, p *Programs) {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if saved, err := p.Save(canceled); len(saved) > 0 || err != nil {
			t.Errorf("no table: got %v (%v), want nothing, and no program started", saved, err)
		}
		tx := &Transaction{Table: Filter}
		tx.Write("MINE", []Rule{NewRule(Comment("one two"), Accept)})
		tx.Insert("INPUT", NewRule(Jump("MINE")))
		if err := p.Restore(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		saved, err := p.Save(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := saved.Of(Filter).Chains["MINE"]; !slices.Equal(got, []Rule{`-m comment --comment "one two" -j ACCEPT`}) {
			t.Errorf("MINE: got %q", got)
		}
		if got := saved.Of(Filter).Jumps("INPUT", "MINE"); len(got) != 1 {
			t.Errorf("jumps from INPUT: got %q", got)
		}

		bad := &Transaction{Table: Filter}
		bad.Write("MINE", nil)
		bad.Insert("INPUT", "--bogus")
		err = p.Restore(t.Context(), bad)
		if err == nil || !strings.Contains(err.Error(), "(line 3: -I INPUT --bogus)") {
			t.Errorf("a rule that makes no sense: got error %v, want one that quotes the line", err)
		}
		saved, err = p.Save(t.Context())
		if err != nil || len(saved.Of(Filter).Chains["MINE"]) != 1 {
			t.Errorf("after a transaction that failed: got %q (%v), want nothing changed", saved.Of(Filter).Chains["MINE"],
				err)
		}
	})
}

func TestMissingProgram(t *testing.T) {
	_, err := Find(nil, "no-such-backend", lab.V4, "")
	var missing *spec.UnusableError
	if !errors.As(err, &missing) || missing.Missing != "the program iptables-no-such-backend-save" {
		t.Errorf("got %v", err)
	}
}

// TestShortPath: the programs live in /usr/sbin, which is not on everybody's PATH.
func TestShortPath(t *testing.T) {
	t.Setenv("PATH", "/usr/bin")
	if _, err := Find(nil, NFTables, lab.V6, ""); err != nil {
		t.Error(err)
	}
}

func TestSeveralTables(t *testing.T) {
	all, err := parseAllSaved([]byte("# Generated by iptables-nft-save\n*mangle\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j " +
		"MINE\n:MINE - [0:0]\nCOMMIT\n" +
		"# Completed\n# Generated by iptables-nft-save\n*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"))
	if err != nil || len(all) != 2 || len(all[Mangle].Jumps("OUTPUT", "MINE")) != 1 || len(all[Mangle].Chains) != 2 ||
		len(all[NAT].Chains) != 1 {
		t.Errorf("got %v, %v", all, err)
	}
	if all.Of(Filter).Jumps("OUTPUT", "MINE") != nil {
		t.Error("a table that does not exist has a jump")
	}
}
