// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
)

// The chains.
const (
	chainServices    = "KUBE-SERVICES"               // nat: marks traffic to be masqueraded
	chainNodePort    = "KUBE-NODE-PORT"              // nat: the same for NodePorts; filter: health check ports
	chainMarkMasq    = dnat.ChainMarkMasq            // nat: marks packets to be masqueraded
	chainPostrouting = "KUBE-POSTROUTING"            // nat: masquerades marked packets
	chainForward     = "KUBE-FORWARD"                // filter: lets forwarded Service traffic through
	chainIPVSFilter  = "KUBE-IPVS-FILTER"            // filter: keeps the node's own ports off the addresses of Services
	chainRefuse      = "KUBE-IPVS-REFUSE"            // filter: refuses what no endpoint serves
	chainFirewall    = "KUBE-PROXY-FIREWALL"         // mangle: drops packets that must not be served
	chainSources     = "KUBE-SOURCE-RANGES-FIREWALL" // mangle: the same for sources that a load balancer does not admit
	chainDelivery    = "KUBE-IPVS-DELIVERY"          // mangle: marks packets that the node is to deliver to IPVS
	chainDelivered   = "KUBE-IPVS-DELIVERED"         // mangle: removes the mark after IPVS
	// nat: leads to the chains of ports that IPVS does not serve
	chainTranslations = "KUBE-IPVS-TRANSLATIONS"
)

// table is our part of a table.
type table struct {
	name   xtables.TableName
	jumps  []xtables.Entry
	chains []xtables.Chain
}

// rules are the rules of a family that depend on the configuration alone: Services are entries of sets.
type rules struct {
	family lab.Family
	// podRange is the source range of all pods, nodePods that of the node's own. Invalid means that it is unknown.
	podRange, nodePods netip.Prefix

	masqueradeAll bool
	// mark requests masquerading, and deliver local delivery.
	mark, deliver uint32
}

func (r rules) tables() []table { return []table{r.mangle(), r.filter(), r.nat()} }

// in matches a set.
func (r rules) in(id setID, parts string) xtables.Part {
	return xtables.InSet(id.nameIn(r.family), parts)
}

// vip and vipSource are the fields of a packet that sets of frontends match, without and with the source.
const vip, vipSource = "dst,dst", "dst,dst,src"

func about(id setID) xtables.Part { return xtables.Comment(kinds[id].about) }

// nat marks packets to be masqueraded. A packet passes these rules before IPVS translates it, and POSTROUTING
// afterwards.
func (r rules) nat() table {
	services, nodePort := xtables.Chain{Name: chainServices}, xtables.Chain{Name: chainNodePort}
	mark := xtables.Jump(chainMarkMasq)

	// Replies to pods come back through the node; replies to other clients might not. These include the node itself,
	// whose packets to a ClusterIP have that address as their source.
	foreign := xtables.FromLocal
	switch {
	case r.masqueradeAll:
		foreign = ""
	case r.podRange.IsValid():
		foreign = xtables.NotFrom(r.podRange)
	}
	services.Add(about(clusterIP), r.in(clusterIP, vip), foreign, mark)
	// A translated packet leaves this table. The rules below mark what IPVS serves.
	services.Add(xtables.Comment("ports that rules serve"), xtables.Jump(chainTranslations))
	services.Add(about(externalIP), r.in(externalIP, vip), mark)
	services.Add(about(loadBalancer), r.in(loadBalancer, vip), mark)
	services.Add(xtables.ToLocal, xtables.Jump(chainNodePort))
	nodePort.Add(about(nodePortTCP), "-p tcp", r.in(nodePortTCP, "dst"), mark)
	nodePort.Add(about(nodePortUDP), "-p udp", r.in(nodePortUDP, "dst"), mark)
	nodePort.Add(about(nodePortSCTP), "-p sctp", r.in(nodePortSCTP, vip), mark)

	set, post := xtables.Chain{Name: chainMarkMasq}, xtables.Chain{Name: chainPostrouting}
	set.Add(xtables.SetMark(r.mark))
	post.Add(about(loopBack), r.in(loopBack, vipSource), mark)
	post.AddMasquerade(r.mark, xtables.MasqueradeFully)

	return table{
		name: xtables.NAT,
		jumps: []xtables.Entry{
			xtables.NewEntry(xtables.NAT, "PREROUTING", chainServices, "kubernetes service portals"),
			xtables.NewEntry(xtables.NAT, "OUTPUT", chainServices, "kubernetes service portals"),
			xtables.NewEntry(xtables.NAT, "POSTROUTING", chainPostrouting, "kubernetes postrouting rules"),
		},
		chains: []xtables.Chain{services, nodePort, set, post},
	}
}

