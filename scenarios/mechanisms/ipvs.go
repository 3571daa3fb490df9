// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

var ipvsNeeds = []spec.Feature{spec.IPVS, spec.ClusterIP, spec.NodePort}

// ipvs returns the scenarios of what an IPVS proxier programs, and of how each scheduler picks an endpoint.
func ipvs() []spec.Scenario {
	return append(schedulers(), []spec.Scenario{
		// It has a cluster of its own, because it counts rules.
		{
			ID: "rs-ipvs-objects", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
			Needs: ipvsNeeds,
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", NodePort())},
			Steps: []spec.Step{
				{Name: "one Service", Check: EachFamily(objectsOfWeb)},
				{Name: "more Services", Check: EachFamily(rulesStay)},
			},
		},
		{
			ID:    "rs-ipvs-persistence",
			Needs: append([]spec.Feature{spec.IPVSPersistence, spec.SessionAffinity}, ipvsNeeds...),
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web", NodePort(), Affinity())},
			Steps: []spec.Step{{Check: EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
				return serversOfWeb(ctx, w, f, "-s rr", "-p 10800")
			})}},
		},
		{
			ID: "rs-ipvs-access-filter", Needs: ipvsNeeds,
			Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Service("web")},
			Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) (err error) {
				n1 := w.Lab().Node("n1")
				daemon := spec.Must(traffic.Serve(n1.NS, "daemon", nil, traffic.Port{Proto: "tcp", Number: daemonPort}))
				defer func() { err = errors.Join(err, daemon.Close()) }()
				return w.Expect(ctx,
					spec.Row{From: "c1", To: spec.HostAt("n1", daemonPort), Servers: []string{"daemon"}},
					spec.Row{From: "c1", To: spec.ClusterIPRaw("web", daemonPort), Want: spec.Refused},
					spec.Row{From: "n1", To: spec.ClusterIPRaw("web", daemonPort), Want: spec.Refused},
				)
			}}},
		},
		strictARP(), configuredTimeouts(), excludedRanges(),
	}...)
}

// strictARP has an address of each kind. (For IPv6 no node answers in any case: the device is down.)
func strictARP() spec.Scenario {
	externalIP, loadBalancer := ExternalIP(218), LoadBalancerIP(218)
	return spec.Scenario{
		ID: "rs-ipvs-strict-arp", Families: []lab.Family{lab.V4},
		Cluster: &spec.ClusterConfig{Proxy: spec.ProxyConfig{IPVSStrictARP: true}, Nodes: []string{"n1"}},
		Needs:   append([]spec.Feature{spec.LoadBalancer, spec.ExternalIPs}, ipvsNeeds...),
		Given: []store.Object{Backend("a2", "n2"),
			Service("web", LoadBalancer(), ExternalIPs(externalIP.V4, externalIP.V6))},
		Steps: []spec.Step{{
			Do:   IngressViaN1("web", loadBalancer.V4, loadBalancer.V6),
			Rows: []spec.Row{{From: "client", To: loadBalancer, Servers: []string{"a2"}}},
			Check: func(ctx context.Context, w spec.World) error {
				for _, to := range []spec.Target{spec.ClusterIPOf("web", 80), externalIP, loadBalancer} {
					spec.TryDo(NobodyAnswersFor(ctx, w, spec.Must(w.Resolve(to, lab.V4, "tcp")).Addr()))
				}
				return nil
			},
		}},
	}
}

// serversOfWeb wants virtual servers for the ClusterIP and for the NodePort on each address of n1.
func serversOfWeb(ctx context.Context, w spec.World, f lab.Family, options ...string) error {
	vip := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), f, "tcp"))
	primary := spec.Must(w.Resolve(spec.NodePortAt("n1", "web", 80), f, "tcp"))
	second := spec.Must(w.Resolve(spec.NodePortAt("n1", "web", 80).AtAddr(spec.Secondary), f, "tcp"))
	servers := virtualServers(ctx, w, "n1")
	var errs []error
	for _, at := range []netip.AddrPort{vip, primary, second} {
		errs = append(errs, servers.leadsTo(w, f, at, options...))
	}
	if at := netip.AddrPortFrom(vip.Addr(), primary.Port()); servers[at] != nil {
		errs = append(errs, fmt.Errorf("%s, the NodePort on the ClusterIP, is a virtual server", at))
	}
	return errors.Join(errs...)
}

func objectsOfWeb(ctx context.Context, w spec.World, f lab.Family) error {
	vip := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), f, "tcp"))
	primary := spec.Must(w.Resolve(spec.NodePortAt("n1", "web", 80), f, "tcp"))
	errs := []error{serversOfWeb(ctx, w, f, "-s rr")}
	for _, want := range []struct {
		argv []string
		text string
	}{
		{[]string{"ip", "-o", "address", "show", "dev", "kube-ipvs0"}, " " +
			netip.PrefixFrom(vip.Addr(), vip.Addr().BitLen()).String() + " "},
		{[]string{"ipset", "list", setName("KUBE-CLUSTER-IP", f)}, fmt.Sprintf("\n%s,tcp:80\n", vip.Addr())},
		{[]string{"ipset", "list", setName("KUBE-NODE-PORT-TCP", f)}, fmt.Sprintf("\n%d\n", primary.Port())},
		{[]string{"ipset", "list", setName("KUBE-LOOP-BACK", f)}, // a1's connections to itself are masqueraded
			fmt.Sprintf("\n%[1]s,tcp:8080,%[1]s\n", spec.Must(w.Host("a1")).Addr(f))},
	} {
		text := OutputOf(ctx, w, "n1", want.argv...)
		if !strings.Contains(text+"\n", want.text) {
			errs = append(errs, fmt.Errorf("%s: there is no %q in\n%s", strings.Join(want.argv, " "),
				strings.TrimSpace(want.text), text))
		}
	}
	return errors.Join(errs...)
}

