// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/knftables"

	"github.com/viplab/viplab/internal/proxiers/nft"
	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// TestIncrementalEqualsFresh: the kernel accepts all transactions, and after any sequence of changes it holds the same
// table as after a start with the last state.
func TestIncrementalEqualsFresh(t *testing.T) {
	proxiertest.FewerChecks(t, "8")
	node := func() spec.Node { return serviceRanges(proxiertest.Node(t, lab.V4, lab.V6)) }
	start(t, node()) // skips where it cannot run
	rapid.Check(t, func(rt *rapid.T) {
		in := start(t, node())
		s := proxiertest.Random(rt)
		proxiertest.Apply(rt, in, s)
		for range 3 {
			s = proxiertest.Change(rt, s)
			proxiertest.Apply(rt, in, s)
			fresh := start(t, node())
			proxiertest.Apply(rt, fresh, s)
			if got, want := kernelRules(rt, in), kernelRules(rt, fresh); got != want {
				rt.Fatalf("step by step (-) and at once (+)\n%s", difference(got, want))
			}
			proxiertest.Stop(rt, fresh)
		}
		proxiertest.Stop(rt, in)
		if left := kernelRules(rt, in); left != "" {
			rt.Fatalf("left behind after Stop:\n%s", left)
		}
	})
}

func serviceRanges(n spec.Node) spec.Node {
	n.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}
	return n
}

// TestRestart: a proxier that finds the table of a former one takes over, and what is out of date is gone. Tables of
// others are left alone.
func TestRestart(t *testing.T) {
	for name, former := range map[string]func(t *testing.T, in *instance){
		"its own": func(t *testing.T, in *instance) { proxiertest.Apply(t, in, proxiertest.Cluster(120, 2)) },
		"another": func(t *testing.T, in *instance) {
			// Names that we use, for something else: the first transaction fails.
			runNFT(t, in, `
				add table ip kube-proxy
				add chain ip kube-proxy old
				add rule ip kube-proxy old drop
				add chain ip kube-proxy pick-1
				add rule ip kube-proxy pick-1 numgen random mod 2 vmap { 0 : goto old, 1 : accept }
				add map ip kube-proxy service-ips { type inet_service : verdict ; }
				add element ip kube-proxy service-ips { 80 : goto pick-1 }
				add chain ip kube-proxy services { type filter hook output priority 5 ; }
				add rule ip kube-proxy services tcp dport vmap @service-ips
				add chain ip kube-proxy nat-prerouting { type filter hook input priority 7 ; policy drop ; }
				add set ip kube-proxy cluster-ips { type ipv6_addr ; }`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := proxiertest.Node(t, lab.V4)
			first := start(t, node)
			former(t, first)
			runNFT(t, first, `
				add table ip theirs
				add chain ip theirs c { type nat hook prerouting priority -100 ; }
				add rule ip theirs c tcp dport 80 dnat to 192.0.2.1`)

			second := start(t, node)
			proxiertest.Apply(t, second, proxiertest.Cluster(3, 2))
			fresh := start(t, proxiertest.Node(t, lab.V4))
			proxiertest.Apply(t, fresh, proxiertest.Cluster(3, 2))
			if got, want := kernelRules(t, second), kernelRules(t, fresh); got != want {
				t.Errorf("after a restart (-), want (+)\n%s", difference(got, want))
			}
			proxiertest.Stop(t, second)
			if left := runNFT(t, second, "list tables"); strings.TrimSpace(left) != "table ip theirs" {
				t.Errorf("after Stop there are %q, want only the table that is not ours", left)
			}
		})
	}
}

