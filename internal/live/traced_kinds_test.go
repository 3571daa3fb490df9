// SPDX-License-Identifier: Apache-2.0

package live

import (
	"slices"
	"strings"
)

// mode is how a proxier changes packets, as its documentation says.
type mode struct {
	name string
	// backend is that of the rules.
	backend string
	// mark is what packets get that will be masqueraded, until they are. 0 means that nothing marks them.
	mark uint32
	// atOnce means that one rule removes the mark and masquerades.
	atOnce bool
	// hairpins means that packets of a pod to itself need no mark.
	hairpins bool
	// relays means that programs on the node take the connections.
	relays bool
	// virtual means that IPVS translates the destination, at input or output behind the rules, and the source of replies
	// at forward or input (ip_vs_ops4 in the kernel's net/netfilter/ipvs/ip_vs_core.c). Connection tracking learns the
	// new addresses, but not that they are translated (ip_vs_update_conntrack in ip_vs_nfct.c).
	virtual bool
	// delivers is the mark of packets to the addresses of load balancers until IPVS has translated them.
	delivers uint32
	// rewrites means that a process of its own writes the rules anew when it likes: it batches what it has learned, and
	// some of that concerns canaries or no Service.
	rewrites bool
}

// of returns the mode as it serves a kind: where IPVS serves TCP and SCTP, rules serve UDP and policy Local.
func (m mode) of(k kind) mode {
	m.virtual = m.virtual && k.proto != "udp" && !k.local
	return m
}

var modes = []mode{
	{name: "iptables", backend: "iptables-nft", mark: 0x4000},
	{name: "nftables", backend: "nftables"},
	{name: "userspace", backend: "iptables-nft", relays: true},
	{name: "kube-proxy-iptables", backend: "iptables-nft", mark: 0x4000, rewrites: true},
	{name: "kube-proxy-nftables", backend: "nftables", mark: 0x4000, atOnce: true, hairpins: true, rewrites: true},
	{name: "program", backend: "nftables", mark: 0x77, rewrites: true},
	{name: "ipvs", backend: "iptables-nft", mark: 0x4000, virtual: true, delivers: 0x2000},
	{name: "iptables-legacy", backend: "iptables-legacy", mark: 0x4000},
}

// kind is a kind of traffic, and what becomes of its first packet.
type kind struct {
	name, from, to, proto string
	// both means that a single round is in both IP families, too.
	both bool
	// path are the places that the packet passes.
	path []string
	// at is the node that translates the packet, and server the pod and port that it then goes to. Both are empty if
	// nothing translates it.
	at, server string
	// masquerade means that the server sees an address of the node.
	masquerade bool
	outcome    string
	// end is the node where a rule ends the packet, and by matches the step. Both are empty if it arrives.
	end, by string
	// local means that the policy Local leads to an endpoint.
	local bool
	// marked means that IPVS's rules mark a packet which then has no way: they do so before others look at it.
	marked bool
	// not are the modes that have another way, or do not serve this kind.
	not []string
}

const pod, client, near, far = "default/c1", "client", "default/near", "default/far"

