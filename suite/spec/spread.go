package spec

import "math"

// falseAlarm is the chance that Even blames a proxier that draws fairly: one in a million rows.
const falseAlarm = 1e-6

// drawsPerServer is the least number of connections for each server that Even asks for. With it the test cannot miss a
// server that is left out, however many there are: the chance that a fair draw leaves one of n out of 30n draws is below
// 1e-12. Finer differences take more.
const drawsPerServer = 30

// evenly says whether the answers can come from fair draws over the servers. It is an exact test: under a fair draw the
// count of each server is binomial, so each count is judged by its exact tail probability, and the allowed false alarms
// are divided over the 2n tails (Bonferroni). A strict rotation passes as well: it is more even than chance.
func evenly(counts map[string]int, servers []string) bool {
	total := 0
	for _, n := range counts {
		total += n
	}
	p := 1 / float64(len(servers))
	limit := falseAlarm / float64(2*len(servers))
	for _, s := range servers {
		if lowerTail(counts[s], total, p) < limit || upperTail(counts[s], total, p) < limit {
			return false
		}
	}
	return true
}

// lowerTail is P(X <= k) for X ~ Binomial(n, p).
func lowerTail(k, n int, p float64) float64 {
	sum := 0.0
	for i := 0; i <= k; i++ {
		sum += binomial(i, n, p)
	}
	return sum
}

// upperTail is P(X >= k) for X ~ Binomial(n, p).
func upperTail(k, n int, p float64) float64 {
	sum := 0.0
	for i := k; i <= n; i++ {
		sum += binomial(i, n, p)
	}
	return sum
}

// binomial is P(X = k) for X ~ Binomial(n, p), by logarithms so that thousands of draws do not overflow.
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
