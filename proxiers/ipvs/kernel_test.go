package ipvs

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/proxiers/internal/ipset"
	"github.com/viplab/viplab/proxiers/internal/proxiertest"
	"github.com/viplab/viplab/proxiers/internal/xtables"
	"github.com/viplab/viplab/suite/spec"
)

// TestIncrementalEqualsFresh: the kernel takes everything, and however a state was reached, it is that of a proxier which
// starts with it.
func TestIncrementalEqualsFresh(t *testing.T) {
	proxiertest.FewerChecks(t, "3")
	start(t, proxiertest.UpNode(t, lab.V4, lab.V6)) // skips where it cannot run
	rapid.Check(t, func(rt *rapid.T) {
		in := start(t, proxiertest.UpNode(t, lab.V4, lab.V6))
		s := proxiertest.Random(rt)
		proxiertest.Apply(rt, in, s)
		for range 3 {
			s = proxiertest.Change(rt, s)
			proxiertest.Apply(rt, in, s)
		}
		fresh := start(t, proxiertest.UpNode(t, lab.V4, lab.V6))
		proxiertest.Apply(rt, fresh, s)
		if got, want := contents(rt, in), contents(rt, fresh); !slices.Equal(got, want) {
			expectLines(t, "step by step", got, want)
			rt.Fatal("it is not what it would be at once")
		}
		proxiertest.Stop(rt, in)
		proxiertest.Stop(rt, fresh)
	})
}

