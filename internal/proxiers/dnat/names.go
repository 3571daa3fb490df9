// SPDX-License-Identifier: Apache-2.0

package dnat

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

// ChainMarkMasq is the chain of the nat table that marks packets to be masqueraded. The proxier writes it.
const ChainMarkMasq = "KUBE-MARK-MASQ"

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

// Names holds the names of a port's chains.
type Names struct{ Cluster, Local, External, Firewall string }

// NamesOf returns the names of the chains of a port.
func NamesOf(id model.PortID) Names {
	h := hash(id, "")
	return Names{prefixCluster + h, prefixLocal + h, prefixExternal + h, prefixFirewall + h}
}

// InternalChain returns the name of the chain for traffic to the ClusterIP.
func InternalChain(p *model.Port) string {
	if p.InternalLocal {
		return NamesOf(p.ID).Local
	}
	return NamesOf(p.ID).Cluster
}

// EndpointChain returns the name of the chain that translates to an endpoint of a port.
func EndpointChain(id model.PortID, ep netip.AddrPort) string {
	return prefixEndpoint + hash(id, ep.String())
}

// ClientSet returns the name of the set of an endpoint's clients.
func ClientSet(id model.PortID, ep netip.AddrPort) string {
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

// PerService reports whether a chain belongs to one port, or to one endpoint of it.
func PerService(chain string) bool {
	return slices.ContainsFunc([]string{prefixCluster, prefixLocal, prefixExternal, prefixFirewall, prefixEndpoint},
		func(prefix string) bool { return strings.HasPrefix(chain, prefix) })
}
