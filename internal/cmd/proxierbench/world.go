// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// maxServices is how many fit into the address plan of the Services that are only there to be many.
const maxServices = 50000

const (
	namespace = "bench"
	node      = "n1"
	endpoints = 5
)

// world is a cluster of one node with many Services, of which the last one has pods.
type world struct {
	*cluster.Cluster
	dir string
	// relayed is set if a process answers for the Services. It may still be fetching the answer when the fence of a
	// probe has shown that the kernel has none.
	relayed bool
}

// newWorld makes the cluster, without a proxier. The pods a-1 to a-5 and b-1 to b-5 serve, client connects.
func newWorld(ctx context.Context, services int) (*world, error) {
	c, err := cluster.New(ctx, lab.Topology{Nodes: []lab.NodeSpec{{Name: node}}, Overlay: lab.Direct})
	if err != nil {
		return nil, err
	}
	w := &world{Cluster: c}
	if w.dir, err = sandbox.TempDir("bench-"); err == nil {
		err = w.Store().Apply(pods()...)
	}
	if err == nil {
		err = w.WaitPods(ctx, namespace)
	}
	if err == nil {
		err = w.Store().Apply(append(crowd(services-1), service("last", "a"))...)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return w, nil
}

func pods() []store.Object {
	out := []store.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, pod("client", "")}
	for i := range endpoints {
		out = append(out, pod(fmt.Sprintf("a-%d", i+1), "a"), pod(fmt.Sprintf("b-%d", i+1), "b"))
	}
	return out
}

func pod(name, app string) *corev1.Pod {
	p := fixture.Backend(name, node, fixture.App(app))
	p.Namespace = namespace
	return p
}

// service leads to the pods of an app, or to none if it is empty.
func service(name, app string) *corev1.Service {
	s := fixture.Service(name, fixture.Selecting(app))
	s.Namespace = namespace
	return s
}

// crowd returns Services without clients, with endpoints at unused addresses.
func crowd(n int) []store.Object {
	var out []store.Object
	for i := range n {
		name := fmt.Sprintf("crowd-%05d", i)
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
				Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(8080))}},
		}
		for e := range endpoints {
			k := i*endpoints + e
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.244.%d.%d", 2+k/250%250, k%250+1)},
			})
		}
		out = append(out, service(name, ""), slice)
	}
	return out
}

// place returns the node that the proxier runs on.
func (w *world) place() spec.Node {
	n := spec.NodeOf(w.Lab(), w.Lab().Node(node), w.Store())
	n.StateDir, n.Log = w.dir, slog.New(slog.DiscardHandler)
	return n
}

// probe connects from the client's pod. It is patient with relays.
func (w *world) probe(ctx context.Context, to netip.AddrPort, patience time.Duration) traffic.Answer {
	if !w.relayed {
		patience = 0
	}
	return traffic.Probe{
		From: w.Lab().Pod(namespace + "/client").NS, To: to, Proto: "tcp",
		Fences: []netip.Addr{w.Lab().Node(node).Addr(lab.V4)}, Patience: patience,
	}.Do(ctx)
}

func (w *world) vip(name string) (netip.AddrPort, error) {
	svc, ok := store.Get[*corev1.Service](w.Store(), namespace, name)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("there is no Service %s", name)
	}
	addr, err := netip.ParseAddr(svc.Spec.ClusterIP)
	return netip.AddrPortFrom(addr, 80), err
}

// until probes over and over until an answer is as wanted, and returns how long that took since a moment. Between two
// probes it pauses, longer and longer, for a hundredth of the time at most: the proxier shall have the processor. With
// relays it is patient for a tenth of the time.
func (w *world) until(ctx context.Context, since time.Time, to netip.AddrPort,
	wanted func(traffic.Answer) bool) (time.Duration, error) {
	for {
		a := w.probe(ctx, to, max(2*time.Millisecond, time.Since(since)/10))
		switch {
		case a.Fault != nil:
			return 0, a.Fault
		case wanted(a):
			return time.Since(since), nil
		}
		select {
		case <-time.After(max(time.Millisecond, time.Since(since)/100)):
		case <-ctx.Done():
			waited := time.Since(since).Round(time.Second)
			return 0, fmt.Errorf("%s is %s after %v: %w", to, a, waited, context.Cause(ctx))
		}
	}
}
