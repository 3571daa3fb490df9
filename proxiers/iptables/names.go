// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

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
	chainMarkMasq    = "KUBE-MARK-MASQ"         // nat: marks packets to be masqueraded
)

// The chains of one Service port, or of one endpoint of it.
const (
	prefixCluster  = "KUBE-SVC-" // picks among the endpoints of policy Cluster
	prefixLocal    = "KUBE-SVL-" // picks among the endpoints on this node
	prefixExternal = "KUBE-EXT-" // decides between the two, for all frontends but the ClusterIP
	prefixFirewall = "KUBE-FW-"  // admits the source ranges of a load balancer address
	prefixEndpoint = "KUBE-SEP-" // translates to one endpoint
)

// The sets of the clients of one endpoint. The sets of both families share one name space.
const (
	prefixClients4 = prefixEndpoint
	prefixClients6 = "KUBE-6-SEP-"
)

// chainsOf holds the names of a port's chains.
type chainsOf struct{ cluster, local, external, firewall string }

func namesOf(id model.PortID) chainsOf {
	h := hash(id, "")
	return chainsOf{prefixCluster + h, prefixLocal + h, prefixExternal + h, prefixFirewall + h}
}

func endpointChain(id model.PortID, ep netip.AddrPort) string {
	return prefixEndpoint + hash(id, ep.String())
}

// clientSet returns the name of the set of an endpoint's clients.
func clientSet(id model.PortID, ep netip.AddrPort) string {
	return setPrefix(lab.FamilyOf(ep.Addr())) + hash(id, ep.String())
}

func setPrefix(f lab.Family) string {
	if f == lab.V6 {
		return prefixClients6
	}
	return prefixClients4
}

// hash is kube-proxy's hash. It is the same on every node and after every restart. With a prefix, it fits into the 28
// bytes that the kernel allows for a chain name.
func hash(id model.PortID, endpoint string) string {
	sum := sha256.Sum256([]byte(id.String() + strings.ToLower(string(id.Protocol)) + endpoint))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// ours reports whether a chain belongs to this proxier, from this or any earlier instance.
func ours(chain string) bool { return purposes[chain] != "" || perService(chain) }

func perService(chain string) bool {
	return slices.ContainsFunc([]string{prefixCluster, prefixLocal, prefixExternal, prefixFirewall, prefixEndpoint},
		func(prefix string) bool { return strings.HasPrefix(chain, prefix) })
}
