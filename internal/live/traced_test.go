// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	. "github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/internal/lab/sctp"
	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/proxiers/exec"
	"github.com/viplab/viplab/proxiers/kubeproxy"
	"github.com/viplab/viplab/suite/spec"
)

// noKubeProxy is why there is no kube-proxy to test with. TestMain sets it.
var noKubeProxy error

// noSCTP is why there are no associations of SCTP to test with. TestMain sets it.
var noSCTP error

func TestMain(m *testing.M) {
	if socket := os.Getenv(commandSocket); socket != "" {
		if err := command(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	p, err := kubeproxy.New(kubeproxy.IPTables, "", "", "")
	if err == nil && !sandbox.Inside() { // where there is a network
		err = kubeproxy.Prepare(context.Background(), p, os.Stderr)
	}
	noKubeProxy, noSCTP = err, sctp.Available()
	sandbox.Main(m)
}

// tracedLab is a lab with captures of the test's own at every place that a trace looks at, and at pods.
type tracedLab struct {
	*Lab
	t        *testing.T
	socket   string
	captures map[string]*observe.Capture
	calico   bool // the enforcer is policy-calico
}

// longMemory makes connection tracking keep the entries of connections that have ended, by default for 3 or 10 seconds
// (Documentation/networking/nf_conntrack-sysctl.rst). On a busy machine a test reads them later.
var longMemory = []netns.Setting{
	{Key: "net.netfilter.nf_conntrack_tcp_timeout_close", Value: "600"},
	{Key: "net.netfilter.nf_conntrack_sctp_timeout_closed", Value: "600", Optional: true},
	{Key: "net.netfilter.nf_conntrack_sctp_timeout_shutdown_ack_sent", Value: "600", Optional: true},
}

// forget empties the tables of connections, where entries last for longer than a client reuses its ports: if a node has
// masqueraded an earlier connection to the port that its own program draws now, the kernel gives the program another.
func (l *tracedLab) forget(t *testing.T) {
	t.Helper()
	for _, n := range l.standing.Cluster().Lab().Nodes() {
		Must(t, l.standing.Conntrack(n.Name()).Flush())
	}
}

// newTracedLab starts a lab with two nodes and the pods and Services of testdata/trace.yaml, for a test that runs beside
// others. It skips the test if the kernel cannot do the overlay.
func newTracedLab(t *testing.T, enforcer spec.Proxier, overlay ...lab.Overlay) *tracedLab {
	t.Helper()
	t.Parallel()
	calico, pods := enforcer != nil && enforcer.Name() == "policy-calico", lab.Bridge
	if calico {
		pods = lab.Routed
	}
	text, err := os.ReadFile("testdata/trace.yaml")
	Must(t, err)
	none, err := proxiers.Find("none")
	Must(t, err)
	l := &tracedLab{
		Lab: &Lab{name: "traced", began: time.Now(), end: func() {}}, t: t,
		socket: filepath.Join(t.TempDir(), "control"), captures: map[string]*observe.Capture{},
		calico: calico,
	}
	topology := lab.Topology{
		Nodes: []lab.NodeSpec{{Name: "n1"}, {Name: "n2"}}, Stack: lab.Dual, PodNetwork: pods,
		Overlay: append(overlay, lab.Auto)[0],
	}
	err = l.start(Within(t), Config{
		Topology: topology, Proxier: none[0], Enforcer: enforcer,
		Content: Content{Manifests: []Manifest{{Source: "trace.yaml", Text: text}}},
	}, newBuilds(nil))
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip(err)
	}
	Must(t, err)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: l.socket})
	Must(t, err)
	t.Cleanup(func() { listener.Close() })
	go control.Serve(t.Context(), listener, l.handle)
	network := l.standing.Cluster().Lab()
	for _, n := range network.Nodes() {
		Must(t, n.SetSysctls(longMemory...))
	}
	if noSCTP == nil {
		p := network.Pod(far)
		s, err := sctp.Serve(p.NS, far, p.Addrs(), 1320)
		Must(t, err)
		t.Cleanup(func() { s.Close() })
	}
	places := []*netns.NS{network.Client().NS, network.Router().NS}
	for _, n := range network.Nodes() {
		places = append(places, n.NS)
	}
	for _, p := range network.Pods() {
		places = append(places, p.NS)
	}
	for _, ns := range places {
		c, err := observe.StartCapture(ns)
		Must(t, err)
		t.Cleanup(func() { c.Close() })
		l.captures[ns.Name()] = c
	}
	return l
}

