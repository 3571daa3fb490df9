// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/viplab/viplab/lab/traffic"
)

// The tails are compared with sums of exact fractions.
func TestTailsAreExact(t *testing.T) {
	for _, c := range []struct {
		k, n int
		p    *big.Rat
	}{
		{0, 10, big.NewRat(1, 2)}, {3, 10, big.NewRat(1, 2)}, {10, 10, big.NewRat(1, 3)}, {7, 60, big.NewRat(1, 7)},
		{60, 200, big.NewRat(1, 3)},
	} {
		p, _ := c.p.Float64()
		want, _ := exactLowerTail(c.k, c.n, c.p).Float64()
		if got := lowerTail(c.k, c.n, p); math.Abs(got-want) > 1e-9*want {
			t.Errorf("P(X <= %d), n=%d, p=%s: got %g, want %g", c.k, c.n, c.p, got, want)
		}
		upper := new(big.Rat).Sub(big.NewRat(1, 1), exactLowerTail(c.k-1, c.n, c.p))
		want, _ = upper.Float64()
		if got := upperTail(c.k, c.n, p); math.Abs(got-want) > 1e-9*want {
			t.Errorf("P(X >= %d), n=%d, p=%s: got %g, want %g", c.k, c.n, c.p, got, want)
		}
	}
}

func exactLowerTail(k, n int, p *big.Rat) *big.Rat {
	q := new(big.Rat).Sub(big.NewRat(1, 1), p)
	sum := new(big.Rat)
	for i := 0; i <= k; i++ {
		term := new(big.Rat).SetInt(new(big.Int).Binomial(int64(n), int64(i)))
		for range i {
			term.Mul(term, p)
		}
		for range n - i {
			term.Mul(term, q)
		}
		sum.Add(sum, term)
	}
	return sum
}

func TestEvenlyAcceptsFairDrawsAndRotation(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	servers := []string{"a", "b", "c"}
	for range 1000 {
		counts := map[string]int{}
		for range 600 {
			counts[servers[random.IntN(3)]]++
		}
		if !evenly(counts, servers, FalseAlarm) {
			t.Fatalf("fair draws are blamed: %v", counts)
		}
	}
	if !evenly(map[string]int{"a": 200, "b": 200, "c": 200}, servers, FalseAlarm) {
		t.Error("a strict rotation is blamed")
	}
}

// Without Times, a row makes as few connections as raise suspicion of a proxier that leaves a server out, and twice as
// many blame it. They follow from (1-1/n)^draws < 1/8000n by a pocket calculator.
func TestLeastDraws(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 14, 3: 25, 7: 71} {
		r := Row{Even: true}
		counts := map[string]int{}
		for i := range n {
			r.Servers = append(r.Servers, string(rune('a'+i)))
		}
		if got := r.Count(); got != want {
			t.Errorf("%d servers: %d connections, want %d", n, got, want)
		}
		if n == 1 {
			continue
		}
		for looks, chance := range []float64{Suspicion, FalseAlarm} {
			for i := range want {
				counts[r.Servers[i%(n-1)]]++
			}
			if evenly(counts, r.Servers, chance) {
				t.Errorf("%d times %d connections to all but one of %d servers pass as even: %v", looks+1, want, n,
					counts)
			}
		}
	}
	for n, want := range map[int]int{1: 1, 2: 21, 3: 14, 4: 11} { // 1/n^(draws-1) < 1e-6
		if got := (Row{Servers: make([]string, n), Sticky: true}).Count(); got != want {
			t.Errorf("sticky, %d servers: %d connections, want %d", n, got, want)
		}
	}
	if r := (Row{Servers: []string{"a", "b"}, Even: true, Times: 200}); r.Count() != 200 {
		t.Errorf("Times says 200, and %d are made", r.Count())
	}
}

// The wrong proxiers that the rows are meant to catch, at the numbers of connections that the rows make.
func TestEvenlyBlamesUnfairDraws(t *testing.T) {
	for name, c := range map[string]struct {
		counts  map[string]int
		servers []string
	}{
		"one server is never chosen":           {map[string]int{"a": 300, "b": 300, "c": 0}, []string{"a", "b", "c"}},
		"every server has 1/3 of what is left": {map[string]int{"a": 200, "b": 133, "c": 267}, []string{"a", "b", "c"}},
		"the first is taken always":            {map[string]int{"a": 200}, []string{"a", "b"}},
		"the local one has half of everything": {map[string]int{"a": 700, "b": 117, "c": 117, "d": 117, "e": 117, "f": 116,
			"g": 116}, []string{"a", "b", "c", "d", "e", "f", "g"}},
	} {
		if evenly(c.counts, c.servers, FalseAlarm) {
			t.Errorf("%s: %v passes as even", name, c.counts)
		}
	}
}

// The smaller the chance of a false alarm, the more uneven a draw must be.
func TestUnevenByChance(t *testing.T) {
	r := Row{Servers: []string{"a", "b"}, Even: true, Want: Reply}
	for n, beyondDoubt := range map[int]bool{22: false, 200: true} {
		seen := slices.Repeat([]Observation{{Answer: traffic.Answer{Outcome: traffic.Reply, Greeting: traffic.Greeting{Server: "a"}}}}, n)
		if !r.Uneven(seen, FalseAlarm) || r.Uneven(seen, 1e-12) != beyondDoubt {
			t.Errorf("%d of %d answers by a: uneven %t, and with a chance of 1e-12 %t", n, n, r.Uneven(seen, FalseAlarm),
				r.Uneven(seen, 1e-12))
		}
	}
}
