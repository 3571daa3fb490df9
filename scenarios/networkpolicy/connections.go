// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// connections are the scenarios of what goes on when policies change, and of replies.
func connections() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-replies-pass", Needs: enforced,
			Given: four(policy("mute", pod("a1"), egress()), policy("deaf", pod("c2"), ingress())),
			Steps: []spec.Step{step("", nil, open("a1", "b1", "b2", "c2"), open("b1", "c2"), shut("b2", "a1"),
				shut("c2", "b1", "b2"))},
		},
		{
			ID: "np-neighbours-judged-twice", Needs: enforced,
			Given: four(policy("out", pod("b1"), egress(allow(pods(labels())))), policy("none", pod("a1"), ingress()),
				policy("none-there", pod("c2"), ingress())),
			Steps: []spec.Step{step("", nil, shut("a1", "b1"), shut("c2", "b1"), open("b2", "b1"), open("b1", "a1", "b2"))},
		},
		{
			ID: "np-pinhole-one-way", Needs: enforced,
			Given: four(policy("deny", labels(), ingress(), egress()),
				policy("out", pod("a1"), egress(allow(pods(pod("b2"))))), policy("in", pod("b2"), ingress(allow(pods(pod("a1")))))),
			Steps: []spec.Step{step("", nil, open("b2", "a1"), shut("a1", "b2"), shut("b2", "b1", "c2"), shut("c2", "a1"))},
		},
		{
			ID: "np-denied-flow-opens", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress())),
			Steps: []spec.Step{
				{Name: "denied", Rows: []spec.Row{{From: "c2", To: spec.HostAt("a1", 8080), Proto: "udp", Conn: "flow", Times: 3,
					Want: denied}}},
				{
					Name: "allowed", Do: do(Apply(policy("p", pod("a1"), ingress(allow(pods(pod("c2"))))))),
					Rows: []spec.Row{{From: "c2", To: spec.HostAt("a1", 8080), Proto: "udp", Conn: "flow", Times: 3,
						Servers: []string{"a1"}}},
				},
			},
		},
		{
			ID: "np-connection-outlasts-updates", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(allow(pods(pod("b2")))))),
			Steps: []spec.Step{{Check: During([]spec.Row{
				{From: "b2", To: spec.HostAt("a1", 8080), Conn: "long", Servers: []string{"a1"}},
				{From: "b2", To: spec.HostAt("a1", 8080), Proto: "udp", Conn: "flow", Servers: []string{"a1"}},
				{From: "b2", To: spec.HostAt("a1", 8080), Servers: []string{"a1"}},
				{From: "c2", To: spec.HostAt("a1", 8080), Want: denied},
			}, func(ctx context.Context, w spec.World, t spec.Traffic) {
				for range 20 {
					eachSettled(ctx, w, t, Apply(policy("other", pod("b1"), ingress())),
						Delete("NetworkPolicy", "other"))
				}
			})}},
		},
	}
}

// flows are the scenarios of connections that a policy comes to deny, and of packets of none.
func flows() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-open-connection-denied", Needs: enforced,
			Given: four(),
			Steps: []spec.Step{
				{Name: "allowed", Rows: ongoing(spec.Row{Servers: []string{"a1"}})},
				step("denied", do(Apply(policy("p", pod("a1"), ingress()))), shut("a1", "b1", "b2"),
					ongoing(spec.Row{Want: spec.Reply | denied | spec.Reset, Servers: []string{"a1"},
						Choice: "an open connection that a policy comes to deny"})),
			},
		},
		{
			ID: "np-unanswered-flow-denied", Needs: enforced,
			Given: four(),
			Steps: []spec.Step{{Check: eachFlow(oneWay)}},
		},
	}
}

// ongoing are rows of a TCP connection and a UDP flow that stay open between steps.
func ongoing(row spec.Row) []spec.Row {
	var rows []spec.Row
	for _, proto := range []string{"tcp", "udp"} {
		r := row
		r.From, r.To, r.Proto, r.Conn = "b2", spec.HostAt("a1", 8080), proto, proto
		if r.Choice != "" {
			r.Choice += ", " + proto
		}
		rows = append(rows, r)
	}
	return rows
}

// eachFlow does something in each family with a socket of b2 and one of a1.
func eachFlow(do func(ctx context.Context, w spec.World, f lab.Family, b2, a1 *Socket) error) Check {
	return EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
		if err := w.Settle(ctx); err != nil { // the pods, or what was done last for the other family
			return err
		}
		b2 := OpenSocket(ctx, w, "b2", f)
		defer b2.Close()
		a1 := OpenSocket(ctx, w, "a1", f)
		defer a1.Close()
		return do(ctx, w, f, b2, a1)
	})
}

