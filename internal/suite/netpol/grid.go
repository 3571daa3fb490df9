// SPDX-License-Identifier: Apache-2.0

// Package netpol judges enforcers of NetworkPolicy by truth tables: every pod of a grid sends to every pod, on every
// port, with TCP and UDP, and each of the 324 cells must be open or blocked as the policies say.
//
// A table is not a step of a scenario with 324 rows, because that is slow: 160 to 385 ms in package engine, after 165
// ms in which agents batch changes, and 22 ms here (medians, same machine). The 163 cases would take a minute instead
// of a few seconds.
package netpol

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/store"
)

// The grid. Only namespace z has the label team, and only the pods b have tier: on a symmetric grid, many wrong
// selectors would select the right pods.
var (
	Namespaces = []string{"x", "y", "z"}
	// Pods are the pods, as "namespace/name", in the order of the tables.
	Pods = []string{"x/a", "x/b", "x/c", "y/a", "y/b", "y/c", "z/a", "z/b", "z/c"}
	// Ports are the ports that each pod serves, in the order of the tables.
	Ports = []Port{
		{80, corev1.ProtocolTCP}, {80, corev1.ProtocolUDP}, {81, corev1.ProtocolTCP}, {81, corev1.ProtocolUDP},
	}
)

// Port is a port of a pod.
type Port struct {
	Number   int32
	Protocol corev1.Protocol
}

// String returns "80/TCP", for example.
func (p Port) String() string { return fmt.Sprintf("%d/%s", p.Number, p.Protocol) }

// name returns the name that the port has on every pod.
func (p Port) name() string {
	return fmt.Sprintf("serve-%d-%s", p.Number, strings.ToLower(string(p.Protocol)))
}

// NamedPorts are additional names of ports, by pod.
type NamedPorts map[string][]NamedPort

// NamedPort is a name of a port.
type NamedPort struct {
	Name string
	Port Port
}

// NamesOf returns the additional port names of all cases. Contradictory names are an error.
func NamesOf(cases []Case) (NamedPorts, error) {
	all := NamedPorts{}
	for _, c := range cases {
		if err := all.add(c.NamedPorts); err != nil {
			return nil, fmt.Errorf("case %s: %w", c.ID, err)
		}
	}
	return all, nil
}

// add adds the names of another case. A pod of the grid lives longer than a case, so the cases of a run must agree.
func (n NamedPorts) add(more NamedPorts) error {
	for pod, ports := range more {
		for _, p := range ports {
			for _, has := range n[pod] {
				if has.Name == p.Name && has.Port.Protocol == p.Port.Protocol && has.Port != p.Port {
					return fmt.Errorf("extraNamedPorts: %s of %s is %s here, and %s in an earlier case: "+
						"run them separately",
						p.Name, pod, p.Port, has.Port)
				}
			}
			if !slices.Contains(n[pod], p) {
				n[pod] = append(n[pod], p)
			}
		}
	}
	return nil
}

func namespaceObjects() []store.Object {
	var out []store.Object
	for _, name := range Namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"ns": name}}}
		if name == "z" {
			ns.Labels["team"] = "red"
		}
		out = append(out, ns)
	}
	return out
}

// podObject returns a pod of the grid. Each additional port name needs its own container, because port names are unique
// in a container, also across protocols.
func podObject(pod, node string, names []NamedPort) *corev1.Pod {
	namespace, name, _ := strings.Cut(pod, "/")
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"pod": name}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "serve",
			Image: cluster.PauseImage}}},
	}
	if name == "b" {
		p.Labels["tier"] = "web"
	}
	for _, port := range Ports {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports,
			corev1.ContainerPort{Name: port.name(), ContainerPort: port.Number, Protocol: port.Protocol})
	}
	for i, n := range names {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("also-%d", i+1), Image: cluster.PauseImage,
			Ports: []corev1.ContainerPort{{Name: n.Name, ContainerPort: n.Port.Number, Protocol: n.Port.Protocol}},
		})
	}
	return p
}

// nodes are the nodes of the grid.
var nodes = []lab.NodeSpec{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}}

// podsPerNode is how many pods each node has. All pods of a namespace are on one node, so each namespace has an address
// range for ipBlocks: x has 10.244.1.0/24, with its pods at .2, .3 and .4.
const podsPerNode = 3

// plannedAddrs returns the addresses of a pod, given its number in Pods.
func plannedAddrs(pod int, stack lab.Stack) []netip.Addr {
	node, host := pod/podsPerNode+1, pod%podsPerNode+2
	var out []netip.Addr
	for _, f := range stack.Families() {
		text := fmt.Sprintf("10.244.%d.%d", node, host)
		if f == lab.V6 {
			text = fmt.Sprintf("fd00:10:244:%d::%d", node, host)
		}
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// planStore returns a store with the objects of the grid, every pod at its planned address, without a network.
func planStore(stack lab.Stack, names NamedPorts) (*store.Store, error) {
	state := store.New(store.Config{Stack: stack})
	return state, state.Do(func(tx *store.Tx) error {
		for _, n := range nodes {
			if err := tx.Apply(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}); err != nil {
				return err
			}
		}
		if err := tx.Apply(namespaceObjects()...); err != nil {
			return err
		}
		for i, pod := range Pods {
			o := podObject(pod, nodes[i/podsPerNode].Name, names[pod])
			if err := tx.Apply(o); err != nil {
				return err
			}
			if err := store.UpdateStatus(tx, o.Namespace, o.Name,
				store.ReportRunning(true, plannedAddrs(i, stack)...)); err != nil {
				return err
			}
		}
		return nil
	})
}
