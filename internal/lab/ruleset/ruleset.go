// SPDX-License-Identifier: Apache-2.0

// Package ruleset reads all packet rules of a network namespace into one model, whoever has programmed them: iptables
// of both back ends, nftables, IP sets, the virtual servers of IPVS and the sockets that packets end at.
package ruleset

import (
	"net/netip"
)

// Ruleset is what a namespace does to packets. The zero value does nothing.
type Ruleset struct {
	Tables  []*Table  `json:"tables,omitempty"`
	IPSets  []*Set    `json:"ipSets,omitempty"`
	Servers []*Server `json:"virtualServers,omitempty"`
	Sockets []*Socket `json:"sockets,omitempty"`
}

// Backend says which programs own a table.
type Backend string

// The backends.
const (
	NFTables       Backend = "nftables"
	IptablesNFT    Backend = "iptables-nft"
	IptablesLegacy Backend = "iptables-legacy"
)

// The families of tables. There are also inet (both), arp, bridge and netdev.
const (
	IP  = "ip"
	IP6 = "ip6"
)

// Table is a table of one family.
type Table struct {
	Backend Backend  `json:"backend"`
	Family  string   `json:"family"`
	Name    string   `json:"name"`
	Comment string   `json:"comment,omitempty"`
	Chains  []*Chain `json:"chains,omitempty"`
	// Sets are the sets and maps of nftables, and its other named objects.
	Sets []*Set `json:"sets,omitempty"`

	byName map[string]*Chain // made when it is first used, and again when chains have been added or removed
}

// Chain returns the chain of a name, nil if there is none.
func (t *Table) Chain(name string) *Chain {
	if len(t.byName) != len(t.Chains) {
		t.byName = map[string]*Chain{}
		for _, c := range t.Chains {
			t.byName[c.Name] = c
		}
	}
	return t.byName[name]
}

// Set returns the set of a name, nil if there is none.
func (t *Table) Set(name string) *Set {
	for _, s := range t.Sets {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Counters are how much a rule has matched.
type Counters struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Chain is a list of rules. A base chain has a hook.
type Chain struct {
	Name    string `json:"name"`
	Comment string `json:"comment,omitempty"`
	// Hook is where packets enter a base chain ("prerouting"), empty for others. The chain with the lower Priority is
	// first. Type is filter, nat or route. Device limits the hook to a device.
	Hook     string `json:"hook,omitempty"`
	Priority int    `json:"priority,omitempty"`
	Type     string `json:"type,omitempty"`
	Device   string `json:"device,omitempty"`
	// Policy is the verdict at the end of a base chain, as its owner prints it; Counters count those packets, nil if
	// nothing counts them.
	Policy   string    `json:"policy,omitempty"`
	Counters *Counters `json:"counters,omitempty"`
	Rules    []*Rule   `json:"rules,omitempty"`
}

// Rule is a rule of a chain.
type Rule struct {
	// Text is the rule as its owner prints it, without counters: "-A INPUT -j DROP" or "ip daddr @local drop".
	Text string `json:"text"`
	// Handle is the kernel's number of the rule in nftables, 0 if it is not known.
	Handle uint64 `json:"handle,omitempty"`
	// Counters is nil if the rule does not count.
	Counters *Counters `json:"counters,omitempty"`
	// Jumps are the chains that the rule itself leads to. Those of a map are at the map's elements.
	Jumps []string `json:"jumps,omitempty"`
	// Sets are the sets and maps that the rule looks packets up in: IP sets for iptables.
	Sets []string `json:"sets,omitempty"`
	// About says what the rule is for. The reader of rules leaves it empty.
	About string `json:"about,omitempty"`
}

// Set is a set or map with its elements, or another named object of nftables (Kind), which has properties only.
type Set struct {
	Kind       string    `json:"kind"` // "set", "map", "ipset", "counter", ...
	Name       string    `json:"name"`
	Comment    string    `json:"comment,omitempty"`
	Properties []string  `json:"properties,omitempty"` // such as "flags interval"
	Elements   []Element `json:"elements,omitempty"`
}

// Element is a member of a set, or a key of a map with its value.
type Element struct {
	Text     string    `json:"text"`
	Counters *Counters `json:"counters,omitempty"`
	Jump     string    `json:"jump,omitempty"` // the chain that a verdict leads to
	About    string    `json:"about,omitempty"`
}

// Server is a virtual server of IPVS.
type Server struct {
	Proto     string         `json:"proto"` // "tcp", "udp", "sctp", or "fwmark"
	At        netip.AddrPort `json:"at"`    // not valid with a firewall mark
	Mark      uint32         `json:"mark,omitempty"`
	Scheduler string         `json:"scheduler"`
	Flags     string         `json:"flags,omitempty"` // such as "persistent 10800"
	Real      []RealServer   `json:"realServers,omitempty"`
	About     string         `json:"about,omitempty"`
}

// RealServer is a destination of a virtual server.
type RealServer struct {
	At       netip.AddrPort `json:"at"`
	Forward  string         `json:"forward"` // "Masq", "Route", "Tunnel" or "Local"
	Weight   int            `json:"weight"`
	Active   int            `json:"active"`   // connections that are established
	Inactive int            `json:"inactive"` // connections in other states
	About    string         `json:"about,omitempty"`
}

// Socket is a socket that takes packets: a TCP listener, or a UDP socket that is not connected.
type Socket struct {
	Proto string         `json:"proto"` // "tcp" or "udp"
	At    netip.AddrPort `json:"at"`
	About string         `json:"about,omitempty"`
}
