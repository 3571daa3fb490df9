// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/proxiers/model"
)

// TestIncrementalEqualsFresh: the kernel accepts all rules, and after any sequence of changes it holds the same rules
// as after a start with the last state. Every rule leads to a relay that is open, and Stop leaves nothing.
func TestIncrementalEqualsFresh(t *testing.T) {
	proxiertest.FewerChecks(t, "8")
	rapid.Check(t, func(rt *rapid.T) {
		in := start(t, proxiertest.UpNode(t, lab.V4, lab.V6))
		s := proxiertest.Random(rt)
		proxiertest.Apply(rt, in, s)
		for range 4 {
			s = proxiertest.Change(rt, s)
			proxiertest.Apply(rt, in, s)
			fresh := start(t, proxiertest.UpNode(t, lab.V4, lab.V6))
			proxiertest.Apply(rt, fresh, s)
			if got, want := kernelRules(rt, in), kernelRules(rt, fresh); !slices.Equal(got, want) {
				rt.Fatalf("step by step\n%s\n\nat once\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			leadsToRelays(rt, in)
			if got, want := socketsOf(in), socketsOf(fresh); got != want {
				rt.Fatalf("step by step %+v, at once %+v", got, want)
			}
			proxiertest.Stop(rt, fresh)
		}
		proxiertest.Stop(rt, in)
		cleanNode(rt, in)
	})
}

// tally is the number of sockets of an instance.
type tally struct{ portals, open, claims int }

func socketsOf(in *instance) (n tally) {
	for _, f := range in.families {
		n.portals += len(f.portals.open)
		n.claims += len(f.portals.claims.held)
		for _, at := range f.portals.open {
			for _, r := range []*relay{at.cluster, at.local} {
				if r != nil && r.listener != nil {
					n.open++
				}
			}
		}
	}
	return n
}

// leadsToRelays checks that the rules lead to open relays of the Service in their comment, and to all of them.
func leadsToRelays(t proxiertest.Failer, in *instance) {
	for _, f := range in.families {
		saved, err := f.programs.Save(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		led := formerPorts(saved.Of(xtables.NAT), f.portals.at)
		for id, at := range f.portals.open {
			for name, r := range map[string]*relay{clusterWay(id): at.cluster, localWay(id): at.local} {
				switch {
				case r == nil || r.listener == nil:
					if led[name] != 0 {
						t.Fatalf("%s: rules lead to port %d, and it is shut", name, led[name])
					}
				case led[name] != r.port && !unused(f, id):
					t.Fatalf("%s: rules lead to port %d, and it is at %d", name, led[name], r.port)
				}
				delete(led, name)
			}
		}
		if len(led) > 0 {
			t.Fatalf("rules lead to relays that are not there: %v", led)
		}
	}
}

// unused reports whether a port has a relay that no rule needs: under internal policy Local, the relay for all
// endpoints serves the other frontends, whose NodePort another process may have bound.
func unused(f *family, id model.PortID) bool { return f.portals.open[id].taken != "" }

// cleanNode checks that Stop leaves nothing behind.
func cleanNode(t proxiertest.Failer, in *instance) {
	if left := kernelRules(t, in); len(left) > 0 {
		t.Fatalf("left behind after Stop:\n%s", strings.Join(left, "\n"))
	}
	if n := socketsOf(in); n != (tally{}) {
		t.Fatalf("left behind after Stop: %+v", n)
	}
	for _, f := range in.families {
		local, err := nodeaddr.NewWatcher(f.ns, f.ip, "").Local()
		if err != nil || slices.Contains(local, relayAddrs[lab.V6]) {
			t.Fatalf("left behind after Stop: %v (%v)", local, err)
		}
	}
}

// TestRestart: a proxier that finds the rules of a killed one reopens its relays, changes what is out of date, and
// leaves the rules of others alone, as does Stop.
func TestRestart(t *testing.T) {
	node := proxiertest.UpNode(t, lab.V4)
	foreign := []*xtables.Transaction{foreignRules(xtables.Filter, refused), foreignRules(xtables.NAT, portalsHost)}
	first := start(t, node)
	if err := first.families[0].programs.Restore(t.Context(), foreign...); err != nil {
		t.Fatal(err)
	}
	theirs := kernelRules(t, first)
	proxiertest.Apply(t, first, proxiertest.Cluster(20, 2))
	was := rulesWithPorts(t, first)
	kill(first)

	second := start(t, node)
	proxiertest.Apply(t, second, proxiertest.Cluster(20, 2))
	if got := rulesWithPorts(t, second); !slices.Equal(got, was) {
		t.Errorf("after a restart\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(was, "\n"))
	}
	kill(second)

	third := start(t, node)
	proxiertest.Apply(t, third, proxiertest.Cluster(3, 2))
	leadsToRelays(t, third)
	for _, r := range rulesWithPorts(t, third) {
		if strings.Contains(r, "KUBE-PORTALS-HOST") && strings.Contains(r, "DNAT") && !slices.Contains(was, r) {
			t.Errorf("a relay has moved: %s", r)
		}
	}
	proxiertest.Stop(t, third)
	if got := kernelRules(t, third); !slices.Equal(got, theirs) {
		t.Errorf("after Stop\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(theirs, "\n"))
	}
}

// foreignRules are rules of others that jump to a chain of ours, which keeps it alive, empty.
func foreignRules(table xtables.TableName, to int) *xtables.Transaction {
	tx := &xtables.Transaction{Table: table}
	tx.Write(chainNames[to], nil)
	tx.Write("MINE", []xtables.Rule{
		xtables.NewRule(xtables.Comment(`-j KUBE-PORTALS-HOST "quoted"`), xtables.Return),
		xtables.NewRule(xtables.Comment("a chain of theirs that needs one of ours"), xtables.Jump(chainNames[to])),
	})
	tx.Insert("OUTPUT", xtables.NewRule(xtables.Comment("mine"), xtables.Jump("MINE")))
	return tx
}

// TestHealing: the next change restores rules that another program has deleted, and leaks no socket.
func TestHealing(t *testing.T) {
	in := start(t, proxiertest.UpNode(t, lab.V4))
	proxiertest.Apply(t, in, proxiertest.Cluster(2, 2))
	f := in.families[0]
	saved, err := f.programs.Save(t.Context())
	if err == nil {
		err = f.programs.Restore(t.Context(), owned.Removal(xtables.NAT, saved.Of(xtables.NAT))...)
	}
	if err != nil {
		t.Fatal(err)
	}
	proxiertest.Apply(t, in, proxiertest.Cluster(4, 2))
	proxiertest.Apply(t, in, proxiertest.Cluster(3, 2))
	leadsToRelays(t, in)
	if n := socketsOf(in); n.open != 3 || n.portals != 3 {
		t.Errorf("for 3 Services: %+v", n)
	}
	fresh := start(t, proxiertest.UpNode(t, lab.V4))
	proxiertest.Apply(t, fresh, proxiertest.Cluster(3, 2))
	if got, want := kernelRules(t, in), kernelRules(t, fresh); !slices.Equal(got, want) {
		t.Errorf("healed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestUnchangedWritesNothing: neither an unchanged snapshot nor a new endpoint runs a program.
func TestUnchangedWritesNothing(t *testing.T) {
	in := start(t, proxiertest.UpNode(t, lab.V4))
	s := proxiertest.Cluster(2, 2)
	proxiertest.Apply(t, in, s)
	proxiertest.Again(t, in, s)
	fewer := *s
	fewer.EndpointSlices = slices.Clone(s.EndpointSlices)
	_, fewer.EndpointSlices[0] = proxiertest.Simple(0, 1, lab.V4)
	proxiertest.Idle(t, in, &fewer)
	if got := in.families[0].portals.open[portID(s.Services[0])].cluster.balancer.size(); got != 1 {
		t.Errorf("the relay has %d endpoints", got)
	}
}

func portID(s *corev1.Service) model.PortID {
	return model.PortID{Namespace: s.Namespace, Name: s.Name, Port: s.Spec.Ports[0].Name,
		Protocol: s.Spec.Ports[0].Protocol}
}

// withNodePorts makes the Services of a cluster have NodePorts from 30000 on.
func withNodePorts(s *store.Snapshot) *store.Snapshot {
	for i, svc := range s.Services {
		svc.Spec.Type = corev1.ServiceTypeNodePort
		svc.Spec.Ports[0].NodePort = int32(30000 + i)
	}
	return s
}

// TestNodePortIsHeld: no other process can bind a NodePort as long as its Service exists.
func TestNodePortIsHeld(t *testing.T) {
	eachFamily(t, func(t *testing.T, s sockets) {
		node := proxiertest.UpNode(t, s.ip)
		in := start(t, node)
		bind := func(port string) error {
			l, err := node.Host.Listen(t.Context(), s.network("tcp"), ":"+port)
			if err == nil {
				l.Close()
			}
			return err
		}
		two := withNodePorts(proxiertest.Cluster(2, 1))
		proxiertest.Apply(t, in, two)
		for _, port := range []string{"30000", "30001"} {
			if err := bind(port); !errors.Is(err, unix.EADDRINUSE) {
				t.Errorf("bind to the NodePort %s: %v", port, err)
			}
		}
		one := *two
		one.Services = two.Services[:1]
		proxiertest.Apply(t, in, &one)
		if err := bind("30000"); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("bind to the NodePort: %v", err)
		}
		if err := bind("30001"); err != nil {
			t.Errorf("its Service is gone, but %v", err)
		}
		proxiertest.Stop(t, in)
		if err := bind("30000"); err != nil {
			t.Errorf("the proxier has stopped, but %v", err)
		}
	})
}

// TestTakenNodePort: a NodePort that another process has bound is reported once. Everything else is served. Once the
// port is free, the next sync binds it.
func TestTakenNodePort(t *testing.T) {
	node := proxiertest.UpNode(t, lab.V4)
	var log strings.Builder
	node.Log = slog.New(slog.NewTextHandler(&log, nil))
	other, err := node.Host.Listen(t.Context(), "tcp4", "0.0.0.0:30001")
	if err != nil {
		t.Fatal(err)
	}
	in := start(t, node)
	s := withNodePorts(proxiertest.Cluster(3, 1))
	proxiertest.Apply(t, in, s)
	proxiertest.Apply(t, in, s)
	rules := strings.Join(kernelRules(t, in), "\n")
	for text, want := range map[string]bool{"--dport 30000": true, "--dport 30001": false, "--dport 30002": true,
		"-d 10.96.0.2/32": true} {
		if strings.Contains(rules, text) != want {
			t.Errorf("a rule with %q: want %t, in\n%s", text, want, rules)
		}
	}
	if n := strings.Count(log.String(), "service=test/svc-00001"); n != 1 || !strings.Contains(log.String(), "30001") {
		t.Errorf("reported %d times:\n%s", n, log.String())
	}
	var dump strings.Builder
	if err := in.Dump(t.Context(), &dump); err != nil {
		t.Fatal(err)
	}
	event := regexp.MustCompile(`(?m)^# Event \d\d:\d\d:\d\d Warning Service test/svc-00001 NodePortTaken: the NodePort 30001 \(TCP\) of port "http" .*address already in use`)
	if n := len(event.FindAllString(dump.String(), -1)); n != 1 || strings.Count(dump.String(), "# Event ") != 1 {
		t.Errorf("%d Events of the taken port in\n%s", n, dump.String())
	}
	if !strings.Contains(dump.String(), "# test/svc-00001:http: its NodePort is not served") {
		t.Errorf("the dump does not tell what is not served:\n%s", dump.String())
	}
	other.Close()
	proxiertest.Apply(t, in, s)
	if rules := strings.Join(kernelRules(t, in), "\n"); !strings.Contains(rules, "--dport 30001") {
		t.Errorf("the port is free, but not served:\n%s", rules)
	}
}

// TestNodePortAddresses: NodePorts are held on the addresses that serve them, as these come and go.
func TestNodePortAddresses(t *testing.T) {
	node := proxiertest.UpNode(t, lab.V4)
	node.Config.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("192.168.7.0/24")}
	in := start(t, node)
	s := withNodePorts(proxiertest.Cluster(2, 1))
	f := in.families[0]
	for _, addrs := range [][]string{{"192.168.7.11"}, {"192.168.7.11", "192.168.7.12"}, {"192.168.7.12"}, nil} {
		for _, a := range []string{"192.168.7.11", "192.168.7.12"} {
			err := removeAddress(f.ns, netip.MustParseAddr(a))
			if slices.Contains(addrs, a) {
				err = addAddress(t.Context(), f.ns, netip.MustParseAddr(a))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		proxiertest.Apply(t, in, s)
		rules := strings.Join(kernelRules(t, in), "\n")
		for _, a := range []string{"192.168.7.11", "192.168.7.12"} {
			if got, want := strings.Count(rules, "-d "+a), 6*strings.Count(strings.Join(addrs, " "), a); got != want {
				t.Errorf("with %v: %d rules for %s, not %d", addrs, got, a, want)
			}
		}
		if got, want := len(f.portals.claims.held), 2*len(addrs); got != want {
			t.Errorf("with %v: %d ports are held, not %d", addrs, got, want)
		}
	}
}

// relayPort matches the port of a relay.
var relayPort = regexp.MustCompile(`(--to-destination \S+):\d+`)

// kernelRules lists the rules in the kernel, chain by chain, without the ports of relays and without empty built-in
// chains. The rules are sorted, because the order of Services does not matter.
func kernelRules(t proxiertest.Failer, in *instance) []string {
	var out []string
	for _, r := range rulesWithPorts(t, in) {
		out = append(out, relayPort.ReplaceAllString(r, "$1"))
	}
	return out
}

func rulesWithPorts(t proxiertest.Failer, in *instance) []string {
	var out []string
	for _, f := range in.families {
		saved, err := f.programs.Save(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range []xtables.TableName{xtables.Filter, xtables.NAT} {
			chains := saved.Of(table).Chains
			for _, name := range slices.Sorted(maps.Keys(chains)) {
				rules := chains[name]
				if xtables.BuiltIn(name) && len(rules) == 0 {
					continue
				}
				if !xtables.BuiltIn(name) {
					slices.Sort(rules)
				}
				out = append(out, f.ip.String()+" "+string(table)+" :"+name)
				for _, r := range rules {
					out = append(out, f.ip.String()+" "+string(table)+" "+name+" "+string(r))
				}
			}
		}
	}
	return out
}
