// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/viplab/viplab/proxiers/model"
)

// Prefixes of the names of chains and sets of one Service port.
const (
	prefixService  = "service-"  // picks among all endpoints, with session affinity
	prefixLocal    = "local-"    // picks among those on this node
	prefixEndpoint = "endpoint-" // remembers the client and translates to one endpoint
	prefixAffinity = "affinity-" // the clients of one endpoint
	prefixFirewall = "firewall-" // drops sources that a load balancer address does not admit
)

// portName returns the part of names that identifies a port, as in kube-proxy: "ULMVA6XW-ns1/svc1/tcp/p80". It has at
// most 205 bytes; the kernel allows 255 for a name.
func portName(id model.PortID) string { return hashed(portPath(id)) }

func portPath(id model.PortID) string {
	return fmt.Sprintf("%s/%s/%s/%s", id.Namespace, id.Name, protocol(id), id.Port)
}

// endpointChain returns the name of an endpoint's chain: "endpoint-5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80".
func endpointChain(id model.PortID, ep netip.AddrPort) string {
	return prefixEndpoint + endpointName(id, ep)
}

// affinitySet returns the name of the set of an endpoint's clients. It contains the timeout, because the kernel cannot
// change the timeout of a set.
func affinitySet(p *model.Port, ep netip.AddrPort) string {
	return fmt.Sprintf("%s%s/%ds", prefixAffinity, endpointName(p.ID, ep), int(p.Affinity.Seconds()))
}

// cutTimeout cuts the timeout off the name of a set of clients. It returns false for the name of another set.
func cutTimeout(set string) (endpoint string, timeout time.Duration, ok bool) {
	i := strings.LastIndex(set, "/")
	if i < 0 || !strings.HasPrefix(set, prefixAffinity) {
		return "", 0, false
	}
	timeout, err := time.ParseDuration(set[i+1:])
	return set[:i], timeout, err == nil
}

func endpointName(id model.PortID, ep netip.AddrPort) string {
	addr := strings.ReplaceAll(ep.Addr().String(), ":", ".") // colons are not allowed
	return hashed(fmt.Sprintf("%s__%s/%d", portPath(id), addr, ep.Port()))
}

// hashed adds a hash as a prefix, which distinguishes long, similar names at a glance.
func hashed(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base32.StdEncoding.EncodeToString(sum[:])[:8] + "-" + name
}

func protocol(id model.PortID) string { return strings.ToLower(string(id.Protocol)) }
