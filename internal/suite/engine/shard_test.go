// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/viplab/viplab/suite/spec"
)

// TestShardsPartition: every scenario is in exactly one shard, the same each time, with and without times.
func TestShardsPartition(t *testing.T) {
	var all []spec.Scenario
	times := map[string]time.Duration{}
	for i := range 23 {
		id := fmt.Sprintf("s-%02d", i)
		all = append(all, spec.Scenario{ID: id})
		if i%3 > 0 { // the others are new
			times[id] = time.Duration(i*i) * time.Millisecond
		}
	}
	for _, times := range []map[string]time.Duration{nil, {}, times} {
		for shards := 1; shards <= 30; shards++ {
			seen := map[string]int{}
			for shard := 1; shard <= shards; shard++ {
				o := Options{Shard: shard, Shards: shards, Times: times}
				part := ids(o.shard(all))
				if again := ids(o.shard(all)); !slices.Equal(part, again) || !slices.IsSorted(part) {
					t.Errorf("%d/%d: %v, and then %v", shard, shards, part, again)
				}
				for _, id := range part {
					seen[id]++
				}
			}
			for _, s := range all {
				if seen[s.ID] != 1 {
					t.Errorf("of %d shards, %d have %s", shards, seen[s.ID], s.ID)
				}
			}
		}
	}
}

// TestTimesBalanceShards: one long scenario is alone in its shard if the others take as long together.
func TestTimesBalanceShards(t *testing.T) {
	all := []spec.Scenario{{ID: "a"}, {ID: "b"}, {ID: "long"}, {ID: "x"}, {ID: "y"}}
	o := Options{Shard: 1, Shards: 2, Times: map[string]time.Duration{
		"a": time.Second, "b": time.Second, "long": 4 * time.Second, "x": time.Second, "y": time.Second,
	}}
	if got := ids(o.shard(all)); !slices.Equal(got, []string{"long"}) {
		t.Errorf("shard 1: %v", got)
	}
	o.Shard = 2
	if got := ids(o.shard(all)); !slices.Equal(got, []string{"a", "b", "x", "y"}) {
		t.Errorf("shard 2: %v", got)
	}
}

func ids(all []spec.Scenario) (out []string) {
	for _, s := range all {
		out = append(out, s.ID)
	}
	return out
}
