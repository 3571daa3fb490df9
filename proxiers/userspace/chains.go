// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"net/netip"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
)

// chain is one of ours. All Services contribute to each, and within each the order of Services does not matter.
type chain int

// The chains.
const (
	portalsContainer chain = iota
	portalsHost
	nodePortContainer
	nodePortHost
	refused
	input
	chains
)

var chainNames = [chains]string{
	"KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST", "KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST",
	"KUBE-PORTALS-REFUSED", "KUBE-PORTALS-INPUT",
}

func (c chain) name() string { return chainNames[c] }

func (c chain) table() xtables.TableName {
	if c == refused || c == input {
		return xtables.Filter
	}
	return xtables.NAT
}

// ours says whether a chain is one of this proxier's.
func ours(name string) bool { return slices.Contains(chainNames[:], name) }

func builtIn(name string) bool {
	switch name {
	case "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING":
		return true
	}
	return false
}

// fixed are the rules at the head of a chain, before those of Services.
func (c chain) fixed(f lab.Family, relays netip.Addr, localhost bool) []xtables.Rule {
	switch {
	case c == nodePortHost && !localhost:
		return []xtables.Rule{xtables.NewRule(xtables.Comment("no NodePorts on loopback addresses"),
			xtables.ToRange(nodeaddr.Loopback(f)), xtables.Return)}
	case c == input:
		return []xtables.Rule{
			xtables.NewRule(xtables.Comment("what was sent to a Service"), xtables.ToAddr(relays), xtables.State("DNAT"),
				xtables.Accept),
			xtables.NewRule(xtables.Comment("relays are not to be called directly"), xtables.ToAddr(relays), xtables.Reject),
		}
	}
	return nil
}

// jump leads from a built-in chain to one of ours.
type jump struct {
	from string
	to   chain
	rule xtables.Rule
	// last is set if it has to come after all other rules.
	last bool
}

// jumps lists them in the order that they shall have in each built-in chain.
var jumps = []jump{
	newJump("INPUT", refused, xtables.State("NEW"), xtables.Comment("Services without a relay")),
	newJump("INPUT", input, xtables.Comment("relays of Services")),
	newJump("FORWARD", refused, xtables.State("NEW"), xtables.Comment("Services without a relay")),
	newJump("OUTPUT", refused, xtables.State("NEW"), xtables.Comment("Services without a relay")),
	newJump("PREROUTING", portalsContainer,
		xtables.Comment("handle ClusterIPs; NOTE: this must be before the NodePort rules")),
	newJump("OUTPUT", portalsHost, xtables.Comment("handle ClusterIPs; NOTE: this must be before the NodePort rules")),
	lastJump("PREROUTING", nodePortContainer, xtables.ToLocal,
		xtables.Comment("handle service NodePorts; NOTE: this must be the last rule in the chain")),
	lastJump("OUTPUT", nodePortHost, xtables.ToLocal,
		xtables.Comment("handle service NodePorts; NOTE: this must be the last rule in the chain")),
}

func newJump(from string, to chain, parts ...xtables.Part) jump {
	return jump{from: from, to: to, rule: xtables.NewRule(append(parts, xtables.Jump(to.name()))...)}
}

func lastJump(from string, to chain, parts ...xtables.Part) jump {
	j := newJump(from, to, parts...)
	j.last = true
	return j
}
