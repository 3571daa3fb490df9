// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/viplab/viplab/suite/spec"
)

// shard returns the scenarios of the options' shard, or all without shards. Every scenario is in exactly one shard.
// With Times, each scenario, the longest first, goes to the shard that has the least to do; without, to the next shard.
func (o Options) shard(all []spec.Scenario) []spec.Scenario {
	if o.Shards == 0 {
		return all
	}
	own := map[string]bool{}
	if o.Times == nil {
		for i, s := range all {
			own[s.ID] = i%o.Shards == o.Shard-1
		}
	} else {
		usual := median(all, o.Times)
		took := func(s spec.Scenario) time.Duration { return cmp.Or(o.Times[s.ID], usual) }
		longest := slices.SortedStableFunc(slices.Values(all), func(a, b spec.Scenario) int {
			return cmp.Compare(took(b), took(a))
		})
		loads := make([]time.Duration, o.Shards)
		for _, s := range longest {
			least := slices.Index(loads, slices.Min(loads))
			loads[least] += took(s)
			own[s.ID] = least == o.Shard-1
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s spec.Scenario) bool { return !own[s.ID] })
}

// median returns the time of a usual scenario, for those without a time. It is never zero, so that scenarios without
// times are spread as well.
func median(all []spec.Scenario, times map[string]time.Duration) time.Duration {
	var known []time.Duration
	for _, s := range all {
		if t := times[s.ID]; t > 0 {
			known = append(known, t)
		}
	}
	if len(known) == 0 {
		return time.Second
	}
	slices.Sort(known)
	return known[len(known)/2]
}
