// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/machine"
)

// Conn is the client's end of a TCP connection, or a connected UDP socket. It may be used from any goroutine.
type Conn struct {
	probe Probe
	tcp   bool

	mu     sync.Mutex // serialises exchanges
	fd     int        // -1 after Close
	file   *os.File   // the same socket in the Go poller, which then owns it; nil unless a wait was needed
	raw    syscall.RawConn
	icmp   int // raw ICMP socket of the namespace
	fences int // raw ICMP socket of FencesFrom; -1: echoes are sent from icmp as well
	local  netip.AddrPort
	dialed bool // connect has been called
	up     bool // the connection is established

	req    request
	ticket *ticket
	out    []byte      // the unsent part of the request
	cpus   unix.CPUSet // that have sent packets of this exchange
	in     incoming
	served bool   // this process has servers, and they have had the chance to answer
	note   string // a remark for Detail, used if nothing better is known

	refusal  icmpMessage // the ICMP error that quotes our packet
	refused  bool
	stray    string // an ICMP error that quotes a packet nearly equal to ours
	echoID   uint16
	echoSeq  uint16
	echoFrom netip.Addr
	echoed   bool
	echoes   int // sent in this exchange
}

// pollable gives the socket to the Go poller.
func (c *Conn) pollable() {
	if c.file == nil {
		c.file = os.NewFile(uintptr(c.fd), "probe") // fd is non-blocking, so it becomes pollable
		c.raw, _ = c.file.SyscallConn()             // fails only on a nil file
	}
}

// RemoteAddr returns the address that the connection was opened to.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.probe.To }

// SetPatience changes Probe.Patience and Probe.IfAccepted for the following exchanges.
func (c *Conn) SetPatience(d time.Duration, ifAccepted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probe.Patience, c.probe.IfAccepted = d, ifAccepted
}

// SetFences changes Probe.Fences for the following exchanges: hosts come and go while a connection is open.
func (c *Conn) SetFences(addrs []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probe.Fences = addrs
}

// Close ends the connection: TCP with RST, UDP without a packet.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return nil
	}
	var errs []error
	if c.tcp && c.probe.Source.Port() != 0 {
		errs = append(errs, disconnect(c.fd))
	}
	owned := []int{c.icmp, c.fences}
	if c.file != nil {
		errs = append(errs, c.file.Close())
	} else {
		owned = append(owned, c.fd)
	}
	for _, fd := range owned {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	c.fd = -1
	return errors.Join(errs...)
}

// Exchange sends one request and returns its outcome. After Silence the next exchange may still succeed: TCP
// retransmits the old request at its own pace, and Exchange skips the answers to older requests.
func (c *Conn) Exchange(ctx context.Context) Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return Answer{Fault: fmt.Errorf("%s: %w", c.probe, os.ErrClosed)}
	}
	release := c.begin()
	defer release()
	start := time.Now()
	a := c.exchange(ctx)
	a.Took, a.Source, a.Nonce = time.Since(start), c.local, c.req.nonce
	if a.Outcome != Reply && c.stray != "" {
		a.Detail += "; " + c.stray
	}
	if a.Fault != nil {
		a.Outcome, a.Fault = 0, fmt.Errorf("%s: %w", c.probe, a.Fault)
	}
	return a
}

// begin prepares a new request and discards the state of the last one.
func (c *Conn) begin() (release func()) {
	c.req = request{nonce: newNonce(), payload: c.probe.Payload}
	body := makePayload(c.req.nonce, c.req.payload)
	c.out = append(c.req.line(), body...)
	c.cpus.Zero()
	c.in.expect(c.req, body)
	if c.dialed {
		c.forgetErrors()
		c.readICMP()
	}
	c.refused, c.stray, c.note, c.echoes = false, "", "", 0
	c.ticket, release = servers.expect(c.req.nonce)
	return release
}

// forgetErrors clears the errors of earlier requests. The kernel keeps the ICMP errors of a UDP socket in its receive
// buffer until they are read (IP_RECVERR, ip(7)): a flow that is refused for long would have no room for an answer.
func (c *Conn) forgetErrors() {
	for err := error(nil); err == nil || err == unix.EINTR; {
		_, _, _, _, err = unix.Recvmsg(c.fd, nil, nil, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	}
	_, _ = unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR) // reading the error clears it
}

func (c *Conn) exchange(ctx context.Context) (a Answer) {
	if len(c.probe.Fences) == 0 {
		a = c.attempt()
	} else {
		a = c.prove(ctx)
	}
	switch {
	case !a.decided():
		return c.wait(ctx, func(waited time.Duration) string {
			return fmt.Sprintf("%sno answer within %v; not fenced", c.remarks(), waited)
		})
	case c.tcp && errors.Is(a.Fault, errDropped): // TCP retransmits by itself
		late := c.wait(ctx, func(time.Duration) string { return "" })
		if late.Outcome != Silence {
			return late
		}
	case a.Outcome == Silence && c.probe.Patience > 0 && (c.up && c.tcp || !c.probe.IfAccepted):
		patient, cancel := machine.WithTimeout(ctx, c.probe.Patience)
		defer cancel()
		return c.wait(patient, func(waited time.Duration) string {
			return fmt.Sprintf("%s, and then no answer within %v", a.Detail, waited)
		})
	}
	return a
}