// oneWay sends from one socket of b2 to one of a1 that never answers: while that is allowed, denied, and allowed again.
func oneWay(ctx context.Context, w spec.World, f lab.Family, from, to *Socket) error {
	for i, change := range []spec.Action{
		Apply(policy("p", pod("a1"), ingress(allow(pods(pod("b2")))))), Apply(policy("p", pod("a1"), ingress())),
		Delete("NetworkPolicy", "p"),
	} {
		RunActions(ctx, w, change)
		spec.TryDo(w.Settle(ctx))
		text := fmt.Sprintf("datagram %d", i)
		spec.TryDo(from.Send(to.Addr(), text))
		// A fence: what was sent to this node before the rows has arrived when they have been answered.
		spec.TryDo(w.Expect(ctx, open("b1", "b2")...))
		heard := spec.Try(to.Pending())
		if got, wanted := slices.Contains(heard, text), i != 1; got != wanted {
			return fmt.Errorf("%s, after %s: arrived=%t, want %t", f, change.Name, got, wanted)
		}
	}
	return nil
}

// forgottenFlow lets b2 and a1 talk, denies that, makes the nodes forget, and looks who of them still reaches the
// other.
func forgottenFlow(ctx context.Context, w spec.World, f lab.Family, b2, a1 *Socket) error {
	says := func(from, to *Socket, want bool) {
		spec.TryDo(from.Send(to.Addr(), "hello"))
		spec.TryDo(w.Expect(ctx, append(open("b1", "b2"), open("c2", "b1")...)...)) // fences, both ways
		if got := len(spec.Try(to.Pending())) > 0; got != want {
			spec.TryDo(fmt.Errorf("%s: %s to %s: arrived=%t, want %t", f, from.Addr(), to.Addr(), got, want))
		}
	}
	says(b2, a1, true)
	says(a1, b2, true)
	RunActions(ctx, w, Apply(policy("p", pod("a1"), ingress())))
	spec.TryDo(w.Settle(ctx))
	forgetFlows(ctx, w, b2.Addr(), "n1", "n2")
	says(b2, a1, false)
	says(a1, b2, true)
	says(b2, a1, true)
	return Delete("NetworkPolicy", "p").Run(ctx, w)
}

// forgetFlows makes nodes forget the flows of a socket.
func forgetFlows(ctx context.Context, w spec.World, socket netip.AddrPort, nodes ...string) {
	ours := func(f observe.Flow) bool { return f.Orig.Src == socket || f.Orig.Dst == socket }
	for _, name := range nodes {
		ForgetFlows(ctx, w, name, ours)
	}
}

// forgottenConnection is forgottenFlow for TCP. What b2 sends into the connection is the beginning of another one for
// the nodes, and denied. What a1 sends is that as well; then b2's segments are replies to it. An enforcer may end all
// that.
func forgottenConnection(ctx context.Context, w spec.World, f lab.Family) error {
	spec.TryDo(w.Settle(ctx))
	b2, a1 := connect(ctx, w, f, "b2", "a1")
	defer b2.Close()
	defer a1.Close()
	socket := b2.LocalAddr().(*net.TCPAddr).AddrPort()
	if err := spec.Catch(func() error {
		says(b2)
		spec.TryDo(Eventually(ctx, func(context.Context) error { return hears(a1, true) }))
		RunActions(ctx, w, Apply(policy("p", pod("a1"), ingress())))
		spec.TryDo(w.Settle(ctx))
		forgetFlows(ctx, w, socket, "n1", "n2")
		says(b2)
		spec.TryDo(w.Expect(ctx, append(open("b1", "b2"), shut("a1", "b2")...)...)) // a fence, and what the policy says
		spec.TryDo(hears(a1, false))
		says(a1)
		return w.Expect(ctx, open("c2", "b1")...)
	}); err != nil {
		return fmt.Errorf("%s, connection of %s: %w", f, socket, err)
	}
	goesOn := "is cut"
	if hears(b2, true) == nil {
		goesOn = "goes on"
		// What b2 has sent in vain it sends again, and now it is a reply.
		if err := Eventually(ctx, func(context.Context) error { return hears(a1, true) }); err != nil {
			return fmt.Errorf("%s, connection of %s, after a1 has sent: %w", f, socket, err)
		}
	}
	w.Note(fmt.Sprintf("a connection over IP%s that the nodes have forgotten %s when the isolated side sends", f,
		goesOn))
	return Delete("NetworkPolicy", "p").Run(ctx, w)
}

