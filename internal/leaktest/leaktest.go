// SPDX-License-Identifier: Apache-2.0

// Package leaktest finds goroutines and descriptors that a test leaves behind.
package leaktest

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// patience is how long goroutines have to end after what they serve is closed.
const patience = 30 * time.Second

// permanent are functions of goroutines that live as long as the process.
var permanent = []string{"os/signal.loop", "testing.", "leaktest.", "runtime.goexit0"}

// Check fails the test if, after its other cleanups, the process has goroutines or descriptors that it did not have
// before. Call it first, in tests that are not parallel.
func Check(t *testing.T) {
	t.Helper()
	goroutines, files := running(), descriptors(t)
	t.Cleanup(func() {
		end := time.After(patience)
		look := time.NewTicker(10 * time.Millisecond)
		defer look.Stop()
		for {
			left := append(more(running(), goroutines), more(descriptors(t), files)...)
			if len(left) == 0 {
				return
			}
			select {
			case <-look.C:
			case <-end:
				t.Errorf("left behind: %s", strings.Join(left, "; "))
				return
			}
		}
	})
}

// more returns the keys that now has more often.
func more(now, before map[string]int) (out []string) {
	for key, n := range now {
		if n > before[key] {
			out = append(out, fmt.Sprintf("%d more of %s", n-before[key], key))
		}
	}
	return out
}

// running counts the goroutines by the function that each has begun with and by where it was made.
func running() map[string]int {
	text := make([]byte, 16<<20)
	text = text[:runtime.Stack(text, true)]
	out := map[string]int{}
	for stack := range bytes.SplitSeq(text, []byte("\n\n")) {
		_, made, ok := strings.Cut(string(stack), "created by ")
		if !ok {
			continue // the main goroutine
		}
		made, _, _ = strings.Cut(made, " in goroutine")
		if !lasts(made) && !lasts(string(stack)) {
			out["goroutine made by "+made]++
		}
	}
	return out
}

func lasts(function string) bool {
	for _, p := range permanent {
		if strings.HasPrefix(function, p) {
			return true
		}
	}
	return false
}

// descriptors counts the open descriptors by what they lead to. Sockets and pipes of all kinds count together.
func descriptors(t *testing.T) map[string]int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasSuffix(to, "/fd") || strings.HasSuffix(to, "/softnet_stat") {
			continue // that of the folder itself, and one that package traffic opens once for the process
		}
		kind, _, _ := strings.Cut(to, ":[")
		out["descriptor of "+kind]++
	}
	return out
}
