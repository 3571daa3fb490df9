// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

var three = []string{"a1", "a2", "a3"}

func threeBackends(service *corev1.Service) []store.Object {
	return []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3"), service}
}

// setAffinity changes the affinity of a Service in place.
func setAffinity(to corev1.ServiceAffinity) spec.Action {
	return Edit("web", func(s *corev1.Service) {
		s.Spec.SessionAffinity = to
		s.Spec.SessionAffinityConfig = nil
	})
}

// affinity returns the scenarios of sessionAffinity ClientIP.
func affinity() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "affinity-clusterip", Needs: []spec.Feature{spec.ClusterIP, spec.SessionAffinity},
			Given: threeBackends(Service("web", Affinity())),
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: three, Sticky: true},
			}}},
		},
		{
			ID: "affinity-nodeport", Needs: []spec.Feature{spec.NodePort, spec.SessionAffinity},
			Given: threeBackends(Service("web", NodePort(), Affinity())),
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: three, Sticky: true},
				{From: "c1", To: spec.NodePortAt("n1", "web", 80), Servers: three, Sticky: true},
			}}},
		},
		{
			ID: "affinity-toggle", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.SessionAffinity},
			Given: threeBackends(Service("web", NodePort())),
			Steps: []spec.Step{
				{Name: "none", Rows: spreadOrSticky(false)},
				{Name: "ClientIP", Do: []spec.Action{setAffinity(corev1.ServiceAffinityClientIP)}, Rows: spreadOrSticky(true)},
				{Name: "none again", Do: []spec.Action{setAffinity(corev1.ServiceAffinityNone)}, Rows: spreadOrSticky(false)},
			},
		},
		affinityLbBothPolicies(),
		{
			ID: "affinity-endpoint-removed", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.SessionAffinity},
			Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Service("web", NodePort(), Affinity())},
			Steps: []spec.Step{
				{Name: "one pod", Rows: stuckTo(1, "a1")},
				{Name: "others join", Do: []spec.Action{Apply(Backend("a2", "n2"), Backend("a3", "n3"))}, Rows: stuckTo(25, "a1")},
				{Name: "the first is gone", Do: []spec.Action{Delete("Pod", "a1")}, Rows: stuckTo(25, "a2", "a3")},
			},
		},
		affinityUDP(), affinityUDPPause(),
		{
			ID: "affinity-survives-resync", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
			Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.SessionAffinity, spec.InKernel},
			Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Service("web", NodePort(), Affinity())},
			Steps: []spec.Step{
				{Name: "one pod", Rows: stuckTo(1, "a1")},
				{Name: "others join, and the proxier of n1 starts again", Do: []spec.Action{
					Apply(Backend("a2", "n2"), Backend("a3", "n3")),
					{Name: "start the proxier of n1 again", Run: func(ctx context.Context,
						w spec.World) error {
						return w.ProxierControl("n1").Start(ctx)
					}},
				}, Rows: stuckTo(25, "a1")},
			},
		},
		keyedBySource(),
		acrossPorts(),
		acrossFrontends(),
		manyClients(),
		timeout(), timeoutLengthened(), timeoutShortened(),
		losesPod("affinity-endpoint-unready", external{"203.0.113.112", "2001:db8:113::112", "203.0.113.113",
			"2001:db8:113::113"}, Readiness("a1", false), Readiness("a1", true)),
		losesPod("affinity-endpoint-terminates", external{"203.0.113.114", "2001:db8:113::114", "198.51.100.100",
			"2001:db8:51::100"}, Terminate("a1", true)),
	}
}

func affinityLbBothPolicies() spec.Scenario {
	return spec.Scenario{
		ID: "affinity-lb-both-policies", Needs: []spec.Feature{spec.LoadBalancer, spec.ETPLocal, spec.SessionAffinity},
		Given: append(threeBackends(Service("any", LoadBalancer(), Affinity(), Selecting("web"))),
			Backend("b1", "n1"), Service("local", LoadBalancer(), ETPLocal(), Affinity(), Selecting("web"))),
		Steps: []spec.Step{{
			Do: []spec.Action{
				Ingress("any", "203.0.113.80", "2001:db8:113::80"), RouteVia("client", "203.0.113.80", "2001:db8:113::80", "n1"),
				Ingress("local", "203.0.113.81", "2001:db8:113::81"), RouteVia("client", "203.0.113.81", "2001:db8:113::81", "n1"),
			},
			Rows: []spec.Row{
				{From: "client", To: spec.IngressOf("any", 80), Servers: append([]string{"b1"}, three...), Sticky: true},
				{From: "client", To: spec.IngressOf("local", 80), Servers: []string{"a1", "b1"}, Sticky: true},
			},
		}},
	}
}

func affinityUDP() spec.Scenario {
	return spec.Scenario{
		ID: "affinity-udp", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.LoadBalancer, spec.SessionAffinity},
		Given: []store.Object{
			Pod("c1", "n1"), udpPod("a1", "n1"), udpPod("a2", "n2"), udpPod("a3", "n3"),
			Service("web", LoadBalancer(), Affinity(), UDPPort(80, 8080)),
		},
		Steps: []spec.Step{{
			Do: IngressViaN1("web", "203.0.113.82", "2001:db8:113::82"),
			Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Servers: three, Sticky: true},
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Proto: "udp", Servers: three, Sticky: true},
				{From: "client", To: spec.IngressOf("web", 80), Proto: "udp", Servers: three, Sticky: true},
			},
		}},
	}
}