// TestWays: all ways to write everything give the same table, also if the table held something else.
func TestWays(t *testing.T) {
	s := proxiertest.Cluster(300, 3) // more than a batch of anything
	for i, svc := range s.Services {
		if i%100 == 7 {
			svc.Spec.SessionAffinity = "ClientIP"
		}
	}
	in := start(t, proxiertest.Node(t, lab.V4))
	proxiertest.Apply(t, in, s)
	want := kernelRules(t, in)
	f := in.families[0]
	former, err := f.table.Holdings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, all := newLedger().update(model.NewBuilder("n1", lab.V4).Build(s), renderer{settings: f.settings})
	ways := f.ways(former, all)
	if len(ways) != 3 || len(ways[2]) < 5 {
		t.Fatalf("%d ways, the last one of %d transactions", len(ways), len(ways[len(ways)-1]))
	}
	for i, way := range ways {
		if err := f.table.RunAny(t.Context(), way); err != nil {
			t.Errorf("way %d: %v", i+1, err)
		}
		if got := kernelRules(t, in); got != want {
			t.Errorf("way %d: got (-), want (+)\n%s", i+1, difference(got, want))
		}
	}
	for _, tx := range ways[2] {
		if n := tx.NumOperations(); n > batch {
			t.Errorf("a batch of %d operations", n)
		}
	}
}

// TestRestartKeepsChainsAndMaps: a packet that is on its way while the table is rewritten finds what its rules name.
func TestRestartKeepsChainsAndMaps(t *testing.T) {
	node := proxiertest.Node(t, lab.V4)
	s := proxiertest.Cluster(3, 2)
	s.Services[1].Spec.SessionAffinity = "ClientIP"
	handles := func(in *instance) []string {
		var all bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "nft", "--handle", "list", "table", "ip", "kube-proxy")
		cmd.Stdout = &all
		if err := in.families[0].table.NS.Run(cmd); err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`(?m)^\t(chain|map|set) .*# handle \d+$`).FindAllString(all.String(), -1)
	}
	in := start(t, node)
	proxiertest.Apply(t, in, s)
	before := handles(in)
	again := start(t, node)
	proxiertest.Apply(t, again, s)
	if after := handles(again); len(before) < 20 || !slices.Equal(before, after) {
		t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// TestRestartAddsNewChainsFirst: a Service that came while no proxier ran has its chains, with their rules, before the
// elements that lead to them.
func TestRestartAddsNewChainsFirst(t *testing.T) {
	node := proxiertest.Node(t, lab.V4)
	proxiertest.Apply(t, start(t, node), proxiertest.Cluster(1, 1))
	in := start(t, node)
	f := in.families[0]
	former, err := f.table.Holdings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next := proxiertest.Cluster(2, 1)
	next.Services[1].Spec.SessionAffinity = "ClientIP" // has chains of its own
	_, all := newLedger().update(model.NewBuilder("n1", lab.V4).Build(next), renderer{settings: f.settings})
	way := f.ways(former, all)[0]
	if len(way) != 2 {
		t.Fatalf("%d transactions, want one with the new chains and one with the rest", len(way))
	}
	if err := f.table.Run(t.Context(), way[0]); err != nil {
		t.Fatal(err)
	}
	table := runNFT(t, in, "list table ip kube-proxy")
	if !strings.Contains(table, "dnat to 10.244.0.2:8080") || strings.Contains(table, "10.96.0.2") {
		t.Errorf("the first transaction adds other things than the chains of the new Service:\n%s", table)
	}
}

// TestClientsAreRemembered over a restart, and forgotten with the endpoint.
func TestClientsAreRemembered(t *testing.T) {
	node := proxiertest.Node(t, lab.V4)
	s := proxiertest.Cluster(1, 2)
	s.Services[0].Spec.SessionAffinity = "ClientIP"
	in := start(t, node)
	proxiertest.Apply(t, in, s)
	clients := func(ep string) string {
		id := model.PortID{Namespace: "test", Name: "svc-00000", Port: "http", Protocol: "TCP"}
		return affinitySet(&model.Port{ID: id, Affinity: 3 * time.Hour}, netip.MustParseAddrPort(ep))
	}
	kept, lost := clients("10.244.0.1:8080"), clients("10.244.0.2:8080")
	for _, set := range []string{kept, lost} {
		runNFT(t, in, "add element ip kube-proxy "+set+" { 198.51.100.7 }")
	}
	again := start(t, node)
	for _, endpoints := range []int{2, 1} {
		next := *s
		next.EndpointSlices = slices.Clone(s.EndpointSlices)
		_, next.EndpointSlices[0] = proxiertest.Simple(0, endpoints, lab.V4)
		proxiertest.Apply(t, again, &next)
		if got := runNFT(t, again, "list set ip kube-proxy "+kept); !strings.Contains(got, "198.51.100.7") {
			t.Errorf("the client is forgotten:\n%s", got)
		}
	}
	if got := kernelRules(t, again); strings.Contains(got, lost) {
		t.Errorf("the clients of an endpoint that is gone are still there:\n%s", got)
	}
}

// TestClientsKeepTheirTime: when the timeout changes, also over a restart, a client is remembered for the new time since
// its last connection.
func TestClientsKeepTheirTime(t *testing.T) {
	for f, addr := range map[lab.Family]string{lab.V4: "198.51.100.7", lab.V6: "2001:db8::7"} {
		node := proxiertest.Node(t, f)
		service, slice := proxiertest.Simple(0, 1, f)
		apply := func(in *instance, timeout int32) (set string) {
			next := service.DeepCopy()
			next.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			next.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout},
			}
			proxiertest.Apply(t, in, &store.Snapshot{Services: []*corev1.Service{next},
				EndpointSlices: []*discoveryv1.EndpointSlice{slice}})
			for name := range strings.FieldsSeq(kernelRules(t, in)) {
				if strings.HasPrefix(name, prefixAffinity) {
					return name
				}
			}
			t.Fatal("there is no set of clients")
			return ""
		}
		in := start(t, node)
		runNFT(t, in, "add element "+nft.Word(f)+" kube-proxy "+apply(in, 10800)+" { "+addr+" expires 10000s }")
		for _, step := range []struct {
			timeout int32
			left    time.Duration // zero if it is forgotten
		}{{86400, 85600 * time.Second}, {1800, 1000 * time.Second}, {10, 0}} {
			if step.timeout == 1800 {
				in = start(t, node)
			}
			clients, err := in.families[0].clients(apply(in, step.timeout))
			if err != nil {
				t.Fatal(err)
			}
			left := clients[netip.MustParseAddr(addr)]
			if left > step.left || left < step.left-time.Minute {
				t.Errorf("%s, timeout %d s: the client has %v left, not %v", f, step.timeout, left, step.left)
			}
		}
	}
}