// connect opens a TCP connection from one host to another, and returns its ends.
func connect(ctx context.Context, w spec.World, f lab.Family, from, to string) (client, server net.Conn) {
	pod := spec.Must(w.Host(to))
	listener := spec.Must(pod.NS.Listen(ctx, "tcp", netip.AddrPortFrom(pod.Addr(f), 0).String()))
	defer listener.Close()
	at := listener.Addr().(*net.TCPAddr).AddrPort()
	client, err := spec.Must(w.Host(from)).NS.Dial(ctx, "tcp", netip.AddrPort{}, at)
	if err != nil {
		spec.TryDo(fmt.Errorf("connect %s to %s: %w", from, to, err))
	}
	return client, spec.Must(listener.Accept()) // it is there already
}

// says sends a word.
func says(c net.Conn) { spec.Try(c.Write([]byte("word"))) }

// hears reads what has arrived at the other end of a connection, and checks whether there is any.
func hears(c net.Conn, want bool) error {
	raw := spec.Must(c.(syscall.Conn).SyscallConn())
	n := 0
	var readErr error
	err := raw.Read(func(fd uintptr) bool {
		n, _, readErr = unix.Recvfrom(int(fd), make([]byte, 64), unix.MSG_DONTWAIT)
		return true
	})
	if err != nil || readErr != nil && !errors.Is(readErr, unix.EAGAIN) {
		return fmt.Errorf("receive: %w", errors.Join(err, readErr))
	}
	if (n > 0) != want {
		return fmt.Errorf("at %s arrived=%t, want %t", c.LocalAddr(), n > 0, want)
	}
	return nil
}

// turns closes a flow that is never answered, and opens it again. Of what was sent meanwhile, a first part must have
// arrived, and then a last one.
func turns(ctx context.Context, w spec.World, f lab.Family, from, to *Socket) error {
	for _, turn := range []struct {
		change spec.Action
		first  bool // what arrives is the first part
	}{{Apply(policy("p", pod("a1"), ingress())), true}, {Delete("NetworkPolicy", "p"), false}} {
		spec.TryDo(w.Settle(ctx))
		s := stream{from: from, to: to}
		spec.TryDo(s.sendMeanwhile(func() error {
			RunActions(ctx, w, turn.change)
			return w.Settle(ctx)
		}))
		spec.TryDo(w.Expect(ctx, open("b1", "b2")...)) // a fence
		s.hear()
		if problem := s.oneTurn(turn.first); problem != "" {
			return fmt.Errorf("%s, %s: %s", f, turn.change.Name, problem)
		}
	}
	return nil
}

// sendPause is the pause between two datagrams.
const sendPause = time.Millisecond

// stream is numbered datagrams from one socket to another.
type stream struct {
	from, to *Socket
	sent     int
	arrived  []int // the numbers
}

// send sends the next datagram, and now and then takes what has arrived, so that the receiver has room for more.
func (s *stream) send() {
	const room = 50
	spec.TryDo(s.from.Send(s.to.Addr(), strconv.Itoa(s.sent)))
	if s.sent++; s.sent%room == 0 {
		s.hear()
	}
}

// sendMeanwhile sends while something is done, and some before and after.
func (s *stream) sendMeanwhile(do func() error) error {
	const around = 5
	done := make(chan error, 1)
	ticks := time.NewTicker(sendPause)
	defer ticks.Stop()
	for left := -1; left != 0; {
		s.send()
		if s.sent == around {
			go func() { done <- spec.Catch(do) }()
		}
		if left > 0 {
			left--
		}
		select {
		case err := <-done:
			if left = around; err != nil {
				return err
			}
		case <-ticks.C:
		}
	}
	return nil
}

// hear takes what has arrived.
func (s *stream) hear() {
	for _, text := range spec.Try(s.to.Pending()) {
		s.arrived = append(s.arrived, spec.Must(strconv.Atoi(text)))
	}
}

// oneTurn says what is wrong if what arrived is not the first part of what was sent, or the last.
func (s *stream) oneTurn(first bool) string {
	if len(s.arrived) == 0 || len(s.arrived) == s.sent {
		return fmt.Sprintf("%d of %d datagrams arrived", len(s.arrived), s.sent)
	}
	slices.Sort(s.arrived)
	begins := 0
	if !first {
		begins = s.sent - len(s.arrived)
	}
	for i, n := range s.arrived {
		if n != begins+i {
			return fmt.Sprintf("of %d datagrams these arrived: %v", s.sent, s.arrived)
		}
	}
	return ""
}
