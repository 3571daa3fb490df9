// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Volley fires many probes in the time of a few. A target answers only with its number; contents are not checked.
//
// A connection is only its handshake, and the datagrams of one sender share a socket, because packets and system calls
// are what a volley costs. A connection ends without a packet, so nodes that track it consider it open.
//
// The senders are distributed over the CPUs. All probes of one sender leave from one CPU, so all their effects have
// happened once the fences that follow on that CPU are answered (see Silence in the package comment). Targets answer on
// the threads of the volley, which send fences after their answers too.
type Volley struct {
	fence   *netns.NS
	fences  []netip.Addr
	targets []*target
}

// Target is a machine that answers a volley.
type Target struct {
	NS    *netns.NS
	Addrs []netip.Addr
	Ports []Port
}

// Shot is one probe of a volley.
type Shot struct {
	From *netns.NS
	To   netip.AddrPort
	// Proto is "tcp" or "udp".
	Proto string
}

// Hit is the result of a shot.
type Hit struct {
	// Outcome is Reply, Refused, Unreachable, Reset or Silence.
	Outcome Outcome
	// Target is the index of the target that answered. If the answer came from another host, no target has this index.
	Target int
	// Port is the port that the shot was sent from.
	Port uint16
}

// NewVolley makes the targets listen. Every address of fences must answer echo requests from the namespace fence,
// regardless of the shots. The paths there and back must be as long as those of any shot together.
func NewVolley(targets []Target, fence *netns.NS, fences []netip.Addr) (*Volley, error) {
	v := &Volley{fence: fence, fences: fences}
	err := netns.DoInMany(func(enter func(*netns.NS) error) error {
		for i, t := range targets {
			if err := enter(t.NS); err != nil {
				return err
			}
			opened, err := listenAsTarget(i, t)
			v.targets = append(v.targets, opened)
			if err != nil {
				return fmt.Errorf("%s: listen for volleys: %w", t.NS.Name(), err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// Close closes the targets' sockets.
func (v *Volley) Close() error {
	var errs []error
	for _, t := range v.targets {
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}

// volleyPort is the source port of all senders. Each volley has another, which no old conntrack entry matches.
var volleyPort atomic.Uint32

// Fire sends the shots, and returns when no packet that they caused is under way any more.
func (v *Volley) Fire(ctx context.Context, shots []Shot) ([]Hit, error) {
	dropped, err := droppedPackets()
	if err != nil {
		return nil, err
	}
	port := uint16(firstPort + volleyPort.Add(1)%portCount)
	senders := sendersOf(shots, port)
	defer func() {
		for _, s := range senders {
			s.close()
		}
		for _, t := range v.targets {
			t.hangUp()
		}
	}()
	if err := v.fireAll(ctx, senders); err != nil {
		return nil, err
	}
	hits := make([]Hit, len(shots))
	for _, s := range senders {
		if err := s.look(hits); err != nil {
			return nil, fmt.Errorf("%s: %w", s.ns.Name(), err)
		}
	}
	if now, err := droppedPackets(); err != nil || now != dropped {
		return nil, errors.Join(err, errDropped)
	}
	return hits, nil
}

// fireAll fires a share of the senders from every CPU that the process may use.
func (v *Volley) fireAll(ctx context.Context, senders []*sender) error {
	allowed, err := allowedCPUs()
	if err != nil {
		return err
	}
	cpus := numbers(allowed)
	errs := make([]error, min(len(cpus), len(senders)))
	var all sync.WaitGroup
	for i := range errs {
		var part []*sender
		for j := i; j < len(senders); j += len(errs) {
			part = append(part, senders[j])
		}
		all.Go(func() {
			errs[i] = netns.DoInMany(func(enter func(*netns.NS) error) error {
				var failed error
				err := onCPU(cpus[i], func() { failed = v.fire(ctx, part, enter) })
				return errors.Join(err, failed)
			})
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// fire fires the senders from this thread. When it returns, nothing that the thread has sent is under way.
func (v *Volley) fire(ctx context.Context, senders []*sender, enter func(*netns.NS) error) error {
	for _, s := range senders {
		if err := enter(s.ns); err != nil {
			return err
		}
		if err := s.send(); err != nil {
			return fmt.Errorf("%s: %w", s.ns.Name(), err)
		}
		v.answer()
	}
	if err := enter(v.fence); err != nil {
		return err
	}
	echoes, err := v.openFence()
	if err != nil {
		return err
	}
	defer unix.Close(echoes.icmp)
	for answered := true; answered; answered = v.answer() { // an answer too is under way until a fence has followed it
		if err := echoes.fence(ctx, func() bool { return false }); err != nil {
			return err
		}
	}
	return nil
}

// openFence returns a client in the namespace of the thread that only sends echoes.
func (v *Volley) openFence() (*Conn, error) {
	icmp, err := openICMP(netns.Domain(v.fences[0]))
	if err != nil {
		return nil, err
	}
	p := Probe{From: v.fence, Fences: v.fences}
	return &Conn{probe: p, echoID: uint16(echoID.Add(1)), icmp: icmp, fences: -1}, nil
}

// answer makes every target answer all requests that have reached it, and reports whether there were any.
func (v *Volley) answer() bool {
	some := false
	for _, t := range v.targets {
		some = t.answer() || some
	}
	return some
}
