// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"slices"

	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
)

// The chains, in the order of layout.
const (
	portalsContainer = iota
	portalsHost
	nodePortContainer
	nodePortHost
	refused
	input
)

var chainNames = []string{
	"KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST", "KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST",
	"KUBE-PORTALS-REFUSED", "KUBE-PORTALS-INPUT",
}

// layout returns the chains with the rules at their heads.
func layout(f lab.Family, localhost bool) xtables.Layout {
	var l xtables.Layout
	for c, name := range chainNames {
		l = append(l, xtables.SharedChain{Table: tableOf(c), Name: name})
	}
	if !localhost {
		l[nodePortHost].Head = []xtables.Rule{xtables.NewRule(xtables.Comment("no NodePorts on loopback addresses"),
			xtables.ToRange(nodeaddr.Loopback(f)), xtables.Return)}
	}
	toRelays := xtables.ToRange(relayAddrs[f])
	l[input].Head = []xtables.Rule{
		xtables.NewRule(xtables.Comment("what was sent to a Service"), toRelays, xtables.State("DNAT"), xtables.Accept),
		xtables.NewRule(xtables.Comment("relays are not to be called directly"), toRelays, xtables.Reject),
	}
	return l
}

func tableOf(c int) xtables.TableName {
	if c == refused || c == input {
		return xtables.Filter
	}
	return xtables.NAT
}

// entries are the jumps to the chains, in their order in each built-in chain.
var entries = []xtables.Entry{
	enter("INPUT", refused, xtables.State("NEW"), xtables.Comment("Services without a relay")),
	enter("INPUT", input, xtables.Comment("relays of Services")),
	enter("FORWARD", refused, xtables.State("NEW"), xtables.Comment("Services without a relay")),
	enter("OUTPUT", refused, xtables.State("NEW"), xtables.Comment("Services without a relay")),
	enter("PREROUTING", portalsContainer,
		xtables.Comment("handle ClusterIPs; NOTE: this must be before the NodePort rules")),
	enter("OUTPUT", portalsHost, xtables.Comment("handle ClusterIPs; NOTE: this must be before the NodePort rules")),
	enter("PREROUTING", nodePortContainer, xtables.ToLocal, lastRule).AtEnd(),
	enter("OUTPUT", nodePortHost, xtables.ToLocal, lastRule).AtEnd(),
}

var lastRule = xtables.Comment("handle service NodePorts; NOTE: this must be the last rule in the chain")

func enter(from string, to int, parts ...xtables.Part) xtables.Entry {
	return xtables.NewEntry(tableOf(to), from, chainNames[to], parts...)
}

// owned describes what belongs to this proxier, from this or any earlier instance.
var owned = xtables.Ownership{
	Tables: []xtables.TableName{xtables.NAT, xtables.Filter},
	Chain:  func(_ xtables.TableName, name string) bool { return slices.Contains(chainNames, name) },
}
