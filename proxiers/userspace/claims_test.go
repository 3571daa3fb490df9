// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
)

// TestClaimedAgain: a released NodePort is claimed again while a program that is just being started still has a copy of
// its socket. One that another process holds is not.
func TestClaimedAgain(t *testing.T) {
	c := newClaims(newSockets(proxiertest.UpNode(t, lab.V4).Host.NS, lab.V4))
	udp := claim{corev1.ProtocolUDP, netip.MustParseAddrPort("0.0.0.0:30053")}
	must(t, c.hold(t.Context(), udp))
	file, err := c.held[udp].(*net.UDPConn).File() // a copy
	must(t, err)
	c.release(udp)
	time.AfterFunc(20*time.Millisecond, func() { file.Close() })
	must(t, c.hold(t.Context(), udp))

	other, err := c.sockets.ns.ListenPacket(t.Context(), "udp4", "0.0.0.0:30054")
	must(t, err)
	defer other.Close()
	if err := c.hold(t.Context(), claim{corev1.ProtocolUDP, netip.MustParseAddrPort("0.0.0.0:30054")}); !errors.Is(err,
		unix.EADDRINUSE) {
		t.Errorf("a port of somebody else: %v, want EADDRINUSE", err)
	}
}
