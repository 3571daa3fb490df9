// SPDX-License-Identifier: Apache-2.0

package spec

import "math"

// FalseAlarm is the chance that a fair draw counts as uneven: one in a million. Sticky misses a violation as rarely.
const FalseAlarm = 1e-6

// Suspicion is the chance that a fair draw is uneven enough for more probes: one in four thousand.
const Suspicion = 250 * FalseAlarm

// leastDraws returns the least number of connections with which a server that gets no share raises suspicion: so many
// that a fair draw hardly ever leaves one out. For two servers it is 14, for three 25, for seven 71.
func leastDraws(servers int) int {
	n := 1
	for !tooFew(0, n, servers, Suspicion) && servers > 1 {
		n++
	}
	return n
}

// leastRepeats returns the least number of connections that fair draws almost never lead all to one server. For two
// servers it is 21, for three 14, for four 11.
func leastRepeats(servers int) int {
	n := 1
	for chance := 1.0; chance >= FalseAlarm && servers > 1; n++ {
		chance /= float64(servers)
	}
	return n
}

// evenly reports whether the counts can result from fair draws over the servers. It is an exact test: under a fair draw
// the count of each server is binomial. Each count is compared with its exact tail probability, and the allowed false
// alarms are divided over the 2n tails (Bonferroni). A strict rotation passes as well: it is more even than chance.
func evenly(counts map[string]int, servers []string, falseAlarm float64) bool {
	total := 0
	for _, n := range counts {
		total += n
	}
	for _, s := range servers {
		if tooFew(counts[s], total, len(servers), falseAlarm) ||
			tooMany(counts[s], total, len(servers), falseAlarm) {
			return false
		}
	}
	return true
}

func tooFew(count, total, servers int, falseAlarm float64) bool {
	return lowerTail(count, total, 1/float64(servers)) < falseAlarm/float64(2*servers)
}

func tooMany(count, total, servers int, falseAlarm float64) bool {
	return upperTail(count, total, 1/float64(servers)) < falseAlarm/float64(2*servers)
}

// lowerTail returns P(X <= k) for X ~ Binomial(n, p).
func lowerTail(k, n int, p float64) float64 {
	sum := 0.0
	for i := 0; i <= k; i++ {
		sum += binomial(i, n, p)
	}
	return sum
}

// upperTail returns P(X >= k) for X ~ Binomial(n, p).
func upperTail(k, n int, p float64) float64 {
	sum := 0.0
	for i := k; i <= n; i++ {
		sum += binomial(i, n, p)
	}
	return sum
}

// binomial returns P(X = k) for X ~ Binomial(n, p). It uses logarithms so that thousands of draws do not overflow.
func binomial(k, n int, p float64) float64 {
	if p == 1 {
		if k == n {
			return 1
		}
		return 0
	}
	lg := func(x int) float64 { v, _ := math.Lgamma(float64(x + 1)); return v }
	return math.Exp(lg(n) - lg(k) - lg(n-k) + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
}