// filter accepts replies and health checks.
func (r rules) filter() table {
	forward, nodePort := xtables.Chain{Name: chainForward}, xtables.Chain{Name: chainNodePort}
	guard, refuse := xtables.Chain{Name: chainIPVSFilter}, xtables.Chain{Name: chainRefuse}
	if r.podRange.IsValid() {
		// It is not translated back, so whoever gets it resets its connection: the node itself, or a client whose
		// connection the rules have translated.
		invalid := []xtables.Part{xtables.From(r.podRange), xtables.State("INVALID"), xtables.Drop}
		guard.Add(invalid...)
		forward.Add(invalid...)
	}
	forward.AddForward(r.mark)
	nodePort.Add(about(healthCheck), r.in(healthCheck, "dst"), xtables.Accept)
	for _, id := range []setID{clusterIP, loadBalancer, externalIP} {
		guard.Add(about(id), r.in(id, vip), xtables.Return)
	}
	guard.Add(about(healthCheck), r.in(healthCheck, "dst"), xtables.Return)
	guard.Add(xtables.Comment("no other port of "+kinds[ipvsIPs].about), xtables.State("NEW"), r.in(ipvsIPs, "dst"),
		xtables.Reject)
	// IPVS cannot refuse them: the kernel sends no ICMP error from an address that the node does not have.
	refuse.Add(about(externalRefused), r.in(externalRefused, vip), xtables.Reject)
	return table{
		name: xtables.Filter,
		jumps: []xtables.Entry{
			xtables.NewEntry(xtables.Filter, "INPUT", chainNodePort, "kubernetes health check rules"),
			xtables.NewEntry(xtables.Filter, "INPUT", chainIPVSFilter, "kubernetes ipvs access filter"),
			xtables.NewEntry(xtables.Filter, "FORWARD", chainRefuse, "kubernetes service portals without endpoints"),
			xtables.NewEntry(xtables.Filter, "OUTPUT", chainRefuse, "kubernetes service portals without endpoints"),
			xtables.NewEntry(xtables.Filter, "FORWARD", chainForward, "kubernetes forwarding rules"),
		},
		chains: []xtables.Chain{forward, nodePort, guard, refuse},
	}
}

// mangle drops packets before they are translated. In OUTPUT, IPVS translates packets of the node itself between nat
// and filter, so the filter table would be too late.
func (r rules) mangle() table {
	firewall, sources := xtables.Chain{Name: chainFirewall}, xtables.Chain{Name: chainSources}
	firewall.Add(about(internalNoLocal), r.in(internalNoLocal, vip), xtables.Drop)
	var notPods xtables.Part
	if r.nodePods.IsValid() {
		notPods = xtables.NotFrom(r.nodePods)
	}
	firewall.Add(about(externalNoLocal), r.in(externalNoLocal, vip), xtables.NotFromLocal, notPods, xtables.Drop)
	firewall.Add(about(loadBalancerFW), r.in(loadBalancerFW, vip), xtables.Jump(chainSources))
	sources.Add(about(sourceCIDR), r.in(sourceCIDR, vipSource), xtables.Return)
	sources.Add(about(sourceIP), r.in(sourceIP, vipSource), xtables.Return)
	sources.Add(xtables.Drop)
	delivery, delivered := xtables.Chain{Name: chainDelivery}, xtables.Chain{Name: chainDelivered}
	// IPVS sends the packet on by OUTPUT, where its route must be that to the endpoint.
	delivery.Add(xtables.Marked(r.deliver), xtables.Goto(chainDelivered))
	// Connections may outlast the last endpoint.
	delivery.Add(about(externalRefused), xtables.State("NEW"), r.in(externalRefused, vip), xtables.Return)
	delivery.Add(xtables.Comment("connections that rules serve"), xtables.State("DNAT"), xtables.Return)
	for _, id := range []setID{externalIP, loadBalancer} {
		delivery.Add(about(id), r.in(id, vip), xtables.SetMark(r.deliver))
	}
	delivered.Add(xtables.ClearMark(r.deliver))
	fresh := xtables.State("NEW") // verdicts on established connections were made on their first packet
	return table{
		name: xtables.Mangle,
		jumps: []xtables.Entry{
			xtables.NewEntry(xtables.Mangle, "PREROUTING", chainFirewall, "kubernetes firewall before ipvs", fresh),
			xtables.NewEntry(xtables.Mangle, "OUTPUT", chainFirewall, "kubernetes firewall before ipvs", fresh),
			xtables.NewEntry(xtables.Mangle, "PREROUTING", chainDelivery, "kubernetes delivery to ipvs"),
			xtables.NewEntry(xtables.Mangle, "OUTPUT", chainDelivery, "kubernetes delivery to ipvs"),
		},
		chains: []xtables.Chain{firewall, sources, delivery, delivered},
	}
}

