// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"net/netip"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
)

// The chains, all of which kube-proxy has too.
const (
	chainServices    = "KUBE-SERVICES"               // nat: what is to be masqueraded
	chainBalancer    = "KUBE-LOAD-BALANCER"          // nat: the same for load balancer IPs
	chainNodePort    = "KUBE-NODE-PORT"              // nat: the same for NodePorts; filter: health check ports
	chainMarkMasq    = "KUBE-MARK-MASQ"              // nat: marks packets to be masqueraded
	chainPostrouting = "KUBE-POSTROUTING"            // nat: masquerades marked packets
	chainForward     = "KUBE-FORWARD"                // filter: lets forwarded Service traffic through
	chainIPVSFilter  = "KUBE-IPVS-FILTER"            // filter: keeps the node's own ports off the addresses of Services
	chainFirewall    = "KUBE-PROXY-FIREWALL"         // mangle: drops what IPVS must not see
	chainSources     = "KUBE-SOURCE-RANGES-FIREWALL" // mangle: the same for sources that a load balancer does not admit
)

// masqueradeMark is the bit of the packet mark that asks for masquerading, kube-proxy's default (bit 14).
const masqueradeMark = 1 << 14

// table is our part of a table.
type table struct {
	name   xtables.TableName
	jumps  []jump
	chains []chain
}

// jump leads from a built-in chain to one of ours.
type jump struct {
	from, to string
	rule     xtables.Rule
}

type chain struct {
	name  string
	rules []xtables.Rule
}

// rule adds a rule.
func (c *chain) rule(parts ...xtables.Part) { c.rules = append(c.rules, xtables.NewRule(parts...)) }

// rules are all rules of a family. They depend on the configuration alone: Services are entries of sets.
type rules struct {
	family lab.Family
	// podRange is what counts as traffic of pods; invalid means that pods cannot be told apart.
	podRange      netip.Prefix
	masqueradeAll bool
}

func (r rules) tables() []table {
	return []table{r.mangle(), r.filter(), r.nat()}
}

func newJump(from, to, why string, parts ...xtables.Part) jump {
	return jump{from, to, xtables.NewRule(append(parts, xtables.Comment(why), xtables.Jump(to))...)}
}

// in matches a set.
func (r rules) in(id setID, parts string) xtables.Part {
	return xtables.InSet(id.nameIn(r.family), parts)
}

// vip and vipSource are the parts of a packet that sets of frontends list, without and with the source.
const vip, vipSource = "dst,dst", "dst,dst,src"

func about(id setID) xtables.Part { return xtables.Comment(kinds[id].about) }

// nat marks what is to be masqueraded. A packet passes here before IPVS takes it, and passes POSTROUTING after that,
// with its new destination.
func (r rules) nat() table {
	services, balancer, nodePort := chain{name: chainServices}, chain{name: chainBalancer}, chain{name: chainNodePort}
	mark := xtables.Jump(chainMarkMasq)

	// The replies of pods come back this way by themselves; others might answer past the node. That takes in the node
	// itself, whose packets to an address on kube-ipvs0 have this very address as their source.
	switch {
	case r.masqueradeAll:
		services.rule(about(clusterIP), r.in(clusterIP, vip), mark)
	case r.podRange.IsValid():
		services.rule(about(clusterIP), r.in(clusterIP, vip), xtables.NotFrom(r.podRange), mark)
	default:
		services.rule(about(clusterIP), r.in(clusterIP, vip), xtables.FromLocal, mark)
	}
	services.rule(about(externalIP), r.in(externalIP, vip), mark)
	services.rule(about(externalIPLocal), r.in(externalIPLocal, vip), xtables.FromLocal, mark)
	services.rule(about(loadBalancer), r.in(loadBalancer, vip), xtables.Jump(chainBalancer))
	services.rule(xtables.ToLocal, xtables.Jump(chainNodePort))

	// Policy Local keeps the source, but for the node itself.
	balancer.rule(about(loadBalancerLocal), r.in(loadBalancerLocal, vip), xtables.NotFromLocal, xtables.Return)
	balancer.rule(mark)
	for _, p := range []struct {
		match      xtables.Part
		all, local setID
		parts      string
	}{
		{"-p tcp", nodePortTCP, nodePortLocalTCP, "dst"},
		{"-p udp", nodePortUDP, nodePortLocalUDP, "dst"},
		{"-p sctp", nodePortSCTP, nodePortLocalSCTP, vip},
	} {
		nodePort.rule(about(p.local), p.match, r.in(p.local, p.parts), xtables.NotFromLocal, xtables.Return)
		nodePort.rule(about(p.all), p.match, r.in(p.all, p.parts), mark)
	}

	set, post := chain{name: chainMarkMasq}, chain{name: chainPostrouting}
	set.rule(xtables.SetMark(masqueradeMark))
	post.rule(about(loopBack), r.in(loopBack, vipSource), mark)
	post.rule(xtables.NotMarked(masqueradeMark), xtables.Return)
	// The mark goes before the packet may come by a second time, inside the packet of a tunnel.
	post.rule(xtables.FlipMark(masqueradeMark))
	post.rule(xtables.Comment("kubernetes service traffic requiring SNAT"), xtables.MasqueradeFully)

	return table{
		name: xtables.NAT,
		jumps: []jump{
			newJump("PREROUTING", chainServices, "kubernetes service portals"),
			newJump("OUTPUT", chainServices, "kubernetes service portals"),
			newJump("POSTROUTING", chainPostrouting, "kubernetes postrouting rules"),
		},
		chains: []chain{services, balancer, nodePort, set, post},
	}
}