// run replaces the proxier. It skips the test if the proxier cannot run here.
func (l *tracedLab) run(t *testing.T, name string) {
	t.Helper()
	var p spec.Proxier
	var err error
	mode, isKubeProxy := strings.CutPrefix(name, "kube-proxy-")
	switch {
	case isKubeProxy:
		Must(t, noKubeProxy)
		p, err = kubeproxy.New(kubeproxy.Mode(mode), "", "", "")
	case name == "program":
		program, _ := filepath.Abs("testdata/proxy")
		p, err = exec.New(exec.Command{
			Name: name, Argv: []string{program, "{{.Kubeconfig}}"}, Features: spec.Features(spec.ClusterIP, spec.Cleanup),
			Cleanup: []string{"nft", "delete table inet my-proxy"},
		})
	default:
		var found []spec.Proxier
		found, err = proxiers.Find(name)
		p = slices.Concat(found, []spec.Proxier{nil})[0]
	}
	Must(t, err)
	if err := p.Usable(t.Context(), lab.Dual.Families()...); err != nil {
		t.Skip(err)
	}
	Must(t, l.standing.Switch(Within(t), p))
}

// do asks the lab for something, as a command does. It waits as long as the test may take: on a busy machine, a trace
// of a packet that is never answered takes longer than a minute.
func (l *tracedLab) do(t *testing.T, command string, args, result any) {
	t.Helper()
	nowhere, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	Must(t, err)
	defer nowhere.Close()
	Must(t, control.Do(t.Context(), l.socket, control.Request{
		Command: command, Args: args, Stdio: [3]*os.File{nowhere, nowhere, os.Stderr}, Result: result,
	}))
}

// traced asks the lab for a trace.
func (l *tracedLab) traced(t *testing.T, args TraceArgs) *Traced {
	t.Helper()
	for _, c := range l.captures {
		c.Take()
	}
	var r Traced
	l.do(t, Trace, args, &r)
	return &r
}

// passage is a packet at a device.
type passage struct {
	place, device, direction string
	at                       time.Time
	inner, outer             *observe.Packet
}

// evidence is what the kernel says of an exchange: the entries of connection tracking of each node, and the packets at
// devices.
type evidence struct {
	t      *testing.T
	proto  string
	tables map[string]*observe.Conntrack
	frames map[string][]passage // by time
}

// evidence returns what is known since the last trace began.
func (l *tracedLab) evidence(t *testing.T, proto string) *evidence {
	t.Helper()
	e := &evidence{t, proto, map[string]*observe.Conntrack{}, map[string][]passage{}}
	for _, n := range l.standing.Cluster().Lab().Nodes() {
		e.tables[n.Name()] = l.standing.Conntrack(n.Name())
	}
	for place, c := range l.captures {
		frames := c.Take()
		slices.SortStableFunc(frames, func(a, b observe.Frame) int { return a.At.Compare(b.At) })
		for _, f := range frames {
			packet, err := observe.Decode(f)
			// Ports of bridges take packets to other link addresses; other devices ignore them.
			if err != nil || f.Direction == observe.Other && !strings.HasPrefix(f.Device, "veth") {
				continue
			}
			direction := "in"
			if f.Direction == observe.Out {
				direction = "out"
			}
			e.frames[place] = append(e.frames[place], passage{place, f.Device, direction, f.At, packet.Innermost(), packet})
		}
	}
	return e
}

// flow returns the entry of a node whose first packet came with a tuple, nil if there is none.
func (e *evidence) flow(node string, orig observe.Tuple) *observe.Flow {
	table := e.tables[node]
	if table == nil { // no node translates the packet
		return nil
	}
	f, ok, err := table.Flow(e.proto, orig)
	Must(e.t, err)
	if !ok {
		return nil
	}
	return &f
}