// returning is how many flows of a client come back. That fair draws among three pods give all of them the same one
// happens once in 10^7 times.
const returning = 15

// returningFrom is the port of the first of them.
const returningFrom = 61500

// affinityUDPPause has flows from fixed ports that begin while there is one pod, and go on when others have joined and
// connection tracking has forgotten them.
func affinityUDPPause() spec.Scenario {
	var flows []spec.Row
	for i := range returning {
		for _, r := range stuckTo(1, "a1") {
			r.Proto, r.Sticky = "udp", false
			r.Conn, r.SourcePort = fmt.Sprintf("%s #%d", r.From, i), returningFrom+uint16(i)
			flows = append(flows, r)
		}
	}
	forget := spec.Action{Name: "n1 forgets the flows", Run: func(ctx context.Context, w spec.World) error {
		spec.TryDo(w.Settle(ctx))
		ForgetRows(w, "n1", flows...)
		return nil
	}}
	return spec.Scenario{
		ID: "affinity-udp-pause", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.SessionAffinity},
		Given: []store.Object{Pod("c1", "n1"), udpPod("a1", "n1"), web()},
		Steps: []spec.Step{
			{Name: "one pod", Rows: flows},
			{Name: "others join during a long pause",
				Do: []spec.Action{Apply(udpPod("a2", "n2"), udpPod("a3", "n3")), forget}, Rows: flows},
		},
	}
}

// stuckTo wants a client inside and one outside to stay with one of the pods each.
func stuckTo(times int, by ...string) []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), Times: times, Servers: by, Sticky: true},
		{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: times, Servers: by, Sticky: true},
	}
}

func spreadOrSticky(sticky bool) []spec.Row {
	rows := []spec.Row{
		{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: three},
		{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: three},
	}
	for i := range rows {
		rows[i].Sticky, rows[i].Even = sticky, !sticky
	}
	return rows
}

// affinityCrowd holds many clients outside the cluster. Each is an address that no host has. A host of the lab sends
// single datagrams from it, and the pods tell which of them got one. Answers get lost: no route leads to the addresses.
type affinityCrowd struct {
	w    spec.World
	pods []string
	sent atomic.Int64 // datagrams so far, for ports and nonces that are used once
}

// members is more than a client's conntrack entry or a lucky draw could explain, and fewer than the hundred that the
// recent match of iptables remembers for an endpoint.
const members = 60

// source is the address of a member of the crowd. These ranges are for benchmarks and documentation.
func source(f lab.Family, member int) netip.Addr {
	if f == lab.V4 {
		return netip.AddrFrom4([4]byte{198, 18, byte(member >> 8), byte(member)})
	}
	a := netip.MustParseAddr("2001:db8:c0de::").As16()
	a[14], a[15] = byte(member>>8), byte(member)
	return netip.AddrFrom16(a)
}

// send makes members first to last send a datagram each, and returns the pods that got them.
func (c *affinityCrowd) send(ctx context.Context, f lab.Family, to spec.Target, first, last int) ([]string, error) {
	return c.sendFrom(ctx, "client", f, to, first, last)
}

// sendAfterStranger makes all members come by a door. A stranger comes first: a proxier that takes turns would
// otherwise give each member the pod that it had, whether it remembers it or not.
func (c *affinityCrowd) sendAfterStranger(ctx context.Context, f lab.Family, by affinityDoor) ([]string, error) {
	if _, err := c.sendFrom(ctx, by.from, f, by.to, members+1, members+1); err != nil {
		return nil, err
	}
	return c.sendFrom(ctx, by.from, f, by.to, 1, members)
}

// sendFrom is send, with another host that sends.
func (c *affinityCrowd) sendFrom(ctx context.Context, host string, f lab.Family, to spec.Target,
	first, last int) ([]string, error) {
	at := spec.Must(c.w.Resolve(to, f, "udp"))
	client := spec.Must(c.w.Host(host)).NS
	var nonces []string
	for member := first; member <= last; member++ {
		n := c.sent.Add(1)
		nonce := fmt.Sprintf("%s-%d", c.w.Namespace(), n)
		packet := spec.Must(traffic.Datagram{
			Src: netip.AddrPortFrom(source(f, member), uint16(10000+n)), Dst: at, Payload: []byte(nonce + "\n"),
		}.Packet())
		spec.MustDo(traffic.SendRaw(client, packet))
		nonces = append(nonces, nonce)
	}
	var got []string
	err := Eventually(ctx, func(context.Context) (err error) {
		got, err = c.whoGot(nonces)
		return err
	})
	return got, err
}

// whoGot are the pods that have got each of the requests.
func (c *affinityCrowd) whoGot(nonces []string) ([]string, error) {
	by := map[string]string{}
	for _, pod := range c.pods {
		server, err := c.w.Server(pod)
		if err != nil {
			return nil, err
		}
		for _, seen := range server.Arrivals() {
			if first, ok := by[seen.Nonce]; ok && seen.Nonce != "" {
				return nil, fmt.Errorf("datagram %s has reached %s and %s", seen.Nonce, first, pod)
			}
			by[seen.Nonce] = pod
		}
	}
	var got []string
	for i, nonce := range nonces {
		pod, ok := by[nonce]
		if !ok {
			return nil, fmt.Errorf("datagram %d of %d has reached no pod", i+1, len(nonces))
		}
		got = append(got, pod)
	}
	return got, nil
}

// tally counts pods.
func tally(pods []string) map[string]int {
	out := map[string]int{}
	for _, p := range pods {
		out[p]++
	}
	return out
}
