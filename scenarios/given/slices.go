// SPDX-License-Identifier: Apache-2.0

package given

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// Endpoints writes EndpointSlices by hand for a Service without a selector: in each family of the cluster one slice
// that lists the hosts (pods, nodes or outside hosts) with one port. The port belongs to the Service's port of that
// name.
func Endpoints(slice, service, portName string, port int32, hosts ...string) spec.Action {
	var endpoints []Listed
	for _, h := range hosts {
		endpoints = append(endpoints, Listed{Host: h})
	}
	return Slice(slice, service, portName, port, endpoints...)
}

// Listed is an endpoint of a hand-written slice.
type Listed struct {
	// Host is the pod, node or outside host whose address it is.
	Host string
	// State is what the conditions say. The zero value says nothing, which means ready.
	State EndpointState
	// Placeless leaves the node's name out.
	Placeless bool
	// ForZones and ForNodes are topology hints.
	ForZones, ForNodes []string
}

// EndpointState is what the conditions of an endpoint say.
type EndpointState uint8

// The states of endpoints.
const (
	Unsaid  EndpointState = iota
	Running               // ready and serving
	Unready               // neither ready nor serving
	Ending                // terminating, and still serving
	Dying                 // terminating, and no longer serving
)

func (s EndpointState) conditions() discoveryv1.EndpointConditions {
	if s == Unsaid {
		return discoveryv1.EndpointConditions{}
	}
	return discoveryv1.EndpointConditions{
		Ready: ptr.To(s == Running), Serving: ptr.To(s == Running || s == Ending),
		Terminating: ptr.To(s == Ending || s == Dying),
	}
}

// Slice writes EndpointSlices by hand for a Service without a selector: one in each family of the cluster, with one
// port, which belongs to the Service's port of that name.
func Slice(name, service, portName string, port int32, endpoints ...Listed) spec.Action {
	return SliceIn([]lab.Family{lab.V4, lab.V6}, name, service, portName, port, endpoints...)
}

// SliceIn is Slice in some families alone.
func SliceIn(families []lab.Family, name, service, portName string, port int32, endpoints ...Listed) spec.Action {
	return writeSlices("", families, name, service, portName, port, endpoints)
}

// EndpointsIn is Endpoints in another namespace.
func EndpointsIn(namespace, slice, service, portName string, port int32, host string) spec.Action {
	return writeSlices(namespace, []lab.Family{lab.V4, lab.V6}, slice, service, portName, port, []Listed{{Host: host}})
}

func writeSlices(namespace string, families []lab.Family, name, service, portName string, port int32,
	endpoints []Listed) spec.Action {
	return spec.Action{Name: "write EndpointSlice " + name, Run: func(_ context.Context, w spec.World) error {
		all, err := slicesOf(w, families, name, service, portName, port, endpoints)
		if err != nil {
			return err
		}
		for _, s := range all {
			s.SetNamespace(namespace)
		}
		return w.Apply(all...)
	}}
}

// SlicesOf are the EndpointSlices that Slice writes, for whoever has many to write at once.
func SlicesOf(w spec.World, name, service, portName string, port int32, endpoints ...Listed) ([]store.Object, error) {
	return slicesOf(w, []lab.Family{lab.V4, lab.V6}, name, service, portName, port, endpoints)
}

func slicesOf(w spec.World, families []lab.Family, name, service, portName string, port int32,
	endpoints []Listed) ([]store.Object, error) {
	var all []store.Object
	for _, f := range w.Lab().Stack().Families() {
		if !slices.Contains(families, f) {
			continue
		}
		s := newSlice(sliceName(name, f), service, portName, port, f)
		for _, e := range endpoints {
			h, err := w.Host(e.Host)
			if err != nil {
				return nil, err
			}
			s.Endpoints = append(s.Endpoints, endpointOf(w, e, h.Addr(f)))
		}
		all = append(all, s)
	}
	return all, nil
}

// DeleteSlice deletes what Slice wrote.
func DeleteSlice(name string) spec.Action {
	return spec.Action{Name: "delete EndpointSlice " + name, Run: func(ctx context.Context, w spec.World) error {
		for _, f := range w.Lab().Stack().Families() {
			if err := Delete("EndpointSlice", sliceName(name, f)).Run(ctx, w); err != nil {
				return err
			}
		}
		return nil
	}}
}

func sliceName(name string, f lab.Family) string { return fmt.Sprintf("%s-%s", name, f) }

func newSlice(name, service, portName string, port int32, f lab.Family) *discoveryv1.EndpointSlice {
	proto := corev1.ProtocolTCP
	kind := discoveryv1.AddressTypeIPv4
	if f == lab.V6 {
		kind = discoveryv1.AddressTypeIPv6
	}
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: kind,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Protocol: &proto, Port: &port}},
	}
}

// endpointOf is an endpoint; it is local to a node if its host is a pod there or the node itself.
func endpointOf(w spec.World, l Listed, addr netip.Addr) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{addr.String()}, Conditions: l.State.conditions(), Hints: l.hints()}
	if l.Placeless {
		return e
	}
	if p := w.Lab().Pod(w.Namespace() + "/" + l.Host); p != nil {
		e.NodeName = ptr.To(p.Node().Name())
	} else if w.Lab().Node(l.Host) != nil {
		e.NodeName = &l.Host
	}
	return e
}

func (l Listed) hints() *discoveryv1.EndpointHints {
	if len(l.ForZones)+len(l.ForNodes) == 0 {
		return nil
	}
	h := &discoveryv1.EndpointHints{}
	for _, z := range l.ForZones {
		h.ForZones = append(h.ForZones, discoveryv1.ForZone{Name: z})
	}
	for _, n := range l.ForNodes {
		h.ForNodes = append(h.ForNodes, discoveryv1.ForNode{Name: n})
	}
	return h
}