// TestHealing: the next change restores a table that another program has deleted or changed.
func TestHealing(t *testing.T) {
	in := start(t, proxiertest.Node(t, lab.V4))
	proxiertest.Apply(t, in, proxiertest.Cluster(2, 2))
	runNFT(t, in, "delete table ip kube-proxy")
	proxiertest.Apply(t, in, proxiertest.Cluster(3, 2))
	fresh := start(t, proxiertest.Node(t, lab.V4))
	proxiertest.Apply(t, fresh, proxiertest.Cluster(3, 2))
	if got, want := kernelRules(t, in), kernelRules(t, fresh); got != want {
		t.Errorf("healed (-), want (+)\n%s", difference(got, want))
	}
}

// TestUnchangedWritesNothing: an unchanged snapshot runs no program.
func TestUnchangedWritesNothing(t *testing.T) {
	in := start(t, proxiertest.Node(t, lab.V4))
	s := proxiertest.Cluster(2, 2)
	proxiertest.Apply(t, in, s)
	proxiertest.Again(t, in, s)
}

// TestAddresses: NodePorts are served on the node's addresses inside the ranges, and on no others.
func TestAddresses(t *testing.T) {
	node := proxiertest.Node(t, lab.V4)
	node.Config.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("192.168.7.0/24"),
		netip.MustParsePrefix("127.0.0.0/8")}
	in := start(t, node)
	s := proxiertest.Cluster(1, 1)
	s.Services[0].Spec.Type, s.Services[0].Spec.Ports[0].NodePort = "NodePort", 30080
	for _, step := range []struct {
		change string
		want   []string
	}{
		{"+127.0.0.1/8", nil},
		{"+192.168.7.11/32", []string{"192.168.7.11"}},
		{"+192.168.8.11/32", []string{"192.168.7.11"}},
		{"+192.168.7.12/32", []string{"192.168.7.11", "192.168.7.12"}},
		{"-192.168.7.11/32", []string{"192.168.7.12"}},
	} {
		proxiertest.Readdress(t, node, step.change)
		proxiertest.Apply(t, in, s)
		var got []string
		for line := range strings.Lines(canonical(runNFT(t, in, "list map ip kube-proxy "+mapServiceIPs))) {
			if a, _, ok := strings.Cut(strings.TrimSpace(line), " . tcp . 30080 "); ok {
				got = append(got, a)
			}
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("after a change of %s: NodePorts answer on %q, want %q", step.change, got, step.want)
		}
	}
}

