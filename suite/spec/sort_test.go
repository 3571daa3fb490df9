// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"strings"
	"testing"
)

func TestSortFindsWhatScenariosMayNotShare(t *testing.T) {
	s := func(group, id string, ports ...uint16) Scenario {
		return Scenario{ID: id, Group: group, Why: "a test", Priority: P0, Source: "this test", NodePorts: ports,
			Steps: []Step{{Rows: []Row{{From: "a1", To: ClusterIPOf("web", 80), Servers: []string{"a1"}}}}}}
	}
	for want, all := range map[string][]Scenario{
		"scenario one-two: written twice":                          {s("a", "one-two"), s("b", "one-one"), s("c", "one-two")},
		"scenarios one-one and one-two both choose NodePort 30040": {s("a", "one-one", 30040), s("a", "one-two", 30040)},
	} {
		if _, err := Sort(all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
