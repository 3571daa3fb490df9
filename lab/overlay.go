// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/link"
	"github.com/viplab/viplab/lab/netns"
)

// overlay is how packets between pods cross from node to node.
type overlay interface {
	kind() Overlay
	// mtu returns the MTU that the overlay leaves to the pods.
	mtu(s Stack) int
	// prepare makes the overlay's devices on the node. Their address is in the node's own pod range, so that replies to
	// packets masqueraded on the way into the tunnel find their way back.
	prepare(n *Node, s Stack) error
	// toward returns the changes by which a node reaches the pods of a peer.
	toward(n *Node, peer int, s Stack) []link.Op
}

// chooseOverlay returns an overlay that the kernel supports, and the reason for the choice.
func chooseOverlay(want Overlay, s Stack) (overlay, string, error) {
	switch want {
	case Direct:
		return direct{}, "asked for", nil
	case IPIP:
		return ipip{}, "asked for", unsupported(ipip{}, s)
	case VXLAN:
		return vxlan{}, "asked for", unsupported(vxlan{}, s)
	}
	switch {
	case missing(ipip{}, s) == nil:
		return ipip{}, "the kernel has it", nil
	case missing(vxlan{}, s) == nil:
		return vxlan{}, "this kernel has no ipip", nil
	}
	return direct{}, "this kernel has neither ipip nor vxlan", nil
}

func unsupported(o overlay, s Stack) error {
	err := missing(o, s)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("overlay %s: this kernel cannot do it: %w", o.kind(), err)
	}
	others := slices.DeleteFunc([]string{Auto.String(), IPIP.String(), VXLAN.String(), Direct.String()},
		func(name string) bool { return name == o.kind().String() })
	return fmt.Errorf("overlay %s: this kernel cannot do it: choose another one (%s), or load what it needs on the "+
		"machine (sudo modprobe -a %s): %w", o.kind(), strings.Join(others, ", "),
		strings.Join(modules(o, s), " "), err)
}

// modules returns the kernel modules that an overlay needs.
func modules(o overlay, s Stack) []string {
	if o.kind() == VXLAN {
		return []string{"vxlan"}
	}
	return each(s.Families(), func(f Family) string {
		if f == V6 {
			return "ip6_tunnel"
		}
		return "ipip"
	})
}

// OverlaySupported returns nil if the kernel can do an overlay in clusters of the families, and otherwise an error that
// says what to do.
func OverlaySupported(o Overlay, s Stack) error {
	_, _, err := chooseOverlay(o, s)
	return err
}

// known holds the conclusive results of missing, by overlay and stack.
var known sync.Map

type ability struct {
	overlay Overlay
	stack   Stack
}

// missing returns what the kernel lacks for an overlay, as an error. It tries once, in a namespace of its own.
func missing(o overlay, s Stack) error {
	of := ability{o.kind(), s}
	if answer, ok := known.Load(of); ok {
		err, _ := answer.(error)
		return err
	}
	err := probe(o, s)
	if err == nil {
		known.Store(of, true)
	} else if errors.Is(err, unix.EOPNOTSUPP) {
		known.Store(of, err)
	}
	return err
}

func probe(o overlay, s Stack) error {
	ns, err := netns.New("probe", addressSettings(s)...)
	if err != nil {
		return err
	}
	err = o.prepare(&Node{Host: Host{NS: ns}, number: 1}, s)
	return errors.Join(err, ns.Close())
}

// tunnelAddrs returns the changes that give a device the tunnel's addresses of the families.
func tunnelAddrs(d link.Dev, node int, families ...Family) []link.Op {
	return each(families, func(f Family) link.Op {
		return link.Addr{Dev: d, Prefix: single(podAddr(f, node, tunnelPod))}
	})
}

// direct routes packets between pods as they are.
type direct struct{}

func (direct) kind() Overlay              { return Direct }
func (direct) mtu(Stack) int              { return underlayMTU }
func (direct) prepare(*Node, Stack) error { return nil }

