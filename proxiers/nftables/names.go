package nftables

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/viplab/viplab/proxiers/model"
)

// The names of chains and sets that a port of a Service has for itself begin so.
const (
	prefixCluster  = "service-"  // picks among all endpoints, with session affinity
	prefixLocal    = "local-"    // picks among those on this node
	prefixEndpoint = "endpoint-" // remembers the client and translates to one endpoint
	prefixAffinity = "affinity-" // the clients of one endpoint
	prefixFirewall = "firewall-" // drops sources that a load balancer address does not admit
)

// pickChain is the chain that picks one of n endpoints. Services with as many endpoints share it.
func pickChain(n int) string { return "pick-" + strconv.Itoa(n) }

// pickLocalChain is the same for endpoints on this node.
func pickLocalChain(n int) string { return "pick-local-" + strconv.Itoa(n) }

// portName is what names say of a port: "ULMVA6XW-ns1/svc1/tcp/p80", as in kube-proxy. It is not longer than 205 bytes,
// of the 255 that the kernel takes.
func portName(id model.PortID) string { return hashed(portPath(id)) }

func portPath(id model.PortID) string {
	return fmt.Sprintf("%s/%s/%s/%s", id.Namespace, id.Name, protocol(id), id.Port)
}

// endpointName is that of an endpoint of a port, "5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80". Colons are not allowed.
func endpointName(id model.PortID, ep netip.AddrPort) string {
	return hashed(fmt.Sprintf("%s__%s/%d", portPath(id), strings.ReplaceAll(ep.Addr().String(), ":", "."), ep.Port()))
}

// affinityName is that of the set of an endpoint's clients. The time out is part of it, as the kernel cannot change that
// of a set.
func affinityName(id model.PortID, ep netip.AddrPort, timeout time.Duration) string {
	return fmt.Sprintf("%s%s/%ds", prefixAffinity, endpointName(id, ep), int(timeout.Seconds()))
}

// hashed puts a hash in front, so that long names that are nearly alike can be told apart at a glance.
func hashed(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base32.StdEncoding.EncodeToString(sum[:])[:8] + "-" + name
}

func protocol(id model.PortID) string { return strings.ToLower(string(id.Protocol)) }