// TestLongNames: the longest names that Kubernetes allows fit into those of chains and sets, and into comments.
func TestLongNames(t *testing.T) {
	in := start(t, proxiertest.Node(t, lab.V6))
	s := proxiertest.Cluster(1, 1)
	svc, sl := s.Services[0], s.EndpointSlices[1]
	svc.Namespace, svc.Name = strings.Repeat("n", 63), strings.Repeat("s", 63)
	svc.Spec.Ports[0].Name = strings.Repeat("p", 15)
	svc.Spec.SessionAffinity = "ClientIP"
	sl.Namespace, sl.Labels["kubernetes.io/service-name"] = svc.Namespace, svc.Name
	sl.Ports[0].Name = &svc.Spec.Ports[0].Name
	sl.Endpoints[0].Addresses[0] = "fd00:1111:2222:3333:4444:5555:6666:7777"
	proxiertest.Apply(t, in, s)
	if got := kernelRules(t, in); !strings.Contains(got, "dnat to [fd00:1111:2222:3333:4444:5555:6666:7777]:8080") {
		t.Errorf("the endpoint is not served:\n%s", got)
	}
}

// TestChangeIsSmall: the change for a removed endpoint does not grow with the number of Services.
func TestChangeIsSmall(t *testing.T) {
	size := func(n int) int {
		b, r := model.NewBuilder("n1", lab.V4), renderer{settings: settings{family: lab.V4}}
		s := proxiertest.Cluster(n, 3)
		l := newLedger()
		l.update(b.Build(s), r)
		next := *s
		next.EndpointSlices = slices.Clone(s.EndpointSlices)
		_, next.EndpointSlices[0] = proxiertest.Simple(0, 2, lab.V4)
		tx := knftables.NewFake(knftables.IPv4Family, tableName).NewTransaction()
		gone, come := l.update(b.Build(&next), r)
		nft.Write(tx, gone, come)
		return tx.NumOperations()
	}
	// Three endpoints numbered 0, 1, 2 become two: one number goes, and the frontend leads to another chain.
	if few, many := size(2), size(500); few != many || few == 0 || few > 6 {
		t.Errorf("%d operations with 2 Services, and %d with 500", few, many)
	}
}

// runNFT runs a script and returns its output.
func runNFT(t *testing.T, in *instance, script string) string {
	t.Helper()
	var out, stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), "nft", "-f", "-")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(script), &out, &stderr
	if err := in.families[0].table.NS.Run(cmd); err != nil {
		t.Fatal(fmt.Errorf("%s: %w: %s", script, err, stderr.String()))
	}
	return out.String()
}
