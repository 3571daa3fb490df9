// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// logged are how the children of these tests tell of their rounds.
var logged = &Rounds{Begins: regexp.MustCompile(`round begins(?: of (\w+))?`),
	Ends: regexp.MustCompile(`round ends(?: of (\w+))?`)}

// over says whether no round goes on.
func over(t *testing.T, r *rounds) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := r.over(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return err == nil
}

func TestRounds(t *testing.T) {
	r := newRounds(*logged)
	for _, step := range []struct {
		text        string
		known, over bool
	}{
		{"hello\n", false, true},
		{"round be", false, true},
		{"gins of IPv4\n", true, false},
		{"round begins of IPv6\nround ends of IPv6\n", true, false},
		{"round ends of IPv6\n", true, false},
		{"round ends of IPv4", true, false},
		{"\nmore", true, true},
		{strings.Repeat("x", 2*longestLine) + "\nround begins\n", true, false},
		{"round ends\n", true, true},
	} {
		if _, err := io.WriteString(r, step.text); err != nil {
			t.Fatal(err)
		}
		if r.known() != step.known || over(t, r) != step.over {
			t.Errorf("after %.40q: known %t, over %t; want %t, %t", step.text, r.known(), over(t, r), step.known, step.over)
		}
	}
}

// Whoever waits for the rounds that go on does not wait for later ones.
func TestARoundIsWaitedForAndNoLaterOne(t *testing.T) {
	r := newRounds(*logged)
	fmt.Fprintln(r, "round begins")
	now := r.now()
	fmt.Fprintln(r, "round ends")
	fmt.Fprintln(r, "round begins")
	if err := r.wait(within(t, patience), now); err != nil {
		t.Error(err)
	}
}

// Two families may run rounds at the same time and name neither. The first may begin and end another one meanwhile.
func TestConcurrentRoundsWithoutNames(t *testing.T) {
	r := newRounds(*logged)
	fmt.Fprint(r, "round begins\nround begins\n")
	now := r.now()
	fmt.Fprint(r, "round ends\nround begins\nround ends\n")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r.wait(ended, now) == nil {
		t.Error("one of the two rounds is still running")
	}
	fmt.Fprintln(r, "round ends")
	if err := r.wait(within(t, patience), now); err != nil {
		t.Error(err)
	}
}

// A program that logs its rounds has obeyed at the end of the round that served the canary: nothing of that round is
// left to be done, and no second canary is made.
func TestAProgramThatLogsItsRounds(t *testing.T) {
	w := newWorld(t)
	i := w.place("n1", Command{Name: "mine", Argv: child("tidy"), Rounds: logged})
	ctx := within(t, patience)
	must(t, w.apply(ctx, i))
	for n := range 5 {
		must(t, w.Store().Apply(service(fmt.Sprintf("s%d", n))))
		before := i.cluster.canaries.newest()
		must(t, w.apply(ctx, i))
		made := i.cluster.canaries.newest()
		if made != before+1 {
			t.Errorf("%d canaries were made for a change, want one", made-before)
		}
		text, err := os.ReadFile(filepath.Join(i.node.StateDir, tidied))
		must(t, err)
		if port := fmt.Sprintf("dport %d ", 1024+made); !strings.Contains(string(text), port) {
			t.Errorf("the round that served canary %d is not over: it has left\n%s", made, text)
		}
	}
	must(t, i.Stop(ctx))
}

// One that never ends a round has not obeyed, though packets are led as they should be.
func TestAProgramWhoseRoundDoesNotEnd(t *testing.T) {
	w := newWorld(t)
	i := w.place("n1", Command{Name: "mine", Argv: child("endless"), Rounds: logged})
	must(t, w.apply(within(t, patience), i))
	must(t, w.Store().Apply(service("poison")))
	ctx, cancel := context.WithTimeout(t.Context(), patience/10)
	defer cancel()
	wantError(t, w.apply(ctx, i), "does not obey", "the end of a round")
	must(t, i.Stop(within(t, patience)))
}

// A program that is to log its rounds and does not, is asked by two canaries as any other.
func TestAProgramThatDoesNotLogItsRounds(t *testing.T) {
	w := newWorld(t)
	i := w.place("n1", Command{Name: "mine", Argv: child("good"), Rounds: &Rounds{
		Begins: regexp.MustCompile("^never$"), Ends: regexp.MustCompile("^never$"),
	}})
	ctx := within(t, patience)
	must(t, w.apply(ctx, i))
	must(t, w.Store().Apply(service("a")))
	before := i.cluster.canaries.newest()
	must(t, w.apply(ctx, i))
	if made := i.cluster.canaries.newest() - before; made < 2 {
		t.Errorf("%d canaries were made for a change, want two", made)
	}
	must(t, i.Stop(ctx))
}
