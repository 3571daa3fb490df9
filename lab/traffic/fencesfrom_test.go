// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	. "github.com/viplab/viplab/internal/lab/nstest"
)

// Where the client gets no echo back, another namespace can prove that its silence is one.
func TestFencesFrom(t *testing.T) {
	w := newWorld(t)
	NFT(t, w.router, "add table inet shut; add chain inet shut forward { type filter hook forward priority 0; policy "+
		"drop; }")
	for _, f := range families {
		serve(t, w.server, "web", []netip.Addr{f.server}, bothPorts...)
		for _, proto := range []string{"tcp", "udp"} {
			p := Probe{From: w.client, To: netip.AddrPortFrom(f.server, 80), Proto: proto, Fences: []netip.Addr{f.server}}
			short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			if a := p.Do(short); a.Fault == nil {
				t.Errorf("%s %s: the client's own fence is answered: %v", f.name, proto, a)
			}
			cancel()
			p.FencesFrom = w.router
			if a := p.Do(Within(t)); a.Outcome != Silence || !strings.HasPrefix(a.Detail, "fenced by") {
				t.Errorf("%s %s: %v, want a silence that is proved", f.name, proto, a)
			}
		}
	}
}
