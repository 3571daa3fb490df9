// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// addresses are the scenarios of addresses that pass from one pod to another, and of pods without one. They have
// clusters of their own, as pods of others would take the addresses that become free.
func addresses() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-completed-pod", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2")))))),
			Steps: []spec.Step{
				step("b2 runs", nil, open("a1", "b2"), shut("a1", "c2")),
				step("b2 has completed, and d2 has its address", do(complete("b2"), takesOver("b2", echo("d2", "n2"))),
					shut("a1", "c2", "d2"), open("b1", "d2")),
			},
		},
		{
			ID: "np-address-passed-on", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(policy("old", pod("a1"), ingress(allow(pods(pod("b2"))))),
				policy("new", pod("b1"), ingress(allow(pods(pod("d2")))))),
			Steps: []spec.Step{
				step("b2 runs", nil, open("a1", "b2"), shut("b1", "b2")),
				step("both are listed with the address", do(Terminate("b2", false), ended("b2"), takesOver("b2", echo("d2", "n2"))),
					shut("a1", "d2"), open("b1", "d2")),
				step("the old one is gone", do(Delete("Pod", "b2")), shut("a1", "d2"), open("b1", "d2")),
			},
		},
		{
			ID: "np-pending-pod", Needs: enforced,
			Given: []store.Object{
				echo("a1", "n1", App("target")), echo("b2", "n2", App("peer")), echo("c2", "n2"),
				Pod("peer", "", App("peer")), Pod("target", "", App("target")),
				policy("p", labels("app", "target"), ingress(allow(pods(labels("app", "peer"))))),
			},
			Steps: []spec.Step{
				step("two pods have no node yet", nil, open("a1", "b2"), shut("a1", "c2")),
				step("another one comes", do(Apply(Pod("other", "", App("peer")), echo("d2", "n2", App("peer")))),
					open("a1", "b2", "d2"), shut("a1", "c2")),
			},
		},
		{
			ID: "np-named-port-moves", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(
				echo("d1", "n1", App("named"), Named("web", 8090), TCP(8091)),
				policy("p", labels("app", "named"), ingress(allow().onNamed("web"))),
			),
			Steps: []spec.Step{
				{Name: "web is 8090", Rows: ofPorts("d1", 8090, 8091)},
				{Name: "web is 8091", Do: do(Delete("Pod", "d1"), settled(),
					Apply(echo("d1", "n1", App("named"), TCP(8090), Named("web", 8091)))),
					Rows: ofPorts("d1", 8091, 8090)},
			},
		},
	}
}

// ofPorts are rows from two places to the open and the closed port of a pod.
func ofPorts(to string, opened, closed uint16) []spec.Row {
	var rows []spec.Row
	for _, from := range []string{"b1", "b2"} {
		rows = append(rows,
			spec.Row{From: from, To: spec.HostAt(to, opened), Servers: []string{to}},
			spec.Row{From: from, To: spec.HostAt(to, closed), Want: denied},
		)
	}
	return rows
}

// complete lets all containers of a pod end well, initializes says that they have not begun, and runs that they have.
func complete(name string) spec.Action    { return inPhase(name, corev1.PodSucceeded) }
func initializes(name string) spec.Action { return inPhase(name, corev1.PodPending) }
func runs(name string) spec.Action        { return inPhase(name, corev1.PodRunning) }

// inPhase reports of a pod what its kubelet would.
func inPhase(name string, phase corev1.PodPhase) spec.Action {
	return NewAction("pod "+name+" is "+string(phase), func(w spec.World) error {
		return store.UpdateStatus(w.Store(), w.Namespace(), name, func(p *corev1.Pod) { p.Status.Phase = phase })
	})
}

// ended lets the containers of a pod end that is being deleted. The API goes on to call it running.
func ended(name string) spec.Action {
	return spec.Action{Name: "the containers of pod " + name + " end", Run: func(_ context.Context, w spec.World) error {
		return store.UpdateStatus(w.Store(), w.Namespace(), name, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = nil
			for _, c := range p.Spec.Containers {
				p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
					Name: c.Name, Image: c.Image, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
				})
			}
		})
	}}
}

// settled waits until every node has programmed the changes made so far.
func settled() spec.Action {
	return spec.Action{Name: "wait", Run: func(ctx context.Context, w spec.World) error { return w.Settle(ctx) }}
}

// takesOver starts a pod on the node of a former one whose address is free by then, and sees that it gets that.
func takesOver(former string, p *corev1.Pod) spec.Action {
	return spec.Action{Name: "pod " + p.Name + " gets the address of " + former,
		Run: func(ctx context.Context, w spec.World) error {
			spec.MustDo(w.Settle(ctx))
			spec.MustDo(w.Apply(p))
			spec.MustDo(w.Settle(ctx))
			was, _ := store.Get[*corev1.Pod](w.Store(), w.Namespace(), former)
			is, _ := store.Get[*corev1.Pod](w.Store(), w.Namespace(), p.Name)
			if was == nil || is == nil || !slices.Equal(was.Status.PodIPs, is.Status.PodIPs) {
				return spec.HarnessErrorf("%s does not have the address of %s", p.Name, former)
			}
			return nil
		}}
}