// attempt goes as far as it can without waiting: it connects, sends, runs the servers of this process and looks.
func (c *Conn) attempt() Answer {
	if a := c.transmit(); a.decided() || !c.up {
		return a
	}
	c.served = servers.serve()
	return c.look()
}

// transmit connects and sends, and notes which CPU has done it. The thread is not tied to one: it would have to wait
// while something else keeps that CPU busy, and other probes for it.
func (c *Conn) transmit() (a Answer) {
	if c.up && len(c.out) == 0 {
		return Answer{}
	}
	cpus, err := cpusOf(func() { a = c.connectAndSend() })
	if err != nil {
		return Answer{Fault: err}
	}
	for i := range c.cpus {
		c.cpus[i] |= cpus[i]
	}
	return a
}

func (c *Conn) connectAndSend() Answer {
	if !c.dialed {
		if a := c.dial(); a.decided() {
			return a
		}
	}
	if !c.up {
		if a := c.look(); a.decided() || !c.up {
			return a
		}
	}
	if len(c.out) == 0 {
		return Answer{}
	}
	return c.send()
}

// provable is the payload that can cross a TCP connection within the first window. The rest may wait for a timer (the
// delayed acknowledgement of RFC 1122 4.2.3.2), which no fence can order.
const provable = 8 << 10

// prove returns attempt with a proof of silence, as far as there can be one.
func (c *Conn) prove(ctx context.Context) (a Answer) {
	dropped, err := droppedBefore()
	if err != nil {
		return Answer{Fault: err}
	}
	start := time.Now()
	progress := func() bool { a = c.attempt(); return a.decided() }
	if progress() {
		return a
	}
	if !c.up { // the handshake is not complete
		if err := c.fenceFrom(ctx, c.cpus, func() bool { return progress() || c.up }); err != nil {
			return Answer{Fault: err}
		}
		if a.decided() || !c.up {
			return c.silence(a, start, dropped)
		}
	}
	if c.tcp && c.req.payload > provable {
		return a
	}
	if err := c.fenceFrom(ctx, c.cpus, progress); err != nil {
		return Answer{Fault: err}
	}
	if a.decided() || !c.served && !c.probe.OwnServers {
		return a
	}
	if _, answered := servers.reached(c.ticket); answered {
		all, err := allowedCPUs() // the answer has been sent, by one of them
		if err == nil {
			err = c.fenceFrom(ctx, all, progress)
		}
		if err != nil {
			return Answer{Fault: err}
		}
	}
	return c.silence(a, start, dropped)
}

// silence returns Silence if a has no outcome, or a fault if the kernel has dropped more packets than before.
func (c *Conn) silence(a Answer, start time.Time, dropped uint64) Answer {
	if a.decided() {
		return a
	}
	switch now, err := droppedPackets(); {
	case err != nil:
		return Answer{Fault: err}
	case now != dropped:
		return Answer{Fault: fmt.Errorf("%sfenced by %d echoes, but %w", c.remarks(), c.echoes, errDropped)}
	}
	d := fmt.Sprintf("fenced by %d echoes in %.2f ms", c.echoes, float64(time.Since(start).Microseconds())/1000)
	return Answer{Outcome: Silence, Detail: c.remarks() + d}
}

// remarks returns everything else that is known about the silence.
func (c *Conn) remarks() string {
	s := ""
	if c.note != "" {
		s = c.note + "; "
	}
	if g, answered := servers.reached(c.ticket); answered {
		s += fmt.Sprintf("%s has seen it from %s and answered; ", g.Server, g.Peer)
	} else if c.tcp && c.up {
		s += "connected; "
	}
	return s
}

// wait continues the exchange until the context ends. describe returns the Detail of a silence.
func (c *Conn) wait(ctx context.Context, describe func(waited time.Duration) string) Answer {
	start := time.Now()
	c.pollable()
	release := c.until(ctx)
	defer release()

	var a Answer
	err := error(nil)
	if !c.up || len(c.out) > 0 {
		err = c.raw.Write(func(uintptr) bool {
			a = c.attempt()
			return a.decided() || c.up && len(c.out) == 0
		})
	}
	if err == nil && !a.decided() {
		err = c.raw.Read(func(uintptr) bool { a = c.look(); return a.decided() })
	}
	switch {
	case a.decided():
		return a
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return Answer{Fault: fmt.Errorf("wait for an answer: %w", err)}
	case errors.Is(ctx.Err(), context.Canceled):
		return Answer{Fault: ctx.Err()}
	}
	return Answer{Outcome: Silence, Detail: describe(time.Since(start).Round(time.Millisecond))}
}

// until makes the poller give up when the context ends.
func (c *Conn) until(ctx context.Context) (release func()) {
	deadline, _ := ctx.Deadline()
	_ = c.file.SetDeadline(deadline) // a zero time is no deadline; fails only if the file is closed
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.file.SetDeadline(time.Unix(1, 0))
		close(ended)
	})
	return func() {
		if !stop() {
			<-ended // otherwise it would cut the next exchange short
		}
	}
}
