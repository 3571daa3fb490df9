// SPDX-License-Identifier: Apache-2.0

package faults

// The reasons why a fault does not concern the traffic of Services that generated cases judge.
const (
	configured = "it concerns configuration other than the default"
	health     = "it concerns health-check ports"
	policy     = "it concerns NetworkPolicies"
	strangers  = "it concerns traffic that is not that of Services"
	icmp       = "it concerns ICMP errors"
	slow       = "it takes longer to show than a case lasts"
	inner      = "it concerns a mark or a conntrack entry, which no client sees"
	guarded    = "it concerns nodes with a FORWARD chain that drops"
	loopback   = "it concerns NodePorts at loopback addresses"
)

// beyond is why faults do not concern what generated cases judge, by name.
var beyond = map[string]string{
	"configuration-ignored": configured, "nodeport-addresses-ignored": configured, "masquerade-all-ignored": configured,
	"late-nodeport-addresses-missed": configured, "other-scheduler": configured,
	"taints-lost": health, "health-check-port-lost": health, "always-healthy": health, "never-healthy": health,
	"endpoints-miscounted": health, "health-checked-hourly": health,
	"policies-forgotten": policy, "policy-rules-lost": policy, "policy-ports-lost": policy,
	"policy-update-missed": policy, "recreated-policy-missed": policy, "policies-lapse": policy,
	"policy-blocks-lost": policy, "pod-labels-missed": policy, "new-pods-open": policy, "pod-sources-unchecked": policy,
	"egress-is-final": policy, "root-alone-exempt": policy, "old-policies-stay": policy, "second-datagram-lost": policy,
	"sctp-replies-judged": policy, "pings-dropped": policy, "pod-tunnels-pass": policy,
	"invalid-of-strangers-dropped": strangers, "foreign-traffic-dropped": strangers, "others-flushed": strangers,
	"localnet-guard-lost": strangers, "loopback-always-routed": strangers, "ipvs-access-open": strangers,
	"virtual-ips-on-device": strangers, "invalid-reaches-node": strangers,
	"errors-forged": icmp, "icmp-errors-dropped": icmp,
	"affinity-timeout-ignored": slow,
	"mark-stays":               inner, "other-timeouts": inner,
	"no-forward-accept": guarded, "loopback-not-routed": loopback, "nodeport-on-ipv6-loopback": loopback,
	"nodeport-on-primary-address": "on which further addresses of a node NodePorts are served is configured",
	"long-names-stop-all":         "generated names are short",
	"last-endpoints-starved":      "it shows with twenty endpoints and more",
}

// Beyond returns why the fault does not concern the traffic of Services in generated cases. It returns "" if it does.
func (f Fault) Beyond() string { return beyond[f.Name] }
