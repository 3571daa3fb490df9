// SPDX-License-Identifier: Apache-2.0

package netns_test

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A copy of the socket is what a program has that is being started while the listener is closed.
func TestClosedListenerRefusesWhoeverHasACopy(t *testing.T) {
	ns := newNS(t)
	loopback(t, ns)
	l, err := ns.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	held, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddrPort(l.Addr().String())
	if c, err := ns.Dial(t.Context(), "tcp", netip.AddrPort{}, to); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a closed listener takes a connection: %v, %v", c, err)
	}
}