var kinds = []kind{
	{name: "ClusterIP, same node", from: "c1", to: "near", path: []string{pod, "n1", near}, at: "n1", server: "near:8080", outcome: "Reply"},
	{name: "ClusterIP, other node", both: true, from: "c1", to: "far", path: []string{pod, "n1", "n2", far}, at: "n1", server: "far:8080", outcome: "Reply"},
	{name: "ClusterIP from a node", from: "n1", to: "svc/far", path: []string{"n1", "n2", far}, at: "n1", server: "far:8080", masquerade: true, outcome: "Reply"},
	{name: "hairpin", both: true, from: "near", to: "svc/near", path: []string{near, "n1", near}, at: "n1", server: "near:8080", masquerade: true,
		outcome: "Reply"},
	{name: "NodePort, Cluster", both: true, from: client, to: "n1:30080", path: []string{client, "n1", "n2", far}, at: "n1", server: "far:8080", masquerade: true, outcome: "Reply"},
	{name: "NodePort, Local", local: true, from: client, to: "n1:30081", path: []string{client, "n1", near},
		at: "n1", server: "near:8080", outcome: "Reply", not: []string{"program"}},
	{name: "NodePort, Local, no endpoint", from: client, to: "n2:30081", path: []string{client, "n2"}, outcome: "Silence", end: "n2", by: "default/local", not: []string{"program"}},
	{name: "no endpoint", both: true, from: "c1", to: "empty", path: []string{pod, "n1"}, outcome: "Refused", end: "n1", by: "default/empty|reject-chain", not: []string{"program"}},
	{name: "NodePort, no endpoint", marked: true, from: client, to: "n1:30082", path: []string{client, "n1"}, outcome: "Refused", end: "n1", by: "default/empty|reject-chain", not: []string{"program"}},
	{name: "outside of the source ranges", from: client, to: "lb/shut", path: []string{client, anyNode}, outcome: "Silence", end: anyNode, by: "default/shut", not: []string{"program"}},
	{name: "inside of the source ranges", from: client, to: "lb/open", path: []string{client, anyNode, "n2", far}, at: anyNode, server: "far:8080", masquerade: true, outcome: "Reply", not: []string{"program"}},
	{name: "ICMP error", from: "c1", to: "far:closed", proto: "udp", path: []string{pod, "n1", "n2", far}, at: "n1", server: "far:9", outcome: "Refused", not: []string{"userspace"}},
	{name: "ICMP error through NodePort", from: client, to: "n1:30009", proto: "udp", path: []string{client, "n1", "n2", far}, at: "n1", server: "far:9", masquerade: true, outcome: "Refused", not: []string{"userspace"}},
	{name: "SCTP to a ClusterIP", from: "c1", to: "far:sctp", proto: "sctp", path: []string{pod, "n1", "n2", far}, at: "n1", server: "far:1320", outcome: "Reply", not: []string{"userspace"}},
	{name: "SCTP to a NodePort", from: client, to: "n1:30132", proto: "sctp", path: []string{client, "n1", "n2", far}, at: "n1", server: "far:1320", masquerade: true, outcome: "Reply", not: []string{"userspace"}},
	{name: "UDP to a ClusterIP", from: "c1", to: "far:udp", proto: "udp", path: []string{pod, "n1", "n2", far}, at: "n1", server: "far:5300", outcome: "Reply", not: []string{"userspace"}},
	{name: "UDP to a NodePort", from: client, to: "n1:30053", proto: "udp", path: []string{client, "n1", "n2", far}, at: "n1", server: "far:5300", masquerade: true, outcome: "Reply", not: []string{"userspace"}},
}

// denied are the kinds that a NetworkPolicy ends.
var denied = []kind{
	{name: "denied by the policy of the server", from: "c1", to: "guarded", path: []string{pod, "n1", "n2"}, at: "n1", server: "guarded:8080",
		outcome: "Silence", end: "n2", by: "default/guarded|cali-tw-", not: []string{"userspace"}},
	{name: "denied by the policy of the client", from: "locked", to: "far", path: []string{"default/locked", "n1"}, at: "n1", server: "far:8080",
		outcome: "Silence", end: "n1", by: "default/locked|cali-fw-", not: []string{"userspace"}},
	{name: "allowed by no policy", from: "c1", to: "far", path: []string{pod, "n1", "n2", far}, at: "n1", server: "far:8080", outcome: "Reply"},
}

// anyNode stands for the node that gets a packet of the client for the address of a load balancer.
const anyNode = "any"

// dnat is what the state of a connection says of a destination that is translated.
func (m mode) dnat() string {
	if m.virtual {
		return ""
	}
	return ",DNAT"
}

// hairpins reports whether the client is the server.
func (k kind) hairpins() bool { return strings.HasPrefix("default/"+k.server, k.path[0]+":") }

// marks returns the mark that packets get if they will be masqueraded.
func (k kind) marks(m mode) uint32 {
	if m.hairpins && k.hairpins() {
		return 0
	}
	return m.mark
}

// through returns the kind with a node for anyNode.
func (k kind) through(node string) kind {
	replace := func(at string) string {
		if at == anyNode {
			return node
		}
		return at
	}
	var path []string
	for _, p := range k.path {
		path = append(path, replace(p))
	}
	k.path, k.at, k.end = slices.Compact(path), replace(k.at), replace(k.end)
	return k
}
