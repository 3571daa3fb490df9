// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"

	"github.com/viplab/viplab/internal/proxiers/dnat"
)

// purposes describes the chains that exist once.
var purposes = map[string]string{
	chainServices:  "where virtual IPs of Services are looked up; in the filter table those that no endpoint serves",
	chainExternal:  "addresses of Services, other than ClusterIPs, that no endpoint serves",
	chainNodePorts: "where NodePorts are looked up, after all virtual IPs; in the filter table health check ports",
	chainFirewall:  "what a load balancer address does not admit (loadBalancerSourceRanges)",
	chainForward: "lets Service traffic through the node; what is INVALID would not be translated back, and is " +
		"dropped",
	chainInvalid: "drops what is INVALID: a process of the node would get it without being translated back",
	chainLocalnet: "keeps neighbours away from 127.0.0.0/8, which is routable for the sake of NodePorts " +
		"(CVE-2020-8558)",
	chainPostrouting: "masquerades what was marked on the way",
	chainMarkMasq:    "marks what is to be masqueraded: without that, replies would not come back this way",
}

// purposes returns the purposes of the fixed chains and of the chains of all Services.
func (l *ledger) purposes() map[string]string {
	about := maps.Clone(purposes)
	if l == nil {
		return about
	}
	for _, s := range l.State.Services {
		for _, p := range s.Ports {
			dnat.Describe(about, p)
		}
	}
	return about
}
