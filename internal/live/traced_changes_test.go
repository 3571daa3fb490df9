// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// tellsState reports whether the kernel tells the state of connections in traces: Linux 6.17 does.
func tellsState() bool {
	var u unix.Utsname
	var major, minor int
	unix.Uname(&u)
	fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 17
}

func TestTheChangesOfAPacket(t *testing.T) {
	newTracedLab(t, nil).checkAll(t, kinds)
}

func TestTheChangesOfADeniedPacket(t *testing.T) {
	for _, enforcer := range proxiers.Enforcers() {
		t.Run(enforcer.Name(), func(t *testing.T) { newTracedLab(t, enforcer).checkAll(t, denied) })
	}
}

// checkAll checks kinds of traffic in all modes.
func (l *tracedLab) checkAll(t *testing.T, kinds []kind) {
	for _, m := range modes {
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
	r := l.traced(t, TraceArgs{Reply: k.proto == "", ProbeArgs: ProbeArgs{
		From: Place{Name: k.from}, To: l.addressed(t, k.to, family), Proto: k.proto, IP: strings.TrimPrefix(family.String(), "v"),
	}})
	if r.Outcome != k.outcome {
		t.Errorf("the outcome is %s, want %s", r.Verdict, k.outcome)
	}
	e := l.evidence(t, r.Proto)
	first := observe.Tuple{Src: r.Source, Dst: r.Address}
	k = k.through(e.enters(first))
	w := &wanted{t: t, lab: l, mode: m, kind: k, family: family, evidence: e}
	w.follow(first)
	w.compare(r.Walk, first)
	w.compareRules(r.Walk)
	w.compareEnd(r.Walk)
	if r.Reply != nil && r.Outcome == "Reply" {
		w.followReply(first)
		w.compare(r.Reply, first)
	}
	if m.relays && r.Outcome == "Reply" {
		second := w.followRelayed()
		w.compare(r.Relayed, second)
	}
}

// wanted is what a walk should show.
type wanted struct {
	t        *testing.T
	lab      *tracedLab
	mode     mode
	kind     kind
	family   lab.Family
	evidence *evidence

	now     trace.Tuple
	answer  bool
	passed  []string // places
	changes []string
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
	if w.t.Failed() {
		var text strings.Builder
		got.Print(&text)
		w.t.Fatalf("%s", text.String())
	}
}

// isNode reports whether a place has rules.
func (w *wanted) isNode(place string) bool { return w.lab.standing.Cluster().Lab().Node(place) != nil }

// follow works out the changes of the first packet from its addresses at the sender.
func (w *wanted) follow(first observe.Tuple) {
	w.now = trace.Tuple{Src: first.Src, Dst: first.Dst}
	for _, place := range w.kind.path {
		w.passed = append(w.passed, place)
		if !w.isNode(place) {
			continue
		}
		w.now.State, w.now.Mark = "", 0
		w.pass(place)
		if place == w.kind.at && w.mode.relays {
			return // a program takes it
		}
	}
}

// pass works out the changes at a node.
func (w *wanted) pass(node string) {
	k, begin := w.kind, "prerouting"
	if node == k.from {
		begin = "output"
	}
	flow := w.evidence.flow(node, observe.Tuple{Src: w.now.Src, Dst: w.now.Dst})
	if flow == nil && (node != k.end || w.mode.relays && node == k.at) {
		w.t.Fatalf("%s does not track %s > %s", node, w.now.Src, w.now.Dst)
	}
	w.change(node, begin, func(now *trace.Tuple) { now.State = "NEW" })
	if node == k.at {
		w.translate(node, begin, flow)
	}
	if w.lab.calico {
		w.accept(node)
	}
	if node == k.at && k.masquerade && !w.mode.relays {
		w.masquerade(node, flow)
	}
}

// translate works out what the proxier does to the destination.
func (w *wanted) translate(node, hook string, flow *observe.Flow) {
	to := w.lab.podAddr(w.t, w.kind.server, w.family)
	if w.mode.relays {
		w.change(node, hook, func(now *trace.Tuple) { now.Dst, now.State = flow.Reply.Src, "NEW,DNAT" })
		return
	}
	if flow != nil && flow.Reply.Src != to {
		w.t.Errorf("connection tracking of %s: %s, want the server %s", node, flow, to)
	}
	if w.kind.masquerade {
		w.change(node, hook, func(now *trace.Tuple) { now.Mark = w.mode.mark })
	}
	w.change(node, hook, func(now *trace.Tuple) { now.Dst, now.State = to, "NEW,DNAT" })
}

// masquerade works out what the proxier does to the source.
func (w *wanted) masquerade(node string, flow *observe.Flow) {
	w.isOf(node, flow.Reply.Dst.Addr())
	if !w.mode.atOnce {
		w.change(node, "postrouting", func(now *trace.Tuple) { now.Mark = 0 })
	}
	w.change(node, "postrouting", func(now *trace.Tuple) {
		now.Src, now.Mark, now.State = flow.Reply.Dst, 0, "NEW,SNAT,DNAT"
	})
}

// accepted is the mark that policy-calico gives to the packets that the policies of a pod accept.
const accepted = 0x10000

// accept works out the marks of policy-calico: the chain of the client's pod and that of the server's pod first take the
// mark away, and then give it. Packets to a relay do not get there: its rules accept them before.
func (w *wanted) accept(node string) {
	const hook = "forward"
	if node == w.kind.at && w.mode.relays {
		return
	}
	network := w.lab.standing.Cluster().Lab()
	server, _, _ := strings.Cut(w.kind.server, ":")
	for _, name := range []string{w.kind.path[0], "default/" + server} {
		p := network.Pod(name)
		if p == nil || p.Node().Name() != node {
			continue
		}
		w.change(node, hook, func(now *trace.Tuple) { now.Mark &^= accepted })
		if node != w.kind.end {
			w.change(node, hook, func(now *trace.Tuple) { now.Mark |= accepted })
		}
	}
}

// followReply works out the changes of the packet that answers the first one. Only the node that has translated that
// one translates it back.
func (w *wanted) followReply(first observe.Tuple) {
	path := w.passed
	w.answer, w.passed, w.changes = true, nil, nil
	w.now = trace.Tuple{Src: first.Dst, Dst: first.Src}
	if f := w.evidence.flow(w.kind.at, first); f != nil {
		w.now = trace.Tuple{Src: f.Reply.Src, Dst: f.Reply.Dst}
	}
	for i, place := range slices.Backward(path) {
		w.passed = append(w.passed, place)
		if !w.isNode(place) {
			continue
		}
		begin, end := "prerouting", "postrouting"
		if i == len(path)-1 && w.mode.relays {
			begin = "output"
		}
		if i == 0 {
			end = "input"
		}
		w.now.State = ""
		state := "ESTABLISHED"
		if place == w.kind.at && w.kind.masquerade && !w.mode.relays {
			state += ",SNAT"
		}
		if place == w.kind.at {
			state += ",DNAT"
		}
		w.change(place, begin, func(now *trace.Tuple) { now.State = state })
		if place == w.kind.at {
			w.change(place, begin, func(now *trace.Tuple) { now.Dst = first.Src })
			w.change(place, end, func(now *trace.Tuple) { now.Src = first.Dst })
		}
	}
}

// followRelayed works out the changes of the first packet of the connection that a relay has made, and returns its
// addresses: those of the packet that came to the server.
func (w *wanted) followRelayed() observe.Tuple {
	pod, _, _ := strings.Cut(w.kind.server, ":")
	to := w.lab.podAddr(w.t, w.kind.server, w.family)
	var first observe.Tuple
	for _, p := range w.evidence.frames["default/"+pod] {
		if p.inner.Dst == to && p.inner.Flags == "SYN" {
			first = observe.Tuple{Src: p.inner.Src, Dst: p.inner.Dst}
		}
	}
	w.isOf(w.kind.at, first.Src.Addr())
	i := slices.Index(w.kind.path, w.kind.at)
	w.answer, w.passed, w.changes = false, nil, nil
	w.now = trace.Tuple{Src: first.Src, Dst: first.Dst}
	for _, node := range w.kind.path[i:] {
		begin := "prerouting"
		if node == w.kind.at {
			begin = "output"
		}
		w.passed = append(w.passed, node)
		w.now.State, w.now.Mark = "", 0
		w.change(node, begin, func(now *trace.Tuple) { now.State = "NEW" })
		if w.lab.calico {
			w.accept(node)
		}
	}
	return first
}

// isOf wants an address to be one of a node.
func (w *wanted) isOf(node string, a netip.Addr) {
	addrs, err := w.lab.standing.Cluster().Lab().Node(node).LocalAddrs()
	Must(w.t, err)
	if !slices.Contains(addrs, a) {
		w.t.Errorf("%s is no address of %s", a, node)
	}
}

// change notes a change, if it is one.
func (w *wanted) change(node, hook string, f func(*trace.Tuple)) {
	before := w.now
	f(&w.now)
	if !tellsState() {
		w.now.State = ""
	}
	if w.now != before {
		w.changes = append(w.changes, line(node, hook, w.now))
	}
}

func line(place, hook string, now trace.Tuple) string {
	return fmt.Sprintf("%s %s: %s > %s %#x %s", place, hook, now.Src, now.Dst, now.Mark, now.State)
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
				p.outer.String() == s.Packet
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

// compareEnd wants a rule to have ended the packet where it should, or none.
func (w *wanted) compareEnd(got *trace.Walk) {
	w.t.Helper()
	d := got.Dropped()
	switch {
	case d == nil && w.kind.end == "":
	case d == nil:
		w.t.Errorf("nothing has ended the packet, want %s: %s", w.kind.end, w.kind.by)
	case d.Place != w.kind.end || !regexp.MustCompile(w.kind.by).MatchString(d.String()+" # "+d.About):
		w.t.Errorf("%s has ended the packet: %s # %s; want %s: %s", d.Place, d, d.About, w.kind.end, w.kind.by)
	}
}
