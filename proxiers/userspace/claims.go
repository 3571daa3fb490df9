package userspace

import (
	"context"
	"io"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// claims are the NodePorts of a node that the proxy holds. Rules take the traffic elsewhere before it gets to these
// sockets. They are there so that no other process takes the port for its own, or, if one has it already, so that the
// proxy finds out: rules that hide a process from its clients would puzzle whoever runs it.
type claims struct {
	sockets sockets
	held    map[claim]io.Closer
}

// claim is a NodePort at an address of the node, or at all of them (the unspecified address).
type claim struct {
	protocol corev1.Protocol
	at       netip.AddrPort
}

// hold binds the port, if it is not held already.
func (c *claims) hold(ctx context.Context, want claim) error {
	if c.held[want] != nil {
		return nil
	}
	socket, err := c.bind(ctx, want)
	if err != nil {
		return err
	}
	c.held[want] = socket
	return nil
}

// bind makes the socket. A TCP one listens, or others could still bind the port with SO_REUSEADDR.
func (c *claims) bind(ctx context.Context, want claim) (io.Closer, error) {
	if want.protocol == corev1.ProtocolUDP {
		return c.sockets.ns.ListenPacket(ctx, c.sockets.network("udp"), want.at.String())
	}
	return c.sockets.ns.Listen(ctx, c.sockets.network("tcp"), want.at.String())
}

// release lets go of a claim, if it is held.
func (c *claims) release(one claim) {
	if socket := c.held[one]; socket != nil {
		socket.Close()
		delete(c.held, one)
	}
}