func (direct) toward(_ *Node, peer int, s Stack) []link.Op {
	return each(s.Families(), func(f Family) link.Op {
		return link.Route{To: podCIDR(f, peer), Via: lanAddr(f, nodeHost+peer), Dev: devNIC}
	})
}

// ipip wraps IPv4 in IPv4 on tunl0, by the next hop of the route, and IPv6 in IPv6, where the route says where to.
type ipip struct{}

func (ipip) kind() Overlay { return IPIP }

func (ipip) mtu(s Stack) int {
	if s == IPv4 {
		return underlayMTU - 20
	}
	return underlayMTU - 40
}

func (o ipip) prepare(n *Node, s Stack) error {
	for _, f := range s.Families() {
		var op link.Op = link.Tunnel4{Dev: devTunnel4}
		want, got := devTunnel4, &n.tunnel.v4
		if f == V6 {
			op, want, got = link.Tunnel6{Dev: devTunnel6}, devTunnel6, &n.tunnel.v6
		}
		dev, err := link.Ensure(n.NS, want, op)
		if err != nil {
			return explainMissing(err)
		}
		*got = dev
		ops := append([]link.Op{link.Tune{Dev: dev, MTU: o.mtu(s)}}, tunnelAddrs(dev, n.number, f)...)
		if err := n.apply(ops...); err != nil {
			return err
		}
	}
	return nil
}

func (ipip) toward(n *Node, peer int, s Stack) []link.Op {
	return each(s.Families(), func(f Family) link.Op {
		if f == V6 {
			return link.Route{To: podCIDR(f, peer), Dev: n.tunnel.v6, Outer: lanAddr(f, nodeHost+peer)}
		}
		return link.Route{To: podCIDR(f, peer), Dev: n.tunnel.v4, Via: lanAddr(f, nodeHost+peer), OnLink: true}
	})
}

// vxlan wraps frames in UDP of the primary family, as flannel does: no flooding, static entries and neighbours.
type vxlan struct{}

const (
	vxlanID   = 1
	vxlanPort = 8472 // Linux's default before IANA assigned 4789; flannel's too
)

func (vxlan) kind() Overlay { return VXLAN }

func (vxlan) mtu(s Stack) int {
	if s.Families()[0] == V4 {
		return underlayMTU - 50
	}
	return underlayMTU - 70
}

func (o vxlan) prepare(n *Node, s Stack) error {
	outer := s.Families()[0]
	n.tunnel = tunnelDevs{v4: devVXLAN, v6: devVXLAN}
	ops := []link.Op{link.VXLAN{
		Dev: devVXLAN, MAC: vxlanMAC(n.number), MTU: o.mtu(s), ID: vxlanID, Port: vxlanPort,
		Local: lanAddr(outer, nodeHost+n.number),
	}}
	if s != IPv4 {
		ops = append(ops, linkLocal(devVXLAN, vxlanMAC(n.number)))
	}
	ops = append(ops, tunnelAddrs(devVXLAN, n.number, s.Families()...)...)
	return explainMissing(n.apply(ops...))
}

func (vxlan) toward(_ *Node, peer int, s Stack) []link.Op {
	outer := lanAddr(s.Families()[0], nodeHost+peer)
	ops := []link.Op{link.Forward{MAC: vxlanMAC(peer), To: outer, Dev: devVXLAN}}
	for _, f := range s.Families() {
		via := podAddr(f, peer, tunnelPod)
		ops = append(ops,
			link.Neighbour{Addr: via, MAC: vxlanMAC(peer), Dev: devVXLAN},
			link.Route{To: podCIDR(f, peer), Via: via, Dev: devVXLAN, OnLink: true})
	}
	return ops
}

func vxlanMAC(node int) link.MAC { return podMAC(node, tunnelPod) }

// explainMissing replaces the error of an unknown device kind by one in plain words.
func explainMissing(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w (no such device type in the kernel, or its module is not installed)", err)
	}
	return err
}
