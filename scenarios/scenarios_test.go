package scenarios

import (
	"slices"
	"testing"

	"github.com/viplab/viplab/suite/spec"
)

// owed are the rows of the catalogue that must have a scenario, by group: those of priority P0 that an iptables proxier
// an IPVS and a userspace one owe.
var owed = map[string][]string{
	"clusterip": {
		"clusterip-pod-to-remote-pod", "clusterip-pod-to-local-pod", "clusterip-host-process", "clusterip-every-node",
		"clusterip-reply-from-vip", "clusterip-target-port-rewrite", "clusterip-spread",
		"clusterip-one-connection-one-endpoint", "clusterip-multiport", "clusterip-same-port-tcp-udp",
		"clusterip-is-virtual", "clusterip-external-unrouted",
	},
	"nodeport": {
		"nodeport-node-with-endpoint", "nodeport-node-without-endpoint", "nodeport-every-node",
		"nodeport-any-local-address", "nodeport-has-clusterip", "nodeport-single-nat-hop",
		"nodeport-forward-policy-drop", "nodeport-allocation-rules", "nodeport-localhost",
	},
	"etp-local": {
		"etp-local-source-preserved", "etp-local-only-local-endpoints", "etp-local-no-endpoint-drops",
		"etp-local-clusterip-unaffected", "etp-local-host-shortcut", "etp-local-imbalance",
		"etp-local-lb-only-healthy-nodes",
	},
	"session-affinity": {"affinity-clusterip", "affinity-nodeport", "affinity-toggle"},
	"hairpin":          {"hairpin-among-many"},
	"conntrack":        {"ct-entry-plain-dnat", "ct-entry-masqueraded", "ct-states", "ct-invalid-not-leaked"},
	"endpoints-lifecycle": {
		"ep-add-remove", "ep-multiple-slices", "ep-manual-endpoints", "ep-programming-latency",
		"svc-externalname-transitions",
	},
	"port-binding": {"pb-proxier-holds-nodeport"},
	"udp":          {"udp-clusterip-and-nodeport"},
	"node-egress-masquerade": {
		"base-pod-and-node-no-nat", "base-pod-egress-snat", "base-external-to-pod-ip", "base-ip-forward",
		"masq-source-is-egress-interface", "masq-mark-cleared",
	},
	"ruleset-shape": {
		"rs-ipt-hooks", "rs-ipt-path", "rs-ipt-probabilities", "rs-ipt-one-sep-per-endpoint", "rs-ipt-masq-mark",
		"rs-ipt-off-cluster-mark", "rs-ipt-local-policy-chains", "rs-ipt-drop-path", "rs-ipt-forward", "rs-userspace-portals",
		"rs-ipvs-scheduler",
	},
}

// further are rows of priority P1 that have a scenario, by group. Those of the schedulers are parts of one row.
var further = map[string][]string{
	"ruleset-shape": {
		"rs-ipvs-objects", "rs-ipvs-access-filter", "rs-ipvs-scheduler-wrr", "rs-ipvs-scheduler-lc", "rs-ipvs-scheduler-wlc",
		"rs-ipvs-scheduler-sed", "rs-ipvs-scheduler-nq", "rs-ipvs-scheduler-sh", "rs-ipvs-scheduler-dh", "rs-ipvs-scheduler-mh",
		"rs-nft-table",
	},
}

func TestEveryOwedRowHasAScenario(t *testing.T) {
	all, err := spec.Sort(All())
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for priority, rows := range map[spec.Priority]map[string][]string{spec.P0: owed, spec.P1: further} {
		for group, ids := range rows {
			known = append(known, ids...)
			for _, id := range ids {
				i := slices.IndexFunc(all, func(s spec.Scenario) bool { return s.ID == id })
				if i < 0 {
					t.Errorf("%s has no scenario", id)
				} else if all[i].Group != group || all[i].Priority != priority {
					t.Errorf("%s: group %s, priority %s; want %s, %s", id, all[i].Group, all[i].Priority, group, priority)
				}
			}
		}
	}
	for _, s := range all {
		if !slices.Contains(known, s.ID) {
			t.Errorf("%s is not a row of the catalogue that is known here", s.ID)
		}
	}
}
