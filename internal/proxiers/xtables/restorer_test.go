// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
)

// programsOf returns the programs of a fresh namespace for each back end and family, as subtests.
func programsOf(t *testing.T, test func(t *testing.T, ns *netns.NS, p *Programs)) {
	for _, b := range []Backend{NFTables, Legacy} {
		for _, f := range []lab.Family{lab.V4, lab.V6} {
			t.Run(string(b)+" "+f.String(), func(t *testing.T) {
				ns, err := netns.New("n1")
				if err != nil {
					t.Fatal(err)
				}
				defer ns.Close()
				p, err := Find(ns, b, f, t.TempDir())
				if err != nil {
					t.Skip(err)
				}
				defer p.Close()
				test(t, ns, p)
			})
		}
	}
}

// chainWith makes a chain of the filter table with one rule, whose comment is the text.
func chainWith(chain, text string) *Transaction {
	tx := &Transaction{Table: Filter}
	tx.Write(chain, []Rule{NewRule(Comment(text), Accept)})
	return tx
}

// holds fails the test unless the chain has one rule, with the text.
func holds(t *testing.T, p *Programs, chain, text string) {
	t.Helper()
	saved, err := p.Save(t.Context())
	want := []Rule{NewRule(Comment(text), Accept)}
	if got := saved.Of(Filter).Chains[chain]; err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: got %q (%v), want %q", chain, got, err, want)
	}
}

func (p *Programs) pid() int { return p.restorer.cmd.Process.Pid }

// The program keeps running, and does everything that a script asks before Restore returns.
func TestOneProgramCarriesOutAllScripts(t *testing.T) {
	programsOf(t, func(t *testing.T, _ *netns.NS, p *Programs) {
		first := 0
		for i := range 20 {
			if err := p.Restore(t.Context(), chainWith("MINE", fmt.Sprint("rule ", i))); err != nil {
				t.Fatal(err)
			}
			holds(t, p, "MINE", fmt.Sprint("rule ", i))
			if i == 0 {
				first = p.pid()
			}
		}
		if p.pid() != first {
			t.Errorf("another program has taken over: %d, not %d", p.pid(), first)
		}
		p.Close()
		if err := unix.Kill(first, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("after Close: signal program %d: got %v, want that there is none", first, err)
		}
		if err := p.Restore(t.Context(), chainWith("MINE", "later")); err != nil {
			t.Fatal("after Close:", err)
		}
		holds(t, p, "MINE", "later")
	})
}

