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
	d := newDesired(testTranslator)
	advance := func(s *model.State) (servers, bound, members int) {
		clear(d.servers.touched)
		clear(d.bound.touched)
		clear(d.members.touched)
		d.advance(s, testPlace)
		return len(d.servers.touched), len(d.bound.touched), len(d.members.touched)
	}
	advance(state(a, b))
	c := named("c", at("10.96.0.3"))
	if servers, bound, members := advance(state(a, b, c)); servers != 1 || bound != 1 || members != 2 {
		t.Errorf("a new Service touches %d servers, %d addresses, %d members", servers, bound, members)
	}
	if servers, bound, members := advance(state(a, b, c)); servers+bound+members > 0 {
		t.Errorf("no change touches %d servers, %d addresses, %d members", servers, bound, members)
	}
	if servers, _, _ := advance(state(b, c)); servers != 1 || len(d.servers.Ledger) != 2 || len(d.Fragments()) != 2 {
		t.Errorf("a Service that goes touches %d servers", servers)
	}
}

// TestNodeAddressComes: NodePorts are served on an address that the node gets later; a ClusterIP that the node gets is
// no longer kept on the device.
func TestNodeAddressComes(t *testing.T) {
	s := state(named("a", func(p *model.Port) { p.NodePort, p.ClusterIP = 30080, addrs("192.0.2.1")[0] }))
	d := newDesired(testTranslator)
	d.advance(s, testPlace)
	late := testPlace
	late.own = append(slices.Clone(late.own), addrs("192.0.2.1")...)
	late.nodePorts = late.own
	d.advance(s, late)
	if nodePort := (frontend{netip.MustParseAddrPort("192.0.2.1:30080"), 6}); len(d.servers.Ledger[nodePort]) == 0 ||
		!d.servers.touched[nodePort] {
		t.Errorf("%s is not served", nodePort)
	}
	if a := addrs("192.0.2.1")[0]; len(d.bound.Ledger[a]) > 0 || !d.bound.touched[a] {
		t.Errorf("%s is to be on the device still", a)
	}
}

// TestOneFrontendOfTwoServices: the first Service by name wins, in any order of creation, and the other takes over when
// it is deleted.
func TestOneFrontendOfTwoServices(t *testing.T) {
	shared := func(ip string) func(*model.Port) {
		return func(p *model.Port) { p.ClusterIP, p.ExternalIPs = netip.MustParseAddr(ip), addrs("192.0.2.1") }
	}
	a, b := named("a", shared("10.96.0.1")), named("b", shared("10.96.0.2"))
	fr := frontend{netip.MustParseAddrPort("192.0.2.1:80"), 6}
	for _, first := range []*model.Service{a, b} {
		d := newDesired(testTranslator)
		d.advance(state(first), testPlace)
		d.advance(state(a, b), testPlace)
		if by := d.servers.Claimants(fr)[0]; by != "test/a:http external IP" {
			t.Errorf("after %s came first, %q has it", first.Name, by)
		}
		clear(d.servers.touched)
		d.advance(state(b), testPlace)
		if by := d.servers.Claimants(fr)[0]; by != "test/b:http external IP" || !d.servers.touched[fr] {
			t.Errorf("after the first has gone, %q has it", by)
		}
		d.advance(state(), testPlace)
		if len(d.servers.Ledger)+len(d.bound.Ledger)+len(d.members.Ledger)+len(d.Fragments()) > 0 {
			t.Error("something is left of Services that are gone")
		}
	}
}

// TestRulesAreConstant: rules match existing sets, with the right number of fields, and jump to existing chains.
func TestRulesAreConstant(t *testing.T) {
	for _, f := range []lab.Family{lab.V4, lab.V6} {
		known := map[string]bool{chainTranslations: true}
		r := rules{family: f, mark: 0x4000}
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
