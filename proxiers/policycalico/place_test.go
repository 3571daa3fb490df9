package policycalico

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/watch"
	"github.com/viplab/viplab/proxiers/internal/policy"
	"github.com/viplab/viplab/proxiers/internal/proxiertest"
	"github.com/viplab/viplab/proxiers/internal/xtables"
)

// TestKeepsItsPlace: whatever others do to the built-in chains, the jumps are soon at their heads again, each once, and lead
// to chains with rules. After release nothing is put back.
func TestKeepsItsPlace(t *testing.T) {
	if err := New().Usable(t.Context()); err != nil {
		t.Skip(err)
	}
	node := proxiertest.Node(t, lab.V4)
	f, err := newFamily(node.Host.NS, node.StateDir, lab.V4, node.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.release()
	a := netip.MustParseAddr("192.0.2.1")
	if err := f.program(t.Context(), policy.Sample(a), policy.Ports{a: devices + "probe"}); err != nil {
		t.Fatal(err)
	}
	iptables := func(words string) {
		t.Helper()
		if err := node.Host.Run(exec.Command("iptables-nft", strings.Fields(words)...)); err != nil {
			t.Fatalf("iptables %s: %v", words, err)
		}
	}
	for _, words := range []string{
		"-I FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT", "-I OUTPUT -d 192.0.2.9 -j ACCEPT", "-t raw -I PREROUTING -d 192.0.2.9 -j ACCEPT",
		"-I FORWARD -j " + chainForward, "-F FORWARD", "-F",
	} {
		iptables(words)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err := watch.Await(ctx, nil, func(ctx context.Context) error { return inOrder(ctx, f) })
		cancel()
		if err != nil {
			t.Errorf("after iptables %s: %v", words, err)
		}
	}
	f.release()
	iptables("-F FORWARD")
	if err := inOrder(t.Context(), f); err == nil {
		t.Error("released, and it still puts jumps back")
	}
}

// inOrder looks at the tables of a family.
func inOrder(ctx context.Context, f *family) error {
	tables, err := f.programs.SaveAll(ctx)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.first(tables) || len(tables[e.table].Chains[e.to]) == 0 {
			return fmt.Errorf("%s %s: %q, %s: %q", e.table, e.from, tables[e.table].Chains[e.from], e.to, tables[e.table].Chains[e.to])
		}
	}
	if forward := tables[xtables.Filter].Chains["FORWARD"]; !isAccepted(forward[len(forward)-1]) {
		return fmt.Errorf("FORWARD ends with %q", forward)
	}
	return nil
}
