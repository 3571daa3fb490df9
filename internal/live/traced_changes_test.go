// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/proxiers"
)

// rounds returns how often to repeat a test: VIPLAB_ROUNDS, or once.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("VIPLAB_ROUNDS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	Must(t, err)
	return n
}

func TestTheChangesOfAPacket(t *testing.T) {
	newTracedLab(t, nil).checkAll(t, kinds)
}

func TestTheChangesOfADeniedPacket(t *testing.T) {
	for _, enforcer := range proxiers.Enforcers() {
		t.Run(enforcer.Name(), func(t *testing.T) { newTracedLab(t, enforcer).checkAll(t, denied) })
	}
}

// The other tests have the tunnels that the kernel can do.
func TestTheChangesOverIPIP(t *testing.T) {
	var over []kind
	for _, k := range kinds {
		if slices.Contains([]string{"ClusterIP, other node", "NodePort, Cluster", "ICMP error", "UDP to a NodePort"}, k.name) {
			over = append(over, k)
		}
	}
	newTracedLab(t, nil, lab.IPIP).checkAll(t, over, "iptables", "nftables", "userspace", "program")
}

// checkAll checks kinds of traffic in all modes, or only in some.
func (l *tracedLab) checkAll(t *testing.T, kinds []kind, only ...string) {
	for _, m := range modes {
		if len(only) > 0 && !slices.Contains(only, m.name) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			l.run(t, m.name)
			for _, k := range kinds {
				if slices.Contains(k.not, m.name) {
					continue
				}
				families := lab.Dual.Families()
				if !k.both && rounds(t) == 1 {
					families = families[:1]
				}
				for _, family := range families {
					t.Run(k.name+", IP"+family.String(), func(t *testing.T) {
						if k.proto == "sctp" && noSCTP != nil {
							t.Skip(noSCTP)
						}
						for range rounds(t) {
							l.check(t, m, k, family)
						}
					})
				}
			}
		})
	}
}

// check traces a packet and its answer, and compares what the trace says with what connection tracking, captures and the
// manifest say.
func (l *tracedLab) check(t *testing.T, m mode, k kind, family lab.Family) {
	t.Helper()
	l.forget(t)
	r := l.traced(t, TraceArgs{Reply: true, ProbeArgs: ProbeArgs{
		From: Place{Name: k.from}, To: l.addressed(t, k.to, family), Proto: k.proto, IP: strings.TrimPrefix(family.String(), "v"),
	}})
	if r.Outcome != k.outcome {
		t.Errorf("the outcome is %s, want %s", r.Verdict, k.outcome)
	}
	e := l.evidence(t, r.Proto)
	first := observe.Tuple{Src: r.Source, Dst: r.Address}
	k = k.through(e.enters(first))
	w := &wanted{t: t, lab: l, mode: m.of(k), kind: k, family: family, evidence: e}
	w.follow(first)
	w.compare(r.Walk, first)
	w.compareRules(r.Walk)
	w.compareEnd(r.Walk)
	if r.Reply != nil && r.Outcome == "Reply" {
		w.followReply(first)
		w.compare(r.Reply, first)
	}
	if r.Outcome == "Refused" {
		w.followError(first)
		if len(r.Errors) != 1 {
			t.Fatalf("%d ICMP errors, want one", len(r.Errors))
		}
		w.compare(r.Errors[0], first)
	}
	if m.relays && r.Outcome == "Reply" {
		second := w.followRelayed()
		w.compare(r.Relayed, second)
	}
}

// compare compares a walk with what it should show. First are the addresses of the first packet of the connection at
// the sender.
func (w *wanted) compare(got *trace.Walk, first observe.Tuple) {
	w.t.Helper()
	if changes := changes(got); !slices.Equal(changes, w.changes) {
		w.t.Errorf("the changes are\n%s\nwant\n%s", strings.Join(changes, "\n"), strings.Join(w.changes, "\n"))
	}
	if places := places(got); !slices.Equal(places, w.passed) {
		w.t.Errorf("the packet passes %q, want %q", places, w.passed)
	}
	w.compareDevices(got, first)
	w.compareTunnels(got)
	if w.t.Failed() {
		var text strings.Builder
		got.Print(&text)
		w.t.Fatalf("%s", text.String())
	}
}

func line(place, hook string, now trace.Tuple) string {
	text := fmt.Sprintf("%s %s: %s > %s %#x %s", place, hook, now.Src, now.Dst, now.Mark, now.State)
	if now.Quoted != nil {
		text += fmt.Sprintf(" quotes %s > %s", now.Quoted.Src, now.Quoted.Dst)
	}
	return text
}

// changes returns the changes that a walk shows.
func changes(w *trace.Walk) (all []string) {
	for _, s := range w.Steps {
		if s.After != nil {
			all = append(all, line(s.Place, s.Hook, *s.After))
		}
	}
	return all
}

// places returns the places of a walk.
func places(w *trace.Walk) (all []string) {
	for _, s := range w.Steps {
		if len(all) == 0 || all[len(all)-1] != s.Place {
			all = append(all, s.Place)
		}
	}
	return all
}