// TestRestart: a proxier that finds what a former one has left takes over, removes what is out of date, and leaves alone
// what others have made, as does Stop.
func TestRestart(t *testing.T) {
	node := proxiertest.UpNode(t, lab.V4, lab.V6)
	first := start(t, node)
	nothing := contents(t, first)
	makeForeign(t, first)
	theirs := contents(t, first)
	proxiertest.Apply(t, first, proxiertest.Cluster(20, 2))
	// Backends that were about to go when the former life ended, one of them wanted again.
	servers := first.families[0].kernel.servers
	for _, weightless := range []string{"10.244.0.1:8080", "10.244.0.40:8080"} {
		for fr, v := range servers.have {
			if _, there := v.weights[netip.MustParseAddrPort(weightless)]; there {
				if err := servers.handle.UpdateDestination(servers.service(fr, 0), destination(netip.MustParseAddrPort(weightless), 0)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}

	second := start(t, node)
	proxiertest.Apply(t, second, proxiertest.Cluster(3, 2))
	fresh := start(t, proxiertest.UpNode(t, lab.V4, lab.V6))
	makeForeign(t, fresh)
	proxiertest.Apply(t, fresh, proxiertest.Cluster(3, 2))
	expectLines(t, "after a restart", contents(t, second), contents(t, fresh))
	third := start(t, node) // it stops without ever having applied anything
	for _, in := range []*instance{third, fresh} {
		spy := spyOn(t, in)
		proxiertest.Stop(t, in)
		expectLines(t, "after Stop", spy(), theirs)
	}
	if len(nothing) == 0 || slices.Equal(nothing, theirs) {
		t.Errorf("what others made does not show: %v", theirs)
	}
}

// makeForeign makes a virtual server, a set and a rule that are none of ours.
func makeForeign(t *testing.T, in *instance) {
	t.Helper()
	k := in.families[0].kernel
	theirs := frontend{netip.MustParseAddrPort("192.0.2.200:80"), unix.IPPROTO_TCP}
	set := ipset.Set{Name: "THEIRS", Type: ipset.IP, Family: lab.V4}
	tx := &xtables.Transaction{Table: xtables.Mangle}
	tx.Insert("OUTPUT", xtables.NewRule(xtables.Comment("theirs"), xtables.InSet(set.Name, "dst"), xtables.Accept))
	for _, err := range []error{
		k.servers.handle.NewService(k.servers.service(theirs, 0)),
		k.servers.handle.NewDestination(k.servers.service(theirs, 0), destination(netip.MustParseAddrPort("192.0.2.1:80"), 0)),
		k.sets.conn.Create(set),
		k.programs.Restore(t.Context(), tx),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestHealing: what was taken away behind the proxier's back is there again after the next change.
func TestHealing(t *testing.T) {
	in := start(t, proxiertest.UpNode(t, lab.V4))
	s := proxiertest.Cluster(3, 2)
	proxiertest.Apply(t, in, s)
	k := in.families[0].kernel
	if err := k.servers.handle.Flush(); err != nil {
		t.Fatal(err)
	}
	less := *s
	less.EndpointSlices = slices.Clone(s.EndpointSlices)
	_, less.EndpointSlices[0] = proxiertest.Simple(0, 1, lab.V4)
	proxiertest.Apply(t, in, &less)
	fresh := start(t, proxiertest.UpNode(t, lab.V4))
	proxiertest.Apply(t, fresh, &less)
	expectLines(t, "healed", contents(t, in), contents(t, fresh))
}

// TestFlushedRules: after somebody has flushed the firewall, the next change brings the rules back.
func TestFlushedRules(t *testing.T) {
	node := proxiertest.UpNode(t, lab.V4)
	in := start(t, node)
	proxiertest.Apply(t, in, proxiertest.Cluster(3, 2))
	for _, script := range []string{"flush ruleset", "flush chain ip nat KUBE-POSTROUTING", "flush chain ip filter INPUT"} {
		if err := node.Host.NS.Run(exec.CommandContext(t.Context(), "nft", script)); err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			proxiertest.Apply(t, in, proxiertest.Cluster(4+n, 2))
		}
		fresh := start(t, proxiertest.UpNode(t, lab.V4))
		proxiertest.Apply(t, fresh, proxiertest.Cluster(5, 2))
		expectLines(t, "after "+script, contents(t, in), contents(t, fresh))
	}
}

// TestRefusedEndpoint: an address that the kernel never sends to does not keep others from being served.
func TestRefusedEndpoint(t *testing.T) {
	in := start(t, proxiertest.UpNode(t, lab.V4))
	s := proxiertest.Cluster(2, 2)
	broken := s.EndpointSlices[0].DeepCopy()
	broken.Endpoints = append(broken.Endpoints, discoveryv1.Endpoint{Addresses: []string{"255.255.255.255"}})
	s.EndpointSlices[0] = broken
	proxiertest.Apply(t, in, s)
	fresh := start(t, proxiertest.UpNode(t, lab.V4))
	proxiertest.Apply(t, fresh, proxiertest.Cluster(2, 2))
	expectLines(t, "with a broken endpoint", contents(t, in), contents(t, fresh))
}

// TestChangesRunNoProgram: once the rules are written, changes are netlink messages alone.
func TestChangesRunNoProgram(t *testing.T) {
	in := start(t, proxiertest.UpNode(t, lab.V4, lab.V6))
	proxiertest.Apply(t, in, proxiertest.Cluster(2, 2))
	proxiertest.Apply(t, in, proxiertest.Cluster(4, 3)) // each family has seen the other's rules come, and has looked after its own
	for n := range 4 {
		proxiertest.Idle(t, in, proxiertest.Cluster(n, 3))
	}
}

func TestSysctls(t *testing.T) {
	keys := []string{
		"net.ipv4.vs.conntrack", "net.ipv4.vs.expire_nodest_conn", "net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.all.arp_announce",
	}
	for _, c := range []struct {
		config spec.ProxyConfig
		want   string
	}{
		{spec.ProxyConfig{}, "1 1 0 0"},
		{spec.ProxyConfig{IPVSStrictARP: true}, "1 1 1 2"},
	} {
		node := proxiertest.UpNode(t, lab.V4, lab.V6)
		node.Config = c.config
		read := func() string {
			var values []string
			for _, key := range keys {
				value, err := node.Host.Sysctl(key)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, value)
			}
			return strings.Join(values, " ")
		}
		in := start(t, node)
		if got := read(); got != c.want {
			t.Errorf("%+v, started: got %s, want %s", c.config, got, c.want)
		}
		proxiertest.Stop(t, in)
		if got := read(); got != "0 0 0 0" {
			t.Errorf("%+v, stopped: got %s, want what it was, 0 0 0 0", c.config, got)
		}
	}
}

// TestLateAddress: an address that the node gets while the proxier runs serves NodePorts; those of Services never do.
func TestLateAddress(t *testing.T) {
	node := proxiertest.UpNode(t, lab.V4)
	in := start(t, node)
	s := proxiertest.Cluster(1, 1)
	s.Services[0].Spec.Type, s.Services[0].Spec.Ports[0].NodePort = "NodePort", 30080
	proxiertest.Apply(t, in, s)
	for _, step := range []struct{ change, want string }{
		{"+192.168.7.11/32", "TCP 192.168.7.11:30080"},
		{"+192.168.8.11/32", "TCP 192.168.7.11:30080 TCP 192.168.8.11:30080"},
		{"-192.168.7.11/32", "TCP 192.168.8.11:30080"},
	} {
		proxiertest.Readdress(t, node, step.change)
		proxiertest.Apply(t, in, s)
		var got []string
		for _, fr := range slices.SortedFunc(maps.Keys(in.families[0].kernel.servers.have), frontend.compare) {
			if fr.at.Port() == 30080 {
				got = append(got, fr.String())
			}
		}
		if text := strings.Join(got, " "); text != step.want {
			t.Errorf("after a change of %s: NodePorts answer on %q, want %q", step.change, text, step.want)
		}
	}
}

// contents are all virtual servers, addresses, sets and rules of an instance's node, whosoever they are.
func contents(t proxiertest.Failer, in *instance) []string {
	var out []string
	for _, f := range in.families {
		out = append(out, look(t, f.kernel)...)
	}
	return out
}

// spyOn makes contents possible when the instance has stopped.
func spyOn(t *testing.T, in *instance) func() []string {
	var all []*kernel
	for _, f := range in.families {
		k, err := open(in.node.Host.NS, f.kernel.rules, "rr", t.TempDir(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { k.close() })
		all = append(all, k)
	}
	return func() []string {
		var out []string
		for _, k := range all {
			out = append(out, look(t, k)...)
		}
		return out
	}
}

func look(t proxiertest.Failer, k *kernel) []string {
	out := []string{k.family().String()}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	services, err := k.servers.handle.GetServices()
	must(err)
	for _, v := range services {
		if v.AddressFamily != k.servers.addressFamily() {
			continue
		}
		destinations, err := k.servers.handle.GetDestinations(v)
		must(err)
		out = append(out, describeService(v, destinations))
	}
	for id := range setCount {
		entries, err := k.sets.conn.Entries(id.in(k.family()))
		must(err)
		for _, e := range entries {
			out = append(out, id.nameIn(k.family())+" "+e.String())
		}
	}
	if link, err := k.device.ns.Netlink().LinkByName(deviceName); err == nil {
		d := &device{ns: k.device.ns, family: k.family(), link: link}
		must(d.list())
		for a := range d.have {
			out = append(out, deviceName+" "+a.String())
		}
	}
	for _, table := range []xtables.TableName{xtables.Mangle, xtables.Filter, xtables.NAT} {
		saved, err := k.programs.Save(t.Context(), table)
		must(err)
		for name, rules := range saved.Chains {
			for i, r := range rules {
				out = append(out, fmt.Sprintf("%s %s %d %s", table, name, i, r))
			}
		}
	}
	slices.Sort(out)
	return out
}

func describeService(v *ipvs.Service, all []*ipvs.Destination) string {
	var to []string
	for _, d := range all {
		to = append(to, fmt.Sprintf("%s:%d weight %d", d.Address, d.Port, d.Weight))
	}
	slices.Sort(to)
	return fmt.Sprintf("%d %s:%d %s %#x %d -> %s", v.Protocol, v.Address, v.Port, v.SchedName, v.Flags&flagsOfOurs, v.Timeout, strings.Join(to, ", "))
}
