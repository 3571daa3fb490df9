// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

// target is what a probe goes to.
type target struct {
	name  string
	addrs []netip.Addr // of the families that it has
	port  uint16
	proto string // "tcp" or "udp"; empty if nothing says which
}

// addr returns the target's address of a family.
func (t *target) addr(f lab.Family) (netip.AddrPort, error) {
	for _, a := range t.addrs {
		if lab.FamilyOf(a) == f {
			return netip.AddrPortFrom(a, t.port), nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("%s has no IP%s address", t.name, f)
}

// target resolves [svc/|pod/]NAME[:PORT], HOST:PORT and ADDRESS:PORT. A Service wins over a pod of the same name.
func (l *Lab) target(text, namespace string) (*target, error) {
	if a, err := netip.ParseAddrPort(text); err == nil {
		return &target{name: text, addrs: []netip.Addr{a.Addr()}, port: a.Port()}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return nil, fmt.Errorf("%s: want a port: %s", text, net.JoinHostPort(a.String(), "80"))
	}
	name, port, _ := strings.Cut(text, ":")
	kind, rest, ok := strings.Cut(name, "/")
	if ok && (kind == "svc" || kind == "service") {
		return l.service(Place{Name: rest, Namespace: namespace}, port)
	}
	at := Place{Name: name, Namespace: namespace}
	if found, err := l.service(at, port); err == nil || found != nil {
		return found, err
	}
	to, err := l.find(at)
	if err != nil {
		return nil, fmt.Errorf("%q is neither a Service nor a machine or pod: %w", text, err)
	}
	if to.host == nil {
		return nil, fmt.Errorf("%s has no address", name)
	}
	t := &target{name: name, addrs: to.host.Addrs()}
	if to.pod != nil {
		return t, t.choosePort(port, containerPorts(to.pod))
	}
	return t, t.choosePort(port, nil)
}

// service returns a Service as a target. It returns nil if there is no Service of that name.
func (l *Lab) service(p Place, port string) (*target, error) {
	key := p.Pod()
	s, ok := store.Get[*corev1.Service](l.standing.Cluster().Store(), key.Namespace, key.Name)
	if !ok {
		return nil, fmt.Errorf("there is no Service %s", key)
	}
	t := &target{name: "svc/" + key.String()}
	for _, ip := range s.Spec.ClusterIPs {
		if a, err := netip.ParseAddr(ip); err == nil {
			t.addrs = append(t.addrs, a)
		}
	}
	if len(t.addrs) == 0 {
		return t, fmt.Errorf("%s has no ClusterIP: probe one of its pods", t.name)
	}
	var ports []portChoice
	for _, p := range s.Spec.Ports {
		ports = append(ports, portChoice{p.Name, p.Port, p.Protocol})
	}
	return t, t.choosePort(port, ports)
}

// portChoice is a port that an object names.
type portChoice struct {
	name     string
	number   int32
	protocol corev1.Protocol
}

func containerPorts(p *corev1.Pod) []portChoice {
	var ports []portChoice
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, x := range c.Ports {
			ports = append(ports, portChoice{x.Name, x.ContainerPort, x.Protocol})
		}
	}
	return ports
}

// choosePort sets the port: the first choice if the text is empty, else the one that it names or a number.
func (t *target) choosePort(text string, choices []portChoice) error {
	for _, c := range choices {
		if text == "" || text == c.name || text == strconv.Itoa(int(c.number)) {
			t.port, t.proto = uint16(c.number), strings.ToLower(string(c.protocol))
			return nil
		}
	}
	if text == "" {
		return fmt.Errorf("%s: want a port: %s:80", t.name, t.name)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return fmt.Errorf("%s has no port %q", t.name, text)
	}
	t.port = uint16(number)
	return nil
}