// The program sees what others have changed since its last script.
func TestTheProgramKeepsNoStaleView(t *testing.T) {
	programsOf(t, func(t *testing.T, ns *netns.NS, p *Programs) {
		other, err := Find(ns, p.backend, p.family, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		jump := chainWith("MINE", "first")
		jump.Insert("INPUT", NewRule(Jump("MINE")))
		if err := p.Restore(t.Context(), jump); err != nil {
			t.Fatal(err)
		}
		gone := &Transaction{Table: Filter}
		gone.Remove("INPUT", NewRule(Jump("MINE")))
		gone.Delete("MINE")
		if err := other.Restore(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		if err := p.Restore(t.Context(), jump); err != nil {
			t.Fatal("after another program has removed the chain:", err)
		}
		holds(t, p, "MINE", "first")
		if p.backend != NFTables {
			return // the legacy back end cannot delete a table
		}
		if err := ns.Run(other.command(t.Context(), "nft", "flush", "ruleset")); err != nil {
			t.Fatal(err)
		}
		if err := p.Restore(t.Context(), jump); err != nil {
			t.Fatal("after another program has deleted the table:", err)
		}
		holds(t, p, "MINE", "first")
	})
}

// A program counts the lines of all its scripts. The error quotes the line of the last one.
func TestALaterScriptFails(t *testing.T) {
	programsOf(t, func(t *testing.T, _ *netns.NS, p *Programs) {
		if err := p.Restore(t.Context(), chainWith("MINE", "first")); err != nil {
			t.Fatal(err)
		}
		bad := chainWith("MINE", "second")
		bad.Insert("INPUT", "--bogus")
		err := p.Restore(t.Context(), bad)
		if err == nil || !strings.Contains(err.Error(), "(line 4: -I INPUT --bogus)") {
			t.Errorf("got %v, want an error that quotes the line", err)
		}
		holds(t, p, "MINE", "first")
		if err := p.Restore(t.Context(), chainWith("MINE", "third")); err != nil {
			t.Fatal("after a failure:", err)
		}
		holds(t, p, "MINE", "third")
	})
}

// DestroyAll waits for a set until its last rule is deleted, and destroys the other sets meanwhile.
func TestSetsOfDeletedRulesAreDestroyed(t *testing.T) {
	programsOf(t, func(t *testing.T, ns *netns.NS, p *Programs) {
		sets, err := ipset.Dial(ns)
		if err != nil {
			t.Fatal(err)
		}
		defer sets.Close()
		used := ipset.Set{Name: "USED", Type: ipset.IP, Family: p.family}
		unused := ipset.Set{Name: "UNUSED", Type: ipset.IP, Family: p.family}
		own := Ownership{Backend: p.backend, Tables: []TableName{Filter},
			Chain: func(_ TableName, name string) bool { return name == "MINE" }}
		for range 20 {
			tx := &Transaction{Table: Filter}
			tx.Write("MINE", []Rule{NewRule("-m set --match-set USED src", Accept)})
			if err := errors.Join(sets.Create(used), sets.Create(unused), p.Restore(t.Context(), tx)); err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if err := sets.DestroyAll(short, used.Name, unused.Name); !errors.Is(err, ipset.ErrInUse) {
				t.Errorf("with a rule: got %v", err)
			}
			cancel()
			if left, err := sets.Names(""); err != nil || !slices.Equal(left, []string{used.Name}) {
				t.Errorf("with a rule: got %v (%v)", left, err)
			}
			destroyed := make(chan error)
			go func() { destroyed <- sets.DestroyAll(t.Context(), used.Name) }()
			if err := errors.Join(own.Remove(t.Context(), p), <-destroyed); err != nil {
				t.Fatal(err)
			}
			if left, err := sets.Names(""); err != nil || len(left) > 0 {
				t.Errorf("without a rule: got %v (%v)", left, err)
			}
		}
	})
}

// A program that has read much is replaced, because it does not free what it has allocated.
func TestAWornProgramIsReplaced(t *testing.T) {
	programsOf(t, func(t *testing.T, _ *netns.NS, p *Programs) {
		large := &Transaction{Table: Filter}
		for i := 0; large.rules.Len() <= restorerLimit; i++ {
			large.Write(fmt.Sprint("CHAIN-", i%8), []Rule{NewRule(Comment(strings.Repeat("x", 250)), Accept)})
			large.declared.Reset()
		}
		for i := range 8 {
			large.declare(fmt.Sprint("CHAIN-", i))
		}
		if err := p.Restore(t.Context(), large); err != nil {
			t.Fatal(err)
		}
		if p.restorer != nil {
			t.Errorf("the program stays after %d bytes", p.restorer.bytes)
		}
		if err := p.Restore(t.Context(), chainWith("MINE", "later")); err != nil {
			t.Fatal(err)
		}
		holds(t, p, "MINE", "later")
	})
}

// hangs returns a program that reads nothing and prints nothing.
func hangs(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hangs")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec tail -f /dev/null\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// A program that never answers ends with the context.
func TestAProgramThatHangs(t *testing.T) {
	ns, err := netns.New("n1")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	p := &Programs{ns: ns, restore: hangs(t)}
	if err := p.Restore(ctx, chainWith("MINE", "first")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
	if p.restorer != nil {
		t.Error("the program is kept")
	}
}
