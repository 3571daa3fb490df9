// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"maps"
	"testing"
)

// As nft lists the table of kube-proxy v1.36, shortened.
const nftListing = `table ip kube-proxy {
	comment "rules for kube-proxy"

	set cluster-ips {
		type ipv4_addr
		comment "Active ClusterIPs"
		elements = { 10.96.0.1, 10.96.0.10 }
	}

	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "vmap to drop or reject packets to services with no endpoints"
		elements = { 10.96.0.9 . tcp . 80 comment "default/empty, really" : goto reject-chain,
			     10.96.0.8 . udp . 53 comment "default/far" : drop }
	}

	map firewall-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
	}

	chain reject-chain {
		comment "helper for @no-endpoint-services / @no-endpoint-nodeports"
		reject
	}

	chain service-NWV5X-default/kubernetes/tcp/https {
		meta l4proto tcp dnat ip to numgen random mod 1 map { 0 : 192.168.7.11 . 6443 }
	}
}
`

func TestParseNFT(t *testing.T) {
	tab := parseNFT(nftListing)
	for name, want := range map[string]map[string]string{
		"cluster-ips":          {"10.96.0.1": "", "10.96.0.10": ""},
		"no-endpoint-services": {"10.96.0.9 . tcp . 80": "goto reject-chain", "10.96.0.8 . udp . 53": "drop"},
		"firewall-ips":         nil,
		"unknown":              nil,
	} {
		if got := tab.elements(name); !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if got, want := tab.typeOf("firewall-ips"), "ipv4_addr . inet_proto . inet_service : verdict"; got != want {
		t.Errorf("type %q, want %q", got, want)
	}
	if m := drawing.FindStringSubmatch(tab.block("chain", "service-NWV5X-default/kubernetes/tcp/https")); m == nil ||
		m[1] != "1" {
		t.Errorf("drawing: got %v", m)
	}
	if tab.block("chain", "cluster-ips") != "" {
		t.Error("a set is taken for a chain")
	}
}
