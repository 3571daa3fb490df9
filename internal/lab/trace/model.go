// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"time"
)

// Tuple is what rules look at in a packet. Ports are 0 in ICMP, and in all fragments but the first.
type Tuple struct {
	Src  netip.AddrPort `json:"src"`
	Dst  netip.AddrPort `json:"dst"`
	Mark uint32         `json:"mark"`
	// State is that of the connection in connection tracking, such as "NEW,DNAT". It is empty where the packet is not
	// tracked: before prerouting or output at -200, on the wire, and in a namespace that tracks nothing.
	State string `json:"state"`
	// Quoted is the packet that an ICMP error quotes, nil for other packets.
	Quoted *Quoted `json:"quoted,omitempty"`
}

// Quoted is the beginning of a packet inside an ICMP error.
type Quoted struct {
	Src netip.AddrPort `json:"src"`
	Dst netip.AddrPort `json:"dst"`
}

// Step is something that a packet passes: a device, a rule or policy of a chain, or a part of the kernel. One of
// Device, Chain and Kernel is not empty, and only one.
type Step struct {
	// Place is the namespace. A packet can visit a place more than once: the steps of a visit follow one another.
	Place string `json:"place"`
	// Device and Direction ("in" or "out") are those of a device. Packet is what it saw, in words, with the outer headers
	// of a tunnel. Outer are these headers, the outermost first, and Frame the bytes. They are empty for other steps;
	// Outer is also empty outside of tunnels.
	Device    string  `json:"device,omitempty"`
	Direction string  `json:"direction,omitempty"`
	Packet    string  `json:"packet,omitempty"`
	Outer     []Outer `json:"outer,omitempty"`
	Frame     *Frame  `json:"frame,omitempty"`
	// Hook and Priority are where a rule or a part of the kernel works. They are empty for devices. Parts of the kernel
	// outside of netfilter, such as routing, have no Hook.
	Hook     string `json:"hook,omitempty"`
	Priority int    `json:"priority,omitempty"`
	// Backend, Family, Table, Chain and Rule are those of a rule, as its owner prints it. Rule is empty for the policy of
	// the chain. About is the annotation, empty if nothing is known. Verdict is "accept", "drop", "jump CHAIN", ...; it
	// is also set, to "drop", for a part of the kernel that ends the packet.
	Backend string `json:"backend,omitempty"`
	Family  string `json:"family,omitempty"`
	Table   string `json:"table,omitempty"`
	Chain   string `json:"chain,omitempty"`
	Rule    string `json:"rule,omitempty"`
	About   string `json:"about,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	// Kernel says what a part of the kernel does.
	Kernel string `json:"kernel,omitempty"`
	// Flow is the entry of connection tracking that this part of the kernel has made or used, as conntrack prints it, or
	// the connection of IPVS with the real server. It is empty for other steps, and if the entry had gone before it could
	// be read.
	Flow string `json:"flow,omitempty"`
	// Before is the packet as it came to the step.
	Before Tuple `json:"before"`
	// After is the packet after the step, nil if the step has not changed it. Changed names what, in the words of the
	// columns: sourceIP, sourcePort, destinationIP, destinationPort, mark, state; and quotedSource and
	// quotedDestination for the packet that an ICMP error quotes.
	After   *Tuple   `json:"after,omitempty"`
	Changed []string `json:"changed,omitempty"`
}

// Outer is a header around a packet in a tunnel.
type Outer struct {
	Proto string         `json:"proto"` // "ipip" or "vxlan"
	Src   netip.AddrPort `json:"src"`   // with port 0 for ipip
	Dst   netip.AddrPort `json:"dst"`
	TTL   uint8          `json:"ttl"`
}

// Frame is a packet as a device saw it.
type Frame struct {
	At time.Time `json:"at"` // by the kernel's clock, which all places share
	// Ethernet reports whether Data begins with an Ethernet header, else it begins with the IP header.
	Ethernet bool `json:"ethernet,omitempty"`
	// Data are the bytes of the packet, at most 256. Length is how many it had.
	Data   []byte `json:"data"`
	Length int    `json:"length"`
}

// Walk is the way of one packet. The zero value is that of a packet that nothing has seen.
type Walk struct {
	First Tuple  `json:"first"`
	Steps []Step `json:"steps"`
	// End is how the packet ended. It is nil for an answer that nothing has seen.
	End *End `json:"end,omitempty"`
	key key
	// stage is how far the packet has come in the last visit.
	stage stage
}

// stage is how far a packet has come in a visit.
type stage int

const (
	devices    stage = iota // only devices have seen it, or it has left by one
	routed                  // prerouting, or forward: no hook after the next choice of a route has seen it
	received                // input, or output: it is for a program here, or from one
	postrouted              // postrouting, and no device
)

// End is how a packet ended.
type End struct {
	Outcome Outcome `json:"outcome"`
	// Place is where, and Step the number in Walk.Steps of the step that ended it, or of the last that was seen.
	Place string `json:"place"`
	Step  int    `json:"step"`
	// Cause is what ended the packet.
	Cause Cause `json:"cause"`
	// Text says so in a sentence.
	Text string `json:"text"`
	// Why says in a sentence which object of the cluster is the reason: a NetworkPolicy, or a Service without endpoints.
	// It is empty if none is known.
	Why string `json:"why,omitempty"`
	// Losses are the counters of the kernel that support Text. They are empty if a rule or an answer says it all.
	Losses []Loss `json:"losses,omitempty"`
}

// Outcome is how a packet ended, in a word.
type Outcome string

// The outcomes.
const (
	Delivered Outcome = "delivered" // a program has taken it
	Dropped   Outcome = "dropped"   // something has thrown it away, and told nobody
	Refused   Outcome = "refused"   // something has answered with TCP RST or an ICMP error
	Lost      Outcome = "lost"      // it ended, and the trace does not see by what
)

// Cause is what ended a packet.
type Cause string

// The causes. A packet that was delivered has CauseSocket.
const (
	CauseSocket  Cause = "socket"    // a program has taken it
	CauseRule    Cause = "rule"      // a rule, or the policy of a chain
	CausePolicy  Cause = "policy"    // a NetworkPolicy, by such a rule
	CauseFilter  Cause = "rp_filter" // the reverse path filter
	CauseMartian Cause = "martian"   // an address that cannot be on this device
	CauseRoute   Cause = "route"     // no route, or one that forbids
	CausePort    Cause = "port"      // no program has the port
	CauseHops    Cause = "ttl"       // the last hop is over
	CauseSize    Cause = "mtu"       // too big for a device, and not to be cut into fragments
	CauseNeigh   Cause = "neighbour" // no machine has the address of the next hop
	CauseUnknown Cause = "unknown"
)

// Dropped returns the step that ended the packet, nil if no rule did.
func (w *Walk) Dropped() *Step {
	for i := range w.Steps {
		if w.Steps[i].Verdict == "drop" {
			return &w.Steps[i]
		}
	}
	return nil
}

// Place is a namespace on the way, for a drawing of the network.
type Place struct {
	Name string `json:"name"`
	// Kind is "node", "pod", "client", "router" or "switch". The switch connects the machines. Walks leave it out.
	Kind    string   `json:"kind"`
	Node    string   `json:"node,omitempty"` // of a pod
	Devices []Device `json:"devices"`
}

// Device is a device of a place.
type Device struct {
	Name string `json:"name"`
	// Kind is that of the kernel: "veth", "bridge", "ipip", "vxlan", "dummy", "loopback", ...
	Kind      string         `json:"kind"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	MTU       int            `json:"mtu"`
	Bridge    string         `json:"bridge,omitempty"` // whose port it is
	// Peer is the other end of a veth, if it is in one of the places.
	Peer *DeviceName `json:"peer,omitempty"`
}

// DeviceName names a device.
type DeviceName struct {
	Place  string `json:"place"`
	Device string `json:"device"`
}

// Chain is a chain that a packet has met, or could have met from one that it has met, for a map of the chains.
type Chain struct {
	Place    string `json:"place"`
	Backend  string `json:"backend"`
	Family   string `json:"family"`
	Table    string `json:"table"`
	Name     string `json:"name"`
	Hook     string `json:"hook,omitempty"` // of a base chain
	Priority int    `json:"priority,omitempty"`
	About    string `json:"about,omitempty"` // what its owner says of it
	Rules    int    `json:"rules"`           // how many
	// Targets are the chains that its rules lead to, in the order of the rules: those that a packet has met, and three
	// others. Others is how many more there are. Both are empty if no packet has been in the chain.
	Targets []string `json:"targets,omitempty"`
	Others  int      `json:"others,omitempty"`
	Met     bool     `json:"met"` // a packet has been in it
}
