// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"fmt"

	"github.com/viplab/viplab/proxiers/model"
)

// purposes are what the chains that exist once are for.
var purposes = map[string]string{
	chainServices:  "where the virtual IPs of Services are looked up; in the filter table those that no endpoint serves",
	chainExternal:  "addresses of Services, other than ClusterIPs, that no endpoint serves",
	chainNodePorts: "where NodePorts are looked up, after all virtual IPs; in the filter table health check ports",
	chainFirewall:  "what a load balancer address does not admit (loadBalancerSourceRanges)",
	chainForward: "lets Service traffic through the node; what is INVALID would not be translated back, and is " +
		"dropped",
	chainLocalnet: "keeps neighbours away from 127.0.0.0/8, which is routable for the sake of NodePorts " +
		"(CVE-2020-8558)",
	chainPostrouting: "masquerades what was marked on the way",
	chainMarkMasq:    "marks what is to be masqueraded: without that, replies would not come back this way",
}

// annotate says above the rules of each chain of ours what it is for.
func (d *desired) annotate(saved []byte) []byte {
	about := d.purposes()
	var out bytes.Buffer
	last := ""
	for line := range bytes.Lines(saved) {
		if rest, ok := bytes.CutPrefix(line, []byte("-A ")); ok {
			chain, _, _ := bytes.Cut(rest, []byte(" "))
			if name := string(bytes.TrimSpace(chain)); name != last {
				last = name
				if why := about[name]; why != "" {
					fmt.Fprintf(&out, "\n# %s: %s\n", name, why)
				}
			}
		}
		out.Write(line)
	}
	return out.Bytes()
}

// purposes adds the chains of all Services to those that exist once.
func (d *desired) purposes() map[string]string {
	about := map[string]string{}
	for chain, why := range purposes {
		about[chain] = why
	}
	if d == nil {
		return about
	}
	for _, s := range d.state.Services {
		for _, p := range s.Ports {
			describe(about, p)
		}
	}
	return about
}

func describe(about map[string]string, p *model.Port) {
	names := namesOf(p.ID)
	port := fmt.Sprintf("%s (%s %d", p.ID, p.ID.Protocol, p.Number)
	if p.NodePort != 0 {
		port += fmt.Sprintf(", NodePort %d", p.NodePort)
	}
	port += ")"
	about[names.cluster] = port + " is served by any endpoint"
	about[names.local] = port + " is served by endpoints on this node"
	about[names.external] = port + " from outside of the cluster, and from inside by the same addresses"
	about[names.firewall] = port + " admits some sources at its load balancer address"
	for _, among := range [][]model.Endpoint{p.Cluster, p.Local} {
		for _, ep := range among {
			about[endpointChain(p.ID, ep.Addr)] = fmt.Sprintf("%s goes to %s", port, ep.Addr)
		}
	}
}
