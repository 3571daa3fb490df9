// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/lab/trace"
)

func device(place, name, direction string) trace.Step {
	return trace.Step{Place: place, Device: name, Direction: direction}
}

func rule(place, hook, chain, changed string) trace.Step {
	s := trace.Step{Place: place, Hook: hook, Backend: "nftables", Chain: chain, Rule: "rule of " + chain, Verdict: "accept"}
	if changed != "" {
		s.Changed = []string{changed}
	}
	return s
}

func walk(steps ...trace.Step) *trace.Walk { return &trace.Walk{Steps: steps} }

func TestAlign(t *testing.T) {
	in, out := device("n1", "eth0", "in"), device("n1", "eth0", "out")
	jump, dnat := rule("n1", "prerouting", "services", ""), rule("n1", "prerouting", "use", "destinationIP")
	ipvs := trace.Step{Place: "n1", Hook: "input", Kernel: "IPVS", Changed: []string{"destinationIP", "state"}}
	for name, c := range map[string]struct {
		a, b *trace.Traced
		want []Pair
	}{
		"the same": {&trace.Traced{Walk: walk(in, jump, dnat, out)}, &trace.Traced{Walk: walk(in, jump, dnat, out)},
			[]Pair{{0, 0}, {1, 1}, {2, 2}, {3, 3}}},
		"a step that only one has": {&trace.Traced{Walk: walk(in, dnat, out)}, &trace.Traced{Walk: walk(in, jump, dnat, out)},
			[]Pair{{0, 0}, {-1, 1}, {1, 2}, {2, 3}}},
		"the same change at another hook": {&trace.Traced{Walk: walk(in, jump, dnat, out)}, &trace.Traced{Walk: walk(in, ipvs, out)},
			[]Pair{{0, 0}, {1, -1}, {2, 1}, {3, 2}}},
		"the answers beside each other": {&trace.Traced{Walk: walk(in), Reply: walk(out)}, &trace.Traced{Walk: walk(in, jump), Reply: walk(out)},
			[]Pair{{0, 0}, {-1, 1}, {1, 2}}},
		"an answer that only one has": {&trace.Traced{Walk: walk(in)}, &trace.Traced{Walk: walk(in), Reply: walk(out)},
			[]Pair{{0, 0}, {-1, 1}}},
		"other places on the way": {&trace.Traced{Walk: walk(in, device("n2", "eth0", "in"))}, &trace.Traced{Walk: walk(device("n3", "eth0", "in"))},
			[]Pair{{0, 0}, {1, -1}}},
	} {
		if got := Align(c.a, c.b); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestPrint(t *testing.T) {
	client, service := netip.MustParseAddrPort("10.0.0.9:40001"), netip.MustParseAddrPort("10.0.0.1:80")
	dnat := func(src netip.AddrPort, to string) trace.Step {
		s := rule("n1", "prerouting", "use", "destinationIP")
		s.After = &trace.Tuple{Src: src, Dst: netip.MustParseAddrPort(to)}
		return s
	}
	of := func(src netip.AddrPort, steps ...trace.Step) *trace.Traced {
		return &trace.Traced{Setup: trace.Setup{Proxier: "p"}, From: "client", To: "n1", Proto: "tcp", Source: src, Address: service,
			Verdict: "Reply", Walk: walk(steps...)}
	}
	in := func(src netip.AddrPort) trace.Step {
		s := device("n1", "eth0", "in")
		s.Packet = "tcp " + src.String() + " > 10.0.0.1:80 SYN"
		return s
	}
	later := netip.AddrPortFrom(client.Addr(), 40002)
	var got bytes.Buffer
	if err := Print(&got, of(client, in(client), dnat(client, "10.0.1.2:8080")), of(later, in(later), dnat(later, "10.0.1.3:8080"))); err != nil {
		t.Fatal(err)
	}
	want := `--- first: client → n1 10.0.0.1:80/tcp, Reply
+++ second: client → n1 10.0.0.1:80/tcp, Reply

n1
  device eth0 in: tcp 10.0.0.9:40001 > 10.0.0.1:80 SYN
- prerouting [0] nftables   use: rule of use => accept
-     | 10.0.0.9 | 40001 | *10.0.1.2 | 8080 | 0x0 | - |
+ prerouting [0] nftables   use: rule of use => accept
+     | 10.0.0.9 | 40002 | *10.0.1.3 | 8080 | 0x0 | - |
`
	if got.String() != want {
		t.Errorf("it prints\n%s\nwant\n%s", got.String(), want)
	}
}

// A trace of iptables beside one of nftables: every step of both is there, and the translations stand side by side.
func TestRecorded(t *testing.T) {
	var traces [2]trace.Traced
	for i, name := range []string{"iptables", "nftables"} {
		text, err := os.ReadFile(filepath.Join("..", "testdata", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &traces[i]); err != nil {
			t.Fatal(err)
		}
	}
	var seen [2]int
	var together []string
	for _, p := range Align(&traces[0], &traces[1]) {
		var changed [2]string
		for i, n := range p {
			if n < 0 {
				continue
			}
			if n != seen[i] {
				t.Errorf("step %d of trace %d comes after %d", n, i, seen[i])
			}
			seen[i]++
			if steps := traces[i].Walk.Steps; n < len(steps) {
				changed[i] = strings.Join(changes(steps[n]), " ")
			}
		}
		if changed[0] != "" && changed[0] == changed[1] {
			together = append(together, changed[0])
		}
	}
	for i, r := range traces {
		if want := len(r.Walk.Steps) + len(r.Reply.Steps); seen[i] != want {
			t.Errorf("%d of %d steps of trace %d", seen[i], want, i)
		}
	}
	if want := []string{"destinationIP destinationPort", "sourceIP sourcePort"}; !slices.Equal(together, want) {
		t.Errorf("these changes stand side by side: %q, want %q", together, want)
	}
}