// setName is the name of a set in a family: names have at most 31 bytes.
func setName(name string, f lab.Family) string {
	if f == lab.V6 {
		name = strings.Replace(name, "KUBE-", "KUBE-6-", 1)
	}
	return name[:min(len(name), 31)]
}

// rulesStay adds a Service of the kind there is and wants no rule more.
func rulesStay(ctx context.Context, w spec.World, f lab.Family) error {
	before := countRules(ctx, w, f)
	for i := range 3 {
		spec.MustDo(w.Apply(Service(fmt.Sprintf("more-%s-%d", f, i), Selecting("web"), NodePort())))
	}
	spec.TryDo(w.Settle(ctx))
	if after := countRules(ctx, w, f); after != before {
		return fmt.Errorf("%d iptables rules have become %d with three more Services", before, after)
	}
	return nil
}

func countRules(ctx context.Context, w spec.World, f lab.Family) int {
	n := strings.Count(saved(ctx, w, "n1", IPTables(w, f)+"-save"), "\n-A ")
	if n == 0 {
		spec.TryDo(errors.New("there are no iptables rules"))
	}
	return n
}

const daemonPort = 18095

// servers are the virtual servers for TCP of a node, as ipvsadm saves them.
type servers map[netip.AddrPort]*virtualServer

type virtualServer struct {
	options      string
	destinations []string
}

func virtualServers(ctx context.Context, w spec.World, node string) servers {
	text := OutputOf(ctx, w, node, "ipvsadm", "-Sn")
	all := servers{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 5 || words[1] != "-t" {
			continue
		}
		at, err := netip.ParseAddrPort(words[2])
		if err != nil {
			panic(spec.HarnessErrorf("%s: %w", strings.TrimSpace(line), err))
		}
		if all[at] == nil {
			all[at] = &virtualServer{}
		}
		rest := strings.Join(words[3:], " ")
		if words[0] == "-A" {
			all[at].options = rest
		} else {
			all[at].destinations = append(all[at].destinations, rest)
		}
	}
	return all
}

// leadsTo wants a virtual server that has the options and exactly the two pods as destinations.
func (s servers) leadsTo(w spec.World, f lab.Family, at netip.AddrPort, options ...string) error {
	v := s[at]
	if v == nil {
		return fmt.Errorf("%s is no virtual server", at)
	}
	var errs []error
	for _, o := range options {
		if !strings.Contains(" "+v.options+" ", " "+o+" ") {
			errs = append(errs, fmt.Errorf("%s has the options %q, without %q", at, v.options, o))
		}
	}
	var want []string
	for _, pod := range []string{"a1", "a2"} {
		want = append(want, fmt.Sprintf("-r %s -m -w 1", netip.AddrPortFrom(spec.Must(w.Host(pod)).Addr(f), 8080)))
	}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(v.destinations)); !slices.Equal(got, want) {
		errs = append(errs, fmt.Errorf("%s has the destinations %q, not %q", at, got, want))
	}
	return errors.Join(errs...)
}

// schedulers are the scenarios, one for each scheduler. Endpoints all have the same weight, so one that heeds weights
// does what the one without them does.
func schedulers() []spec.Scenario {
	return []spec.Scenario{
		standard(scheduler("rr", ipvsInTurn)),
		scheduler("wrr", ipvsInTurn),
		scheduler("lc", leastBusy),
		scheduler("wlc", leastBusy),
		scheduler("sed", leastBusy),
		scheduler("nq", leastBusy),
		scheduler("sh", bySource),
		scheduler("dh", byDestination),
		scheduler("mh", byHash),
	}
}

func scheduler(name string, h habit) spec.Scenario {
	return spec.Scenario{
		ID: "rs-ipvs-scheduler-" + name, Needs: []spec.Feature{spec.IPVS, spec.ClusterIP},
		Cluster: &spec.ClusterConfig{Proxy: spec.ProxyConfig{IPVSScheduler: name}, Nodes: []string{"n1"}},
		Given:   h.given(),
		Steps:   []spec.Step{{Check: EachFamily(h.show)}},
	}
}

// standard makes a scenario that of the default scheduler, which is judged in the cluster that all share.
func standard(s spec.Scenario) spec.Scenario {
	s.ID, s.Cluster = "rs-ipvs-scheduler", nil
	return s
}

// endpoints are three, on three nodes.
func endpoints() []store.Object {
	return []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3")}
}

// many is how many clients, addresses or ports show that a hash tells them apart. That all of them lead to one of three
// endpoints would be a coincidence of one in 3^7.
const many = 8

// several are many objects that differ in their names.
func several[T store.Object](name string, make func(name string) T) []store.Object {
	var all []store.Object
	for i := range many {
		all = append(all, make(fmt.Sprintf("%s-%d", name, i)))
	}
	return all
}

func clients() []store.Object {
	return several("client", func(name string) store.Object { return Pod(name, "n1") })
}

func services() []store.Object {
	return several("web", func(name string) store.Object { return Service(name, Selecting("web")) })
}
