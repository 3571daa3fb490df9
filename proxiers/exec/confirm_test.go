// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"fmt"
	"net/netip"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
)

// A round may serve several canaries, one after another. So a canary that another node has made, and that is not served
// when the first one answers, says nothing of the end of the round. Here the test itself is the proxier.
func TestTheSecondCanaryIsMadeAfterTheFirstHasAnswered(t *testing.T) {
	w := newWorld(t)
	i := w.start("n1", "sleep", "infinity")
	c := i.cluster.canaries
	ctx := within(t, patience)
	before := c.newest()
	ended := make(chan error, 1)
	go func() { ended <- w.apply(ctx, i) }()
	first := w.canary(ctx, c, before+1)
	ofAnother, err := c.acquire(0, first.number)
	must(t, err)
	w.serve(first)
	last := w.canary(ctx, c, ofAnother.number+1)
	w.serve(ofAnother)
	w.serve(last)
	must(t, <-ended)
	must(t, i.Stop(ctx))
}

// canary waits for the canary with a number, and returns it.
func (w *world) canary(ctx context.Context, c *canaries, number int) (g *generation) {
	w.t.Helper()
	must(w.t, observe.Await(ctx, nil, func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.number < number {
			return fmt.Errorf("there are canaries up to %d, want %d", c.number, number)
		}
		g = c.alive[len(c.alive)-1]
		return nil
	}))
	return g
}

// serve leads a canary to the server on n1, for clients on n1.
func (w *world) serve(g *generation) {
	w.t.Helper()
	n1 := w.Lab().Node("n1")
	rules := "table inet hand { chain out { type nat hook output priority -100; }; }\n"
	for _, to := range g.targets {
		family := map[lab.Family]string{lab.V4: "ip", lab.V6: "ip6"}[lab.FamilyOf(to.Addr())]
		server := netip.AddrPortFrom(n1.Addr(lab.FamilyOf(to.Addr())), canaryPort)
		rules += fmt.Sprintf("add rule inet hand out %s daddr %s tcp dport %d dnat %s to %s\n",
			family, to.Addr(), to.Port(), family, server)
	}
	cmd := osexec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	must(w.t, n1.NS.Run(cmd))
}
