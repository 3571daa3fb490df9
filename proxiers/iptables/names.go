// SPDX-License-Identifier: Apache-2.0

package iptables

import "github.com/viplab/viplab/internal/proxiers/dnat"

// The chains that exist once.
const (
	chainServices    = "KUBE-SERVICES"          // nat: by virtual IP; filter: virtual IPs without endpoints
	chainExternal    = "KUBE-EXTERNAL-SERVICES" // filter: other frontends without endpoints
	chainNodePorts   = "KUBE-NODEPORTS"         // nat: by NodePort; filter: health check ports
	chainFirewall    = "KUBE-PROXY-FIREWALL"    // filter: sources that a load balancer address does not admit
	chainForward     = "KUBE-FORWARD"           // filter: lets forwarded Service traffic through
	chainInvalid     = "KUBE-INVALID"           // filter: drops what would not be translated back for the node itself
	chainLocalnet    = "KUBE-FIREWALL"          // filter: keeps neighbours away from 127.0.0.0/8
	chainPostrouting = "KUBE-POSTROUTING"       // nat: masquerades marked packets
	chainMarkMasq    = dnat.ChainMarkMasq       // nat: marks packets to be masqueraded
)

// ours reports whether a chain belongs to this proxier, from this or any earlier instance.
func ours(chain string) bool { return purposes[chain] != "" || dnat.PerService(chain) }
