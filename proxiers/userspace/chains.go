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
	enter("INPUT", refused, "Services without a relay", xtables.State("NEW")),
	enter("INPUT", input, "relays of Services"),
	enter("FORWARD", refused, "Services without a relay", xtables.State("NEW")),
	enter("OUTPUT", refused, "Services without a relay", xtables.State("NEW")),
	enter("PREROUTING", portalsContainer, "handle ClusterIPs; NOTE: this must be before the NodePort rules"),
	enter("OUTPUT", portalsHost, "handle ClusterIPs; NOTE: this must be before the NodePort rules"),
	enter("PREROUTING", nodePortContainer, atEnd, xtables.ToLocal),
	enter("OUTPUT", nodePortHost, atEnd, xtables.ToLocal),
}

// atEnd is the comment of entries at the end of a built-in chain.
const atEnd = "handle service NodePorts; NOTE: this must be the last rule in the chain"

func enter(from string, to int, comment string, match ...xtables.Part) xtables.Entry {
	e := xtables.NewEntry(tableOf(to), from, chainNames[to], comment, match...)
	e.Last = comment == atEnd
	return e
}

// owned describes what belongs to this proxier, from this or any earlier instance.
var owned = xtables.Ownership{
	Tables: []xtables.TableName{xtables.NAT, xtables.Filter},
	Chain:  func(_ xtables.TableName, name string) bool { return slices.Contains(chainNames, name) },
}
