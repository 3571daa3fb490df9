// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
)

// Place names a machine or a pod of a lab.
type Place struct {
	// Name is that of a node, "client", "router" or "lan", or else that of a pod: NAME or NAMESPACE/NAME, also with
	// "pod/" before it.
	Name string
	// Namespace is that of a pod without one. Empty means default.
	Namespace string
}

// Places lists the names of all places.
const Places = "places" // a Place with the default namespace; the result is a []string

// lan is the name of the switch that connects the machines.
const lan = "lan"

// Pod returns the key of the pod that a place may name.
func (p Place) Pod() store.Key {
	name := strings.TrimPrefix(p.Name, "pod/")
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		return store.Key{Namespace: namespace, Name: rest}
	}
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	return store.Key{Namespace: p.Namespace, Name: name}
}

// spot is a place that exists. Exactly one of its fields is set, or host and pod.
type spot struct {
	host *lab.Host   // a node, a host outside the cluster, or a pod that has a network of its own
	pod  *corev1.Pod // nil for others
	lan  *netns.NS
}

// ns returns the network namespace of the spot.
func (s spot) ns() *netns.NS {
	if s.lan != nil {
		return s.lan
	}
	return s.host.NS
}

// find returns what a place names. A node wins over a pod of the same name.
func (l *Lab) find(p Place) (spot, error) {
	network := l.standing.Cluster().Lab()
	if n := network.Node(p.Name); n != nil {
		return spot{host: &n.Host}, nil
	}
	for _, h := range []*lab.Host{network.Client(), network.Router()} {
		if h.Name() == p.Name {
			return spot{host: h}, nil
		}
	}
	if p.Name == lan {
		return spot{lan: network.Underlay()}, nil
	}
	key := p.Pod()
	pod, ok := store.Get[*corev1.Pod](l.standing.Cluster().Store(), key.Namespace, key.Name)
	if !ok {
		return spot{}, fmt.Errorf("there is no %q: neither a node, nor client, router or %s, nor a pod in namespace %s "+
			"(\"viplab get pods -A\" lists them)", p.Name, lan, key.Namespace)
	}
	if host := network.Pod(key.String()); host != nil {
		return spot{host: &host.Host, pod: pod}, nil
	}
	if n := network.Node(pod.Spec.NodeName); n != nil && pod.Spec.HostNetwork {
		return spot{host: &n.Host, pod: pod}, nil
	}
	return spot{}, fmt.Errorf("pod %s does not run: it is %s", key, pod.Status.Phase)
}

// places lists what find can find, the pods of the default namespace without it.
func (l *Lab) places(_ context.Context, call *control.Call) (any, error) {
	var in Place
	if err := call.Args(&in); err != nil {
		return nil, err
	}
	network := l.standing.Cluster().Lab()
	names := []string{network.Client().Name(), network.Router().Name(), lan}
	for _, n := range network.Nodes() {
		names = append(names, n.Name())
	}
	for _, p := range l.standing.Cluster().Store().Snapshot().Pods {
		if p.Namespace == in.Pod().Namespace {
			names = append(names, p.Name)
		} else {
			names = append(names, store.KeyOf(p).String())
		}
	}
	return names, nil
}