// longName is a name of 253 letters, the most that there can be, with dots; those of different ends share all but the
// last.
func longName(end string) string { return strings.Repeat("very-long.", 25) + "x-" + end }

// names are the scenarios of names and labels that are hard on rules.
func names() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-long-names", Needs: enforced,
			Given: four(
				policy(longName("a"), pod("a1"), ingress(allow(pods(pod("b1"))))),
				policy(longName("b"), pod("a1"), ingress(allow(pods(pod("b2"))))),
				policy(longName("c"), pod("b1"), ingress()),
			),
			Steps: []spec.Step{
				step("all", nil, open("a1", "b1", "b2"), shut("a1", "c2"), shut("b1", "a1", "b2")),
				step("one goes", do(Delete("NetworkPolicy", longName("a"))), open("a1", "b2"), shut("a1", "b1", "c2"),
					shut("b1", "a1")),
			},
		},
		{
			ID: "np-label-values", Needs: enforced,
			Given: []store.Object{
				echo("a1", "n1"), echo("b1", "n1"),
				echo("empty", "n2", Labelled("tier", "")), echo("none", "n2"), echo("dotted", "n2", Labelled("tier", "a.b_c-d")),
				echo("like", "n2", Labelled("tier", "axb_c-d")),
				echo("longer", "n2", Labelled("tier", "a.b_c-d.e")), echo("key", "n2", Labelled("example.org/tier", "a.b_c-d")),
				policy("empty", pod("a1"), ingress(allow(pods(labels("tier", ""))))),
				policy("dotted", pod("b1"), ingress(allow(pods(labels("tier", "a.b_c-d"))))),
			},
			Steps: []spec.Step{step("", nil,
				open("a1", "empty"), shut("a1", "none", "dotted", "like", "longer", "key"),
				open("b1", "dotted"), shut("b1", "empty", "none", "like", "longer", "key"),
			)},
		},
		{
			ID: "np-initializing-pod", Needs: enforced,
			Given: four(policy("p", pod("d1"), ingress(allow(pods(pod("b2")))), egress())),
			Steps: []spec.Step{
				step("it initializes", do(Apply(echo("d1", "n1")), settled(), initializes("d1")), shut("d1", "b1", "c2"),
					shut("b1", "d1"), shut("b2", "d1")),
				step("it runs", do(runs("d1")), open("d1", "b2"), shut("d1", "b1", "c2"), shut("b1", "d1")),
			},
		},
	}
}

// families are the scenarios of what IPv4 and IPv6 have of their own.
func families() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-block-of-one-family", Families: []lab.Family{lab.V4, lab.V6}, Needs: enforced,
			Given: four(
				policy("four", pod("a1"), ingress(allow(block("0.0.0.0/0")))),
				policy("six", pod("b1"), ingress(allow(block("::/0")))),
				policy("out", pod("c2"), egress(allow(block("0.0.0.0/0")))),
			),
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "b2", To: spec.HostAt("a1", 8080), Family: lab.V4, Servers: []string{"a1"}},
				{From: "b2", To: spec.HostAt("a1", 8080), Family: lab.V6, Want: denied},
				{From: "b2", To: spec.HostAt("b1", 8080), Family: lab.V4, Want: denied},
				{From: "b2", To: spec.HostAt("b1", 8080), Family: lab.V6, Servers: []string{"b1"}},
				{From: "c2", To: spec.HostAt("b2", 8080), Family: lab.V4, Servers: []string{"b2"}},
				{From: "c2", To: spec.HostAt("b2", 8080), Family: lab.V6, Want: denied},
			}}},
		},
		{
			ID: "np-neighbour-discovery", Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(zeroTrust()...),
			Steps: []spec.Step{{
				Name: "nobody knows anybody", Do: do(forgetNeighbours("a1", "b1", "b2", "c2")),
				Rows: []spec.Row{
					{From: "a1", To: spec.HostAt("b2", 8080), Servers: []string{"b2"}},
					{From: "n1", To: spec.HostAt("a1", 8080), Servers: []string{"a1"}},
					{From: "b1", To: spec.HostAt("a1", 8080), Want: denied},
				},
			}},
		},
	}
}

// forgetNeighbours empties the tables in which pods, and their nodes for them, have the hardware addresses of
// neighbours, and with them what the lab has written there by hand.
func forgetNeighbours(names ...string) spec.Action {
	return NewAction("forget neighbours", func(w spec.World) error {
		for _, name := range names {
			p := PodOf(w, name)
			forget(&p.Host, nil)
			forget(&p.Node().Host, p)
		}
		return nil
	})
}

// forget deletes the neighbours of a host, or the one that is the pod.
func forget(h *lab.Host, pod *lab.Pod) {
	all := spec.Must(netns.List(func() ([]netlink.Neigh, error) {
		return h.Netlink().NeighList(0, netlink.FAMILY_ALL)
	}))
	for _, n := range all {
		if n.IP == nil || n.State == netlink.NUD_NOARP || pod != nil && !n.IP.Equal(pod.Addr(lab.V4).AsSlice()) &&
			!n.IP.Equal(pod.Addr(lab.V6).AsSlice()) {
			continue
		}
		spec.MustDo(h.Netlink().NeighDel(&n))
	}
}
