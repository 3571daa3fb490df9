// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
)

// A trace leaves rules and sysctls as they were, also if its command is killed. The counters of the proxier count the
// packets of the connection, each once, and nothing sets one back.
func TestATraceLeavesNothing(t *testing.T) {
	l := newTracedLab(t, nil)
	for _, n := range l.standing.Cluster().Lab().Nodes() {
		NFT(t, n.NS, "table inet silence { chain in { type filter hook input priority 0; udp dport 99 drop; }; }")
	}
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			l.run(t, m.name)
			attempts := 1
			if m.rewrites { // a trace that did so would do so in each attempt
				attempts = 5
			}
			for range rounds(t) {
				err := l.leavesNothing(t, m)
				for left := attempts - 1; err != nil && left > 0; left-- {
					err = l.leavesNothing(t, m)
				}
				Must(t, err)
			}
		})
	}
}

// leavesNothing compares what a trace finds with what it leaves, and then what a trace leaves whose command was killed.
func (l *tracedLab) leavesNothing(t *testing.T, m mode) error {
	t.Helper()
	before := l.state(t)
	err := l.counts(t, m)
	if after := l.state(t); after != before {
		return fmt.Errorf("after a trace:\n%s", difference(before, after))
	}
	if err != nil {
		return err
	}
	l.killed(t)
	after := l.state(t)
	for ctx := Within(t); after != before && ctx.Err() == nil; after = l.state(t) {
	}
	if after != before {
		return fmt.Errorf("after a trace whose command was killed:\n%s", difference(before, after))
	}
	return nil
}

// counts wants each rule about the Service far to count what the trace shows: netfilter asks chains of type nat for the
// first packet of a connection only. The rules that accept what is forwarded count all packets of the connection, as
// many as came to the node by the capture of the test's own.
func (l *tracedLab) counts(t *testing.T, m mode) error {
	t.Helper()
	before := l.counters(t)
	r := l.traced(t, TraceArgs{ProbeArgs: ProbeArgs{From: Place{Name: "client"}, To: "n1:30080"}, Reply: true})
	after := l.counters(t)
	met := map[counted]uint64{}
	for _, s := range r.Walk.Steps {
		if s.Rule != "" {
			met[counted{s.Place, s.Backend, s.Family, s.Table, s.Chain, s.Rule, true}]++
		}
	}
	checked, forwarded := 0, uint64(0)
	var wrong []error
	for rule, packets := range after {
		more := packets - before[rule]
		switch {
		case packets < before[rule]:
			wrong = append(wrong, fmt.Errorf("a trace sets a counter back from %d to %d: %+v",
				before[rule], packets, rule))
		case rule.far && more != met[rule]:
			wrong = append(wrong, fmt.Errorf("the trace shows %d packets, and the rule counts %d: %+v",
				met[rule], more, rule))
		case rule.far && more > 0:
			checked++
		case rule.chain == "KUBE-FORWARD" && rule.node == "n1" && rule.family == "ip" && strings.HasSuffix(rule.text, "-j ACCEPT"):
			forwarded += more
		}
	}
	if m.relays || m.virtual || !strings.HasPrefix(m.backend, "iptables") {
		return errors.Join(wrong...)
	}
	arrived := uint64(0)
	e := l.evidence(t, "tcp")
	first := observe.Tuple{Src: r.Source, Dst: r.Address}
	flow := e.flow("n1", first)
	if flow == nil {
		return fmt.Errorf("n1 does not track %s > %s", r.Source, r.Address)
	}
	for _, p := range e.frames["n1"] {
		now := observe.Tuple{Src: p.inner.Src, Dst: p.inner.Dst}
		if p.device == "eth0" && p.direction == "in" && (now == first || now == flow.Reply) {
			arrived++
		}
	}
	if checked == 0 || forwarded != arrived {
		wrong = append(wrong, fmt.Errorf(
			"%d rules about the Service count the first packet, and KUBE-FORWARD counts %d packets, want %d",
			checked, forwarded, arrived))
	}
	return errors.Join(wrong...)
}

