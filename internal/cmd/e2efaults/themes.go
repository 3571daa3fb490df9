// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// basic matches the specs that run with each fault: they send traffic to ClusterIPs and NodePorts in the plainest way.
const basic = `Services should (serve (a basic endpoint|multiport endpoints|endpoints on same port and different ` +
	`protocols)|be able to create a functioning NodePort service|be rejected when no endpoints exist)`

// policies is the group of scenarios of NetworkPolicies.
const policies = "networkpolicy"

// themes match the specs that are about the faults of a group of scenarios.
var themes = map[string]string{
	"clusterip": `Services should (be able to up and down|preserve source|work after the service has been recreated)|` +
		`Granular Checks: Services should (be able to handle large|function for (endpoint|node)-Service)`,
	"nodeport": `Services should (check NodePort|release NodePorts|update service type to NodePort|prevent NodePort)|` +
		`support basic nodePort: udp|function for node-Service: http`,
	"loadbalancer": `^LoadBalancers|Type LoadBalancer`,
	"externalips":  `ExternalIP`,
	"etp-local":    `[eE]xternall?TrafficPolicy`,
	"itp-local":    `internalTrafficPolicy`,
	"endpoints-lifecycle": `^EndpointSlice|Services should (be able to up and down|create endpoints for unready|` +
		`.*terminating|be updated after adding|support named targetPorts)|Blue Green`,
	"service-changes": `Services should be (able to (change the type|up and down)|updated after adding)|` +
		`service-proxy-name|has been recreated|update service type`,
	"session-affinity":              `affinity`,
	"hairpin":                       `hairpin`,
	"no-endpoints":                  `no endpoints exist`,
	"conntrack":                     `^Conntrack|CLOSE_WAIT`,
	"healthcheck-nodeport":          `[hH]ealth ?[cC]heck`,
	"source-ranges":                 `source ranges`,
	"topology/traffic-distribution": `^Topology|^Traffic Distribution`,
	"headless/dns":                  `^DNS should|headless`,
	"ipv6/dual-stack":               `Secondary IP Family.*should function for (endpoint|node|pod)-Service`,
	"udp":                           `Services should function for (endpoint|node)-Service: udp|large requests: udp`,
	"icmp-errors":                   `large requests`,
	"node-egress-masquerade":        `NoSNAT|preserve source|function for node-Service: http`,
	"restart/upgrade":               `Services should be able to up and down`,
	"scale":                         `endpoints latency|up and down`,
	"port-binding":                  `HostPort`,
	"security":                      `preserve source|NoSNAT|HostPort`,
	"ruleset-shape":                 `Services should be able to up and down|KubeProxy|update service type`,
	"sctp":                          `SCTP`,
	policies:                        `^Netpol`,
}

// tooLong matches specs that take minutes.
const tooLong = `affinity timeout|update (endpoints|nodePort)|on ipv4 and ipv6 ip|change the type and ports`

// focus returns the expression for the specs of themes. Policies are beside the plainest traffic.
func focus(names []string) string {
	parts := []string{basic}
	if len(names) == 1 && names[0] == policies {
		parts = nil
	}
	for _, name := range names {
		if themes[name] != "" {
			parts = append(parts, themes[name])
		}
	}
	return strings.Join(parts, "|")
}