// program returns the transactions that write all rules, and the translations, in place of the existing ones. The sets
// must exist.
func (r rules) program(saved xtables.Tables, translations []*xtables.Fragment) []*xtables.Transaction {
	c := translationLayout.Rebuild(translations, saved, nil)
	c.DropStale(saved, dnat.PerService)
	mangle := &xtables.Transaction{Table: xtables.Mangle}
	// Chains of ports lead to the marks, and the other chains of the nat table lead to chains of ports.
	into := map[xtables.TableName]*xtables.Transaction{
		xtables.Mangle: mangle, xtables.Filter: &c.Before, xtables.NAT: &c.Shared,
	}
	for _, t := range r.tables() {
		for _, ch := range t.chains {
			if ch.Name == chainMarkMasq {
				c.Fixed.Write(ch.Name, ch.Rules)
			} else {
				into[t.name].Write(ch.Name, ch.Rules)
			}
		}
		xtables.Enter(t.jumps, saved, func(name xtables.TableName) *xtables.Transaction { return into[name] })
	}
	return append([]*xtables.Transaction{mangle}, c.Transactions(xtables.NFTables)...)
}

// intact reports whether all jumps exist, and all chains have the right number of rules, those of translations
// included.
func (r rules) intact(saved xtables.Tables, translations []*xtables.Fragment) bool {
	short := func(t xtables.TableName, c xtables.Chain) bool {
		return len(saved.Of(t).Chains[c.Name]) != len(c.Rules)
	}
	for _, t := range r.tables() {
		missing := func(e xtables.Entry) bool { return e.Missing(saved) }
		if slices.ContainsFunc(t.jumps, missing) ||
			slices.ContainsFunc(t.chains, func(c xtables.Chain) bool { return short(t.name, c) }) {
			return false
		}
	}
	shared := xtables.Chain{Name: chainTranslations}
	for _, f := range translations {
		shared.Rules = append(shared.Rules, f.Shared[natTranslations]...)
		if slices.ContainsFunc(f.Chains, func(c xtables.Chain) bool { return short(xtables.NAT, c) }) {
			return false
		}
	}
	return !short(xtables.NAT, shared)
}

// owned describes what belongs to this proxier, from this or any earlier instance.
func (r rules) owned() xtables.Ownership {
	tables := r.tables()
	return xtables.Ownership{
		Tables: []xtables.TableName{xtables.Mangle, xtables.Filter, xtables.NAT},
		Chain: func(name xtables.TableName, chain string) bool {
			if name == xtables.NAT && (chain == chainTranslations || dnat.PerService(chain)) {
				return true
			}
			return slices.ContainsFunc(tables, func(t table) bool {
				is := func(c xtables.Chain) bool { return c.Name == chain }
				return t.name == name && slices.ContainsFunc(t.chains, is)
			})
		},
	}
}
