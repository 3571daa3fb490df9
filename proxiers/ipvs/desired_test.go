// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/model"
)

func state(all ...*model.Service) *model.State { return &model.State{Services: all} }

func named(name string, change func(*model.Port)) *model.Service {
	return web(func(p *model.Port) {
		p.ID.Name = name
		if change != nil {
			change(p)
		}
	})
}

// TestAdvanceTouchesWhatChanges: the work for a change does not depend on how many Services there are.
func TestAdvanceTouchesWhatChanges(t *testing.T) {
	at := func(ip string) func(*model.Port) {
		return func(p *model.Port) { p.ClusterIP = netip.MustParseAddr(ip); withoutLocal(p) }
	}
	a, b := named("a", at("10.96.0.1")), named("b", at("10.96.0.2"))
	d := newDesired()
	d.advance(state(a, b), testPlace)
	c := named("c", at("10.96.0.3"))
	touched := d.advance(state(a, b, c), testPlace)
	if len(touched.servers) != 1 || len(touched.bound) != 1 || len(touched.members) != 2 {
		t.Errorf("a new Service touches %v", touched)
	}
	if touched = d.advance(state(a, b, c), testPlace); len(touched.servers)+len(touched.bound)+len(touched.members) > 0 {
		t.Errorf("no change touches %v", touched)
	}
	touched = d.advance(state(b, c), testPlace)
	if len(touched.servers) != 1 || len(d.servers) != 2 || len(d.fragments) != 2 {
		t.Errorf("a Service that goes touches %v", touched)
	}
}

// TestNodeAddressComes: NodePorts are served on an address that the node gets later; an external address that the node
// gets is no longer kept on the device.
func TestNodeAddressComes(t *testing.T) {
	s := state(named("a", func(p *model.Port) { p.NodePort, p.ExternalIPs = 30080, addrs("192.0.2.1") }))
	d := newDesired()
	d.advance(s, testPlace)
	late := testPlace
	late.own = append(slices.Clone(late.own), addrs("192.0.2.1")...)
	late.nodePorts = late.own
	touched := d.advance(s, late)
	if nodePort := (frontend{netip.MustParseAddrPort("192.0.2.1:30080"), 6}); len(d.servers[nodePort]) == 0 ||
		!touched.servers[nodePort] {
		t.Errorf("%s is not served", nodePort)
	}
	if a := addrs("192.0.2.1")[0]; len(d.bound[a]) > 0 || !touched.bound[a] {
		t.Errorf("%s is to be on the device still", a)
	}
}

// TestOneFrontendOfTwoServices: the first by name has it, in whatever order they come, and the other once that goes.
func TestOneFrontendOfTwoServices(t *testing.T) {
	shared := func(ip string) func(*model.Port) {
		return func(p *model.Port) { p.ClusterIP, p.ExternalIPs = netip.MustParseAddr(ip), addrs("192.0.2.1") }
	}
	a, b := named("a", shared("10.96.0.1")), named("b", shared("10.96.0.2"))
	fr := frontend{netip.MustParseAddrPort("192.0.2.1:80"), 6}
	for _, first := range []*model.Service{a, b} {
		d := newDesired()
		d.advance(state(first), testPlace)
		d.advance(state(a, b), testPlace)
		if by := d.servers.Claimants(fr)[0]; by != "test/a:http external IP" {
			t.Errorf("after %s came first, %q has it", first.Name, by)
		}
		touched := d.advance(state(b), testPlace)
		if by := d.servers.Claimants(fr)[0]; by != "test/b:http external IP" || !touched.servers[fr] {
			t.Errorf("after the first has gone, %q has it", by)
		}
		d.advance(state(), testPlace)
		if len(d.servers)+len(d.bound)+len(d.members)+len(d.fragments) > 0 {
			t.Error("something is left of Services that are gone")
		}
	}
}

// TestRulesAreConstant: rules look at sets that exist, in the right number of parts, and jump to chains that exist.
func TestRulesAreConstant(t *testing.T) {
	for _, f := range []lab.Family{lab.V4, lab.V6} {
		known := map[string]bool{}
		r := rules{family: f}
		for _, table := range r.tables() {
			for _, c := range table.chains {
				known[c.Name] = true
			}
		}
		for _, table := range r.tables() {
			for _, c := range table.chains {
				for _, rule := range c.Rules {
					if to := rule.Target(); !known[to] && !slices.Contains([]string{"ACCEPT", "DROP", "RETURN", "REJECT", "MARK",
						"MASQUERADE"}, to) {
						t.Errorf("%s %s jumps to %q", table.name, c.Name, to)
					}
				}
			}
			for _, j := range table.jumps {
				if !known[j.To] || j.Rule.Target() != j.To {
					t.Errorf("%s %s: %s", table.name, j.From, j.Rule)
				}
			}
		}
	}
}
