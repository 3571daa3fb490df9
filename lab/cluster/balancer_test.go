// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

func TestBalanceLoads(t *testing.T) {
	c, err := New(t.Context(), lab.Topology{Nodes: []lab.NodeSpec{{Name: "n1"}, {Name: "n2"}}}, BalanceLoads())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"},
		Ports: []corev1.ServicePort{{Port: 80}},
	}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: "n2", Containers: []corev1.Container{{Name: "c", Image: "echo"}}}}
	if err := c.Store().Apply(svc, pod); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitPods(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	ip := netip.MustParseAddr("203.0.113.1")
	if got := c.balanced(c.Store().Snapshot())[ip]; !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("the traffic goes to %v, want both nodes", got)
	}
	affinity := func(a corev1.ServiceAffinity) {
		nstest.Must(t, store.Update(c.Store(), "default", "web", func(svc *corev1.Service) { svc.Spec.SessionAffinity = a }))
	}
	affinity(corev1.ServiceAffinityClientIP)
	if got := c.balanced(c.Store().Snapshot())[ip]; !slices.Equal(got, []string{"n1"}) {
		t.Errorf("with session affinity the traffic goes to %v, want one node", got)
	}
	affinity(corev1.ServiceAffinityNone)
	err = store.Update(c.Store(), "default", "web", func(svc *corev1.Service) {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.balanced(c.Store().Snapshot())[ip]; !slices.Equal(got, []string{"n2"}) {
		t.Errorf("the traffic goes to %v, want the node with a pod", got)
	}
	if err := c.WaitBalancer(t.Context(), c.Store().Snapshot().Revision); err != nil {
		t.Fatal(err)
	}
	n2 := c.Lab().Node("n2").Addr(lab.V4)
	for _, h := range []*lab.Host{c.Lab().Client(), c.Lab().Router()} {
		if routes, err := h.Netlink().RouteGet(ip.AsSlice()); err != nil || !routes[0].Gw.Equal(n2.AsSlice()) {
			t.Errorf("%s: %v, %v, want the node with a pod", h.Name(), routes, err)
		}
	}
	// An address that no Service has, so that only the test changes its route.
	free := netip.MustParseAddr("203.0.113.77")
	for _, h := range []*lab.Host{c.Lab().Client(), c.Lab().Router()} {
		for _, nodes := range [][]string{{"n1", "n2"}, {"n2"}, nil} {
			if err := c.route(free, nodes); err != nil {
				t.Fatal(err)
			}
			routes, err := h.Netlink().RouteGet(free.AsSlice())
			through := err == nil && len(routes) > 0 && routes[0].Gw.Equal(n2.AsSlice())
			if len(nodes) < 2 && through != (len(nodes) == 1) {
				t.Errorf("%s: with %v: %v, %v", h.Name(), nodes, routes, err)
			}
		}
	}
}

// A route that cannot be made is no success.
func TestBalancerWithoutRoutes(t *testing.T) {
	c, err := New(t.Context(), lab.Topology{Nodes: []lab.NodeSpec{{Name: "n1"}}}, BalanceLoads())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	client := c.Lab().Client().Netlink()
	to, err := client.RouteGet(c.Lab().Node("n1").Addr(lab.V4).AsSlice())
	if err != nil {
		t.Fatal(err)
	}
	link, err := client.LinkByIndex(to[0].LinkIndex)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.LinkSetDown(link); err != nil {
		t.Fatal(err)
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	if err := c.Store().Apply(svc); err != nil {
		t.Fatal(err)
	}
	err = c.WaitBalancer(t.Context(), c.Store().Snapshot().Revision)
	if err == nil || !strings.Contains(err.Error(), "client: ") {
		t.Errorf("%v, want that the client has no route", err)
	}
}
