// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"net"
)

// Target is the destination of a probe, independent of a cluster's actual addresses.
type Target struct {
	Kind TargetKind
	// Service is the Service that the address or port belongs to, for VIP, NodePortOf and Ingress.
	Service string
	// Host is the node, pod or outside host that the address belongs to, for NodePortOf and HostPort.
	Host string
	// HostAddr selects one of the host's addresses. The zero value is the primary one.
	HostAddr HostAddr
	// Port is the Service's port (for VIP, NodePortOf and Ingress) or the port itself.
	Port uint16
	// RawPort makes a VIP target use Port unchanged, whether or not the Service has it.
	RawPort bool
	// V4 and V6 are the addresses of a Literal target, one for each family.
	V4, V6 string
}

// TargetKind is the kind of a target's address.
type TargetKind uint8

// The kinds of targets.
const (
	VIP        TargetKind = iota // the Service's ClusterIP
	NodePortOf                   // a node's address and the Service's nodePort
	Ingress                      // the Service's load-balancer address
	HostPort                     // a host's own address and port
	Literal                      // an address written out
)

// HostAddr selects one of the addresses of a host.
type HostAddr uint8

// The addresses of a host. The zero value is the primary one.
const (
	Primary HostAddr = iota
	Secondary
	Loopback
)

// ClusterIPOf returns a Service's ClusterIP and one of its ports.
func ClusterIPOf(service string, port uint16) Target {
	return Target{Kind: VIP, Service: service, Port: port}
}

// ClusterIPRaw returns a Service's ClusterIP with a port that the Service need not have.
func ClusterIPRaw(service string, port uint16) Target {
	return Target{Kind: VIP, Service: service, Port: port, RawPort: true}
}

// NodePortAt returns a node's primary address and the nodePort of a Service's port.
func NodePortAt(node, service string, port uint16) Target {
	return Target{Kind: NodePortOf, Host: node, Service: service, Port: port}
}

// AtAddr returns a copy of the target at another address of the host.
func (t Target) AtAddr(addr HostAddr) Target {
	t.HostAddr = addr
	return t
}

// IngressOf returns a Service's load-balancer address and one of its ports.
func IngressOf(service string, port uint16) Target {
	return Target{Kind: Ingress, Service: service, Port: port}
}

// HostAt returns the address of a pod, node or outside host, with a port.
func HostAt(host string, port uint16) Target {
	return Target{Kind: HostPort, Host: host, Port: port}
}

// AddrAt returns a literal target, with one address for each family.
func AddrAt(v4, v6 string, port uint16) Target {
	return Target{Kind: Literal, V4: v4, V6: v6, Port: port}
}

// String describes the target in words: "n1:nodePort(web:80)".
func (t Target) String() string {
	at := [...]string{"", "'s second address", "'s localhost"}[t.HostAddr]
	switch t.Kind {
	case VIP:
		return fmt.Sprintf("clusterIP(%s):%d", t.Service, t.Port)
	case NodePortOf:
		return fmt.Sprintf("%s%s:nodePort(%s:%d)", t.Host, at, t.Service, t.Port)
	case Ingress:
		return fmt.Sprintf("ingress(%s):%d", t.Service, t.Port)
	case Literal:
		if t.V4 == "" || t.V6 == "" {
			return net.JoinHostPort(t.V4+t.V6, fmt.Sprint(t.Port))
		}
		return fmt.Sprintf("%s|%s:%d", t.V4, t.V6, t.Port)
	default:
		return fmt.Sprintf("%s%s:%d", t.Host, at, t.Port)
	}
}