// compareRules wants the rules of the proxier to have made the changes, each as its owner prints it. The annotation of
// the one that chooses the server, or the relay to it, names it.
func (w *wanted) compareRules(got *trace.Walk) {
	w.t.Helper()
	var server string
	if pod, _, ok := strings.Cut(w.kind.server, ":"); w.mode.relays && ok {
		server = w.lab.podAddr(w.t, w.kind.server, w.family).String()
	} else {
		server = "default/" + pod
	}
	for _, s := range got.Steps {
		translates := slices.Contains(s.Changed, "destinationIP")
		if !translates && !slices.Contains(s.Changed, "mark") && !slices.Contains(s.Changed, "sourceIP") ||
			strings.HasPrefix(s.Chain, "cali-") {
			continue
		}
		if translates && w.mode.virtual {
			if !strings.Contains(s.Kernel, "IPVS") || !strings.Contains(s.Flow, " => "+s.After.Dst.String()) {
				w.t.Errorf("%+v has changed the destination, want a connection of IPVS to %s", s, s.After.Dst)
			}
			continue
		}
		if s.Backend != w.mode.backend || s.Table == "" || s.Chain == "" || s.Rule == "" {
			w.t.Errorf("%+v has changed the packet, want a rule of %s", s, w.mode.backend)
		}
		if translates && !strings.Contains(s.About, server) {
			w.t.Errorf("the annotation of %s is %q, want %s", s, s.About, server)
		}
	}
}

// compareDevices wants the devices of a walk to be those where the captures saw the packet, and each at the point of the
// walk where the packet looks as it did there.
func (w *wanted) compareDevices(got *trace.Walk, first observe.Tuple) {
	w.t.Helper()
	tuples := w.evidence.tuples(first)
	if w.kind.server != "" { // connection tracking forgets what a rule has dropped at the node that translates
		tuples = append(tuples, observe.Tuple{Src: first.Src, Dst: w.lab.podAddr(w.t, w.kind.server, w.family)})
	}
	now := got.First
	seen := map[string][]passage{}
	for _, place := range w.passed {
		seen[place] = w.evidence.passages(place, tuples, w.answer)
		if w.isError {
			seen[place] = w.evidence.errors(place, tuples...)
		}
	}
	for _, s := range got.Steps {
		if s.After != nil {
			now = *s.After
		}
		if s.Device == "" {
			continue
		}
		i := slices.IndexFunc(seen[s.Place], func(p passage) bool {
			return p.device == s.Device && p.direction == s.Direction && p.inner.Src == now.Src && p.inner.Dst == now.Dst &&
				(now.Quoted == nil || p.inner.Quoted.Src == now.Quoted.Src && p.inner.Quoted.Dst == now.Quoted.Dst) && p.outer.String() == s.Packet
		})
		if i < 0 {
			w.t.Errorf("%s: no capture saw %s > %s at device %s %s: %s", s.Place, now.Src, now.Dst, s.Device, s.Direction, s.Packet)
			continue
		}
		seen[s.Place] = slices.Delete(seen[s.Place], i, i+1)
	}
	for place, left := range seen {
		for _, p := range left {
			w.t.Errorf("%s: the trace lacks device %s %s: %s", place, p.device, p.direction, p.outer)
		}
	}
}

// compareTunnels wants the packet to cross from node to node in a tunnel of the overlay, between the addresses of the
// nodes, and from and to other machines in none.
func (w *wanted) compareTunnels(got *trace.Walk) {
	w.t.Helper()
	network := w.lab.standing.Cluster().Lab()
	overlay, _ := network.Overlay()
	outer := w.family
	if overlay == lab.VXLAN {
		outer = lab.V4 // the first family of the nodes carries both
	}
	var want, crossed []string
	for i := 1; i < len(w.passed); i++ {
		from, to := network.Node(w.passed[i-1]), network.Node(w.passed[i])
		header := ""
		if from != nil && to != nil && overlay != lab.Direct {
			header = fmt.Sprintf(" %s %s > %s", overlay, from.Addr(outer), to.Addr(outer))
		}
		if from != nil && !strings.Contains(w.passed[i], "/") {
			want = append(want, from.Name()+" out"+header)
		}
		if to != nil && !strings.Contains(w.passed[i-1], "/") {
			want = append(want, to.Name()+" in"+header)
		}
	}
	for _, s := range got.Steps {
		if s.Device != "eth0" || network.Node(s.Place) == nil {
			continue
		}
		text := s.Place + " " + s.Direction
		for _, o := range s.Outer {
			text += fmt.Sprintf(" %s %s > %s", o.Proto, o.Src.Addr(), o.Dst.Addr())
		}
		crossed = append(crossed, text)
	}
	if !slices.Equal(crossed, want) {
		w.t.Errorf("the packet crosses as %q, want %q", crossed, want)
	}
}

// compareEnd wants a rule to have ended the packet where it should, or none. The rules of IPVS look packets up in sets,
// and IPVS itself refuses what has no endpoint: the objects of the cluster say which Service that concerns.
func (w *wanted) compareEnd(got *trace.Walk) {
	w.t.Helper()
	d, text := got.Dropped(), ""
	if d != nil {
		text = d.String() + " # " + d.About
	}
	if w.mode.virtual && got.End != nil {
		text += got.End.Why
	}
	itself := w.mode.virtual && w.kind.outcome == "Refused"
	switch {
	case (d == nil) != (w.kind.end == "" || itself):
		w.t.Errorf("the rule that has ended the packet is %+v, want %q: %s", d, w.kind.end, w.kind.by)
	case w.kind.end != "" && (got.End.Place != w.kind.end || !regexp.MustCompile(w.kind.by).MatchString(text)):
		w.t.Errorf("%s has ended the packet: %s; want %s: %s", got.End.Place, text, w.kind.end, w.kind.by)
	}
}