// enters returns the first node, by time, where a packet came in.
func (e *evidence) enters(first observe.Tuple) string {
	var all []passage
	for node := range e.tables {
		for _, p := range e.passages(node, []observe.Tuple{first}, false) {
			if p.direction == "in" {
				all = append(all, p)
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	return slices.MinFunc(all, func(a, b passage) int { return a.at.Compare(b.at) }).place
}

// tuples returns how a packet looks on its way, as the entries of connection tracking translate it: the destination at
// first, and the source where it leaves the node.
func (e *evidence) tuples(first observe.Tuple) []observe.Tuple {
	all := []observe.Tuple{first}
	for i := 0; i < len(all); i++ {
		for node := range e.tables {
			if f := e.flow(node, all[i]); f != nil {
				for _, next := range []observe.Tuple{{Src: f.Orig.Src, Dst: f.Reply.Src}, reverse(f.Reply)} {
					if !slices.Contains(all, next) {
						all = append(all, next)
					}
				}
			}
		}
	}
	return all
}

func reverse(t observe.Tuple) observe.Tuple { return observe.Tuple{Src: t.Dst, Dst: t.Src} }

// passages returns where the packet was first seen at each device of a place, by time. The answer has the reverse
// addresses.
func (e *evidence) passages(place string, tuples []observe.Tuple, answer bool) []passage {
	var all []passage
	seen := map[string]bool{}
	for _, p := range e.frames[place] {
		now := observe.Tuple{Src: p.inner.Src, Dst: p.inner.Dst}
		if answer {
			now = reverse(now)
		}
		at := fmt.Sprint(p.device, p.direction, now)
		if begins(p.inner, answer) && slices.Contains(tuples, now) && !seen[at] {
			seen[at] = true
			all = append(all, p)
		}
	}
	return all
}

// begins reports whether a packet may be the first one of an exchange, or the first answer: a segment with SYN (RFC 9293
// 3.5), or a chunk INIT or INIT ACK (RFC 9260 5.1).
func begins(p *observe.Packet, answer bool) bool {
	switch p.Proto {
	case "tcp":
		return p.Flags == map[bool]string{false: "SYN", true: "SYN,ACK"}[answer]
	case "sctp":
		header := 40
		if p.Src.Addr().Is4() {
			header = int(p.Raw[0]&15) * 4
		}
		const chunk = 12
		return p.Raw[header+chunk] == map[bool]byte{false: 1, true: 2}[answer]
	}
	return p.Proto == "udp"
}

// errors returns where ICMP errors about a packet were first seen at each device of a place, by time.
func (e *evidence) errors(place string, tuples ...observe.Tuple) []passage {
	var all []passage
	seen := map[string]bool{}
	for _, p := range e.frames[place] {
		q := p.inner.Quoted
		at := p.device + p.direction
		if q != nil && slices.Contains(tuples, observe.Tuple{Src: q.Src, Dst: q.Dst}) && !seen[at] {
			seen[at] = true
			all = append(all, p)
		}
	}
	return all
}

// addressed returns what a trace can be sent to: for "lb/NAME" the address of a Service's load balancer and port 80, else
// the text itself.
func (l *tracedLab) addressed(t *testing.T, to string, family lab.Family) string {
	t.Helper()
	name, ok := strings.CutPrefix(to, "lb/")
	if !ok {
		return to
	}
	s, ok := store.Get[*corev1.Service](l.standing.Cluster().Store(), "default", name)
	for _, i := range s.Status.LoadBalancer.Ingress {
		if a := netip.MustParseAddr(i.IP); lab.FamilyOf(a) == family {
			return netip.AddrPortFrom(a, 80).String()
		}
	}
	t.Fatalf("Service %s (%t) has no address of a load balancer", name, ok)
	return ""
}

// podAddr returns the address and port of "pod:port" in a family.
func (l *tracedLab) podAddr(t *testing.T, server string, family lab.Family) netip.AddrPort {
	t.Helper()
	name, port, _ := strings.Cut(server, ":")
	var number uint16
	_, err := fmt.Sscan(port, &number)
	Must(t, err)
	return netip.AddrPortFrom(l.standing.Cluster().Lab().Pod("default/"+name).Addr(family), number)
}