// filter lets through what comes back, and what load balancers ask.
func (r rules) filter() table {
	forward, nodePort, guard := chain{name: chainForward}, chain{name: chainNodePort}, chain{name: chainIPVSFilter}
	forward.rule(xtables.Comment("kubernetes forwarding rules"), xtables.Marked(masqueradeMark), xtables.Accept)
	forward.rule(xtables.Comment("kubernetes forwarding conntrack rule"), xtables.State("RELATED,ESTABLISHED"),
		xtables.Accept)
	nodePort.rule(about(healthCheck), r.in(healthCheck, "dst"), xtables.Accept)
	for _, id := range []setID{clusterIP, loadBalancer, externalIP, externalIPLocal} {
		guard.rule(about(id), r.in(id, vip), xtables.Return)
	}
	guard.rule(about(healthCheck), r.in(healthCheck, "dst"), xtables.Return)
	guard.rule(xtables.Comment("no other port of "+kinds[ipvsIPs].about), xtables.State("NEW"), r.in(ipvsIPs, "dst"),
		xtables.Reject)
	return table{
		name: xtables.Filter,
		jumps: []jump{
			newJump("INPUT", chainNodePort, "kubernetes health check rules"),
			newJump("INPUT", chainIPVSFilter, "kubernetes ipvs access filter"),
			newJump("FORWARD", chainForward, "kubernetes forwarding rules"),
		},
		chains: []chain{forward, nodePort, guard},
	}
}

// mangle drops what IPVS must not see. Of the tables where that can be done it is the one that OUTPUT passes before
// IPVS, which takes packets of the node itself between nat and filter.
func (r rules) mangle() table {
	firewall, sources := chain{name: chainFirewall}, chain{name: chainSources}
	firewall.rule(about(internalNoLocal), r.in(internalNoLocal, vip), xtables.Drop)
	outside := []xtables.Part{about(externalNoLocal), r.in(externalNoLocal, vip), xtables.NotFromLocal}
	if r.podRange.IsValid() {
		outside = append(outside, xtables.NotFrom(r.podRange))
	}
	firewall.rule(append(outside, xtables.Drop)...)
	firewall.rule(about(loadBalancerFW), r.in(loadBalancerFW, vip), xtables.Jump(chainSources))
	sources.rule(about(sourceCIDR), r.in(sourceCIDR, vipSource), xtables.Return)
	sources.rule(about(sourceIP), r.in(sourceIP, vipSource), xtables.Return)
	sources.rule(xtables.Drop)
	fresh := xtables.State("NEW") // verdicts on established connections were made on their first packet
	return table{
		name: xtables.Mangle,
		jumps: []jump{
			newJump("INPUT", chainFirewall, "kubernetes firewall before ipvs", fresh),
			newJump("OUTPUT", chainFirewall, "kubernetes firewall before ipvs", fresh),
		},
		chains: []chain{firewall, sources},
	}
}

// program writes all rules, whatever there is. The sets have to be there.
func (r rules) program(ctx context.Context, p *xtables.Programs, saved xtables.Tables) error {
	var all []*xtables.Transaction
	for _, t := range r.tables() {
		tx := &xtables.Transaction{Table: t.name}
		for _, c := range t.chains {
			tx.Write(c.name, c.rules)
		}
		for _, j := range slices.Backward(t.jumps) {
			if len(saved.Of(t.name).Jumps(j.from, j.to)) == 0 {
				tx.Insert(j.from, j.rule)
			}
		}
		all = append(all, tx)
	}
	return p.Restore(ctx, all...)
}

// stand says whether all chains have as many rules as they were given, and all jumps are there.
func (r rules) stand(saved xtables.Tables) bool {
	for _, t := range r.tables() {
		for _, j := range t.jumps {
			if len(saved.Of(t.name).Jumps(j.from, j.to)) == 0 {
				return false
			}
		}
		for _, c := range t.chains {
			if len(saved.Of(t.name).Chains[c.name]) != len(c.rules) {
				return false
			}
		}
	}
	return true
}

// remove takes all rules away.
func (r rules) remove(ctx context.Context, p *xtables.Programs) error {
	saved, err := p.Save(ctx)
	if err != nil {
		return err
	}
	var all []*xtables.Transaction
	for _, t := range r.tables() {
		if saved[t.name] == nil {
			continue
		}
		tx := &xtables.Transaction{Table: t.name}
		for _, j := range t.jumps {
			for _, found := range saved.Of(t.name).Jumps(j.from, j.to) {
				tx.Remove(j.from, found)
			}
		}
		for _, c := range t.chains {
			if _, there := saved.Of(t.name).Chains[c.name]; there {
				tx.Delete(c.name)
			}
		}
		all = append(all, tx)
	}
	return p.Restore(ctx, all...)
}
