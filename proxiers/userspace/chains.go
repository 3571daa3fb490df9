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

// entries are the jumps to the chains, in the order that they have in each built-in chain.
var entries = []xtables.Entry{
	enter("INPUT", refused, xtables.State("NEW"), xtables.Comment("Services without a relay")),
	enter("INPUT", input, xtables.Comment("relays of Services")),
	enter("FORWARD", refused, xtables.State("NEW"), xtables.Comment("Services without a relay")),
	enter("OUTPUT", refused, xtables.State("NEW"), xtables.Comment("Services without a relay")),
	enter("PREROUTING", portalsContainer,
		xtables.Comment("handle ClusterIPs; NOTE: this must be before the NodePort rules")),
	enter("OUTPUT", portalsHost, xtables.Comment("handle ClusterIPs; NOTE: this must be before the NodePort rules")),
	enter("PREROUTING", nodePortContainer, xtables.ToLocal,
		xtables.Comment("handle service NodePorts; NOTE: this must be the last rule in the chain")).AtEnd(),
	enter("OUTPUT", nodePortHost, xtables.ToLocal,
		xtables.Comment("handle service NodePorts; NOTE: this must be the last rule in the chain")).AtEnd(),
}

func enter(from string, to chain, parts ...xtables.Part) xtables.Entry {
	return xtables.NewEntry(to.table(), from, to.name(), parts...)
}

// owned is what belongs to this proxier, whatever instance made it.
var owned = xtables.Ownership{
	Tables: []xtables.TableName{xtables.NAT, xtables.Filter},
	Chain:  func(_ xtables.TableName, name string) bool { return slices.Contains(chainNames[:], name) },
}
