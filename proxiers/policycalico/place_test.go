// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/suite/spec"
)

// TestKeepsItsPlace: whatever others do to the built-in chains, the jumps are soon at their heads again, each once, and
// lead to chains with rules. After release nothing is put back.
func TestKeepsItsPlace(t *testing.T) {
	node := proxiertest.Node(t, lab.V4)
	f := onNode(t, node)
	programSample(t, f)
	for _, words := range []string{
		"-I FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT", "-I OUTPUT -d 192.0.2.9 -j ACCEPT",
		"-t raw -I PREROUTING -d 192.0.2.9 -j ACCEPT",
		"-I FORWARD -j " + chainForward, "-F FORWARD", "-F",
	} {
		iptables(t, node, words)
		awaitOrder(t, f, "iptables "+words)
	}
	f.Release()
	iptables(t, node, "-F FORWARD")
	for range 10 { // one that still watched would be back before the last look
		if err := inOrder(t.Context(), f); err == nil {
			t.Error("released, and it still puts jumps back")
		}
	}
}

// TestLeavesItsPlaceForAWhile: another program moves its rule to the head of FORWARD as often as the jump is put there.
// The two do not go on like that: the enforcer says whose rule it is and rests, and takes the place back once the other
// is gone.
func TestLeavesItsPlaceForAWhile(t *testing.T) {
	node := proxiertest.Node(t, lab.V4)
	told := make(lines, 100)
	node.Log = slog.New(slog.NewTextHandler(told, nil))
	f := onNode(t, node)
	f.truce = 3 * time.Second
	programSample(t, f)

	ctx, stop := context.WithCancel(t.Context())
	changes, err := observe.ChainChanges(ctx, node.Host.NS, unix.NFPROTO_IPV4, "FORWARD")
	if err != nil {
		t.Fatal(err)
	}
	const rival = "FORWARD -d 192.0.2.77/32 -j ACCEPT"
	iptables(t, node, "-I "+rival)
	insist := func() {
		iptables(t, node, "-D "+rival)
		iptables(t, node, "-I "+rival)
	}
	moves := 0
	var rests time.Time // since when
	for rests.IsZero() {
		select {
		case line := <-told:
			if !strings.Contains(line.text, "level=ERROR") {
				continue // somebody was disturbed while he wrote, and tries again
			}
			if !strings.Contains(line.text, "192.0.2.77") {
				t.Fatalf("it does not tell whose rule it is: %s", line.text)
			}
			rests = line.at
		case <-changes:
			tables, err := f.programs.Save(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if forward := tables.Of(xtables.Filter).Chains["FORWARD"]; forward[0].Target() != "ACCEPT" {
				insist()
				moves++
			}
		case <-time.After(time.Minute):
			t.Fatalf("after %d moves it has said nothing", moves)
		}
	}
	if moves == 0 || moves > mostMoves {
		t.Errorf("it has let itself be moved %d times, want some, and at most %d", moves, mostMoves)
	}
	stop()
	insist()
	awaitOrder(t, f, "the other one has moved for the last time")
	if rested := time.Since(rests); rested < f.truce {
		t.Errorf("it has taken the place back after %s, want no sooner than %s", rested, f.truce)
	}
}

// line is a line of a log.
type line struct {
	at   time.Time
	text string
}

type lines chan line

func (l lines) Write(text []byte) (int, error) {
	l <- line{time.Now(), string(text)}
	return len(text), nil
}

// programSample programs a policy for a pod.
func programSample(t *testing.T, f *family) {
	t.Helper()
	a := netip.MustParseAddr("192.0.2.1")
	if err := f.Program(t.Context(), policy.Sample(a), policy.Ports{a: devices + "probe"}); err != nil {
		t.Fatal(err)
	}
}

func iptables(t *testing.T, node spec.Node, words string) {
	t.Helper()
	if err := node.Host.Run(exec.Command("iptables-nft", strings.Fields(words)...)); err != nil {
		t.Fatalf("iptables %s: %v", words, err)
	}
}

// awaitOrder waits until all jumps are in their places, after something has happened.
func awaitOrder(t *testing.T, f *family, after string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := observe.Await(ctx, nil, func(ctx context.Context) error { return inOrder(ctx, f) }); err != nil {
		t.Errorf("after %s: %v", after, err)
	}
}

// inOrder looks at the tables of a family.
func inOrder(ctx context.Context, f *family) error {
	tables, err := f.programs.Save(ctx)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !inFront(e, tables) || len(tables.Of(e.Table).Chains[e.To]) == 0 {
			return fmt.Errorf("%s %s: %q, %s: %q", e.Table, e.From, tables.Of(e.Table).Chains[e.From], e.To,
				tables.Of(e.Table).Chains[e.To])
		}
	}
	if forward := tables.Of(xtables.Filter).Chains["FORWARD"]; !isAccepted(forward[len(forward)-1]) {
		return fmt.Errorf("FORWARD ends with %q", forward)
	}
	return nil
}