// killed kills the command of a trace that waits for an answer. A slow machine may see the tables of a trace too late,
// when it is over.
func (l *tracedLab) killed(t *testing.T) {
	t.Helper()
	for ctx := Within(t); ctx.Err() == nil; {
		cmd := exec.CommandContext(ctx, "/proc/self/exe")
		cmd.Env = append(os.Environ(), commandSocket+"="+l.socket)
		cmd.Stderr = os.Stderr
		Must(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for !l.isTracing(t) && len(ended) == 0 {
		}
		_ = cmd.Process.Kill() // fails if it has ended
		if <-ended; !cmd.ProcessState.Exited() {
			return
		}
	}
	t.Error("every trace was over before it was killed")
}

// isTracing reports whether n1 has a table of a trace.
func (l *tracedLab) isTracing(t *testing.T) bool {
	t.Helper()
	var out strings.Builder
	cmd := exec.Command("nft", "list", "tables")
	cmd.Stdout = &out
	Must(t, l.standing.Cluster().Lab().Node("n1").NS.Run(cmd))
	return strings.Contains(out.String(), "viplab-trace")
}

// commandSocket is the variable that makes the test's binary a command that traces a packet in the lab with this socket.
const commandSocket = "VIPLAB_TRACED_SOCKET"

// command is what it does. Nothing answers.
func command(socket string) error {
	return control.Do(context.Background(), socket, control.Request{
		Command: Trace, Args: TraceArgs{ProbeArgs: ProbeArgs{From: Place{Name: "client"}, To: "n1:99", Proto: "udp"}},
		Stdio: [3]*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
}

// counted is a rule with a counter.
type counted struct {
	node, backend, family, table, chain, text string
	far                                       bool // the rule or its chain names the Service far
}

// counters returns how many packets all rules have counted.
func (l *tracedLab) counters(t *testing.T) map[counted]uint64 {
	t.Helper()
	all := map[counted]uint64{}
	for _, n := range l.standing.Cluster().Lab().Nodes() {
		r, err := l.rulesOf(t.Context(), n, RulesArgs{Node: n.Name()})
		Must(t, err)
		for _, table := range r.Tables {
			for _, c := range table.Chains {
				for _, rule := range c.Rules {
					if rule.Counters != nil {
						far := strings.Contains(rule.Text+rule.About+c.Comment, "default/far")
						all[counted{n.Name(), string(table.Backend), table.Family, table.Name, c.Name, rule.Text, far}] += rule.Counters.Packets
					}
				}
			}
		}
	}
	return all
}

// state returns the rules and sysctls of all nodes, without counters. Rules that are written anew get other handles.
func (l *tracedLab) state(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, n := range l.standing.Cluster().Lab().Nodes() {
		b.WriteString(l.rulesOn(t, n.NS))
		Must(t, n.NS.Do(func() error {
			return filepath.WalkDir("/proc/sys/net", func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() && d.Name() != "nf_conntrack_count" {
					if value, err := os.ReadFile(path); err == nil { // some can only be written
						fmt.Fprintf(&b, "%s %s = %s", n.Name(), path, value)
					}
				}
				return nil
			})
		}))
	}
	return b.String()
}

// perPacket matches what changes with each packet in listings of rules.
var perPacket = regexp.MustCompile(`packets \d+ bytes \d+|(?m)^#.*\n|\[\d+:\d+\]`)

// emptied matches the chains of former canaries that kube-proxy has emptied in nftables. It deletes them with a later
// change.
var emptied = regexp.MustCompile(`\n?\tchain \S*viplab-canary\S* \{ # handle \d+\n\t\}\n`)

// rulesOn returns the rules of a node.
func (l *tracedLab) rulesOn(t *testing.T, ns *netns.NS) string {
	t.Helper()
	var out strings.Builder
	cmd := exec.Command("sh", "-c", "nft -a list ruleset; iptables-legacy-save; ip6tables-legacy-save")
	cmd.Stdout = &out
	Must(t, ns.Run(cmd))
	return ns.Name() + "\n" + emptied.ReplaceAllString(perPacket.ReplaceAllString(out.String(), ""), "")
}

// difference returns the lines that only one of two states has, apart from the handles of rules.
func difference(before, after string) string {
	before, after = handle.ReplaceAllString(before, ""), handle.ReplaceAllString(after, "")
	var b strings.Builder
	for sign, texts := range map[string][2]string{"-": {before, after}, "+": {after, before}} {
		other := "\n" + texts[1]
		for line := range strings.Lines(texts[0]) {
			if !strings.Contains(other, "\n"+line) {
				b.WriteString(sign + line)
			}
		}
	}
	if b.Len() == 0 {
		return "the same rules, written anew"
	}
	return b.String()
}

var handle = regexp.MustCompile(` # handle \d+`)
