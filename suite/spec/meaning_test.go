// SPDX-License-Identifier: Apache-2.0

package spec

import "testing"

func TestEveryFeatureHasAMeaning(t *testing.T) {
	meanings := Meanings()
	for _, f := range AllFeatures() {
		if meanings[f] == "" {
			t.Errorf("%s: its constant has no comment", f)
		}
	}
	for f, want := range map[Feature]string{
		ClusterIP:    "clusterIP:port reaches the endpoints",
		SourceRanges: "loadBalancerSourceRanges are enforced.",
		OpensFirewall: "the proxier's own traffic passes a FORWARD chain whose policy is DROP, and its health-check ports " +
			"answer through such an INPUT chain.",
	} {
		if meanings[f] != want {
			t.Errorf("%s: %q, want %q", f, meanings[f], want)
		}
	}
}
