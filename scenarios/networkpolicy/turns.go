// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/viplab/viplab/lab"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// turns closes a flow that nobody answers, and opens it again. Of what was sent meanwhile, a first part must have
// arrived, and then a last one.
func turns(ctx context.Context, w spec.World, f lab.Family, from, to *Socket) error {
	for _, turn := range []struct {
		change spec.Action
		first  bool // what arrives is the first part
	}{{Apply(policy("p", pod("a1"), ingress())), true}, {Delete("NetworkPolicy", "p"), false}} {
		if err := w.Settle(ctx); err != nil {
			return err
		}
		s := stream{from: from, to: to}
		err := s.sendMeanwhile(func() error {
			if err := turn.change.Run(ctx, w); err != nil {
				return &spec.HarnessError{Err: err}
			}
			return w.Settle(ctx)
		})
		if err != nil {
			return err
		}
		if err := w.Expect(ctx, open("b1", "b2")...); err != nil { // a fence
			return err
		}
		if err := s.hear(); err != nil {
			return err
		}
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
func (s *stream) send() error {
	const room = 50
	if err := s.from.Send(s.to.Addr(), strconv.Itoa(s.sent)); err != nil {
		return err
	}
	if s.sent++; s.sent%room == 0 {
		return s.hear()
	}
	return nil
}

// sendMeanwhile sends while something is done, and some before and after.
func (s *stream) sendMeanwhile(do func() error) error {
	const around = 5
	done := make(chan error, 1)
	ticks := time.NewTicker(sendPause)
	defer ticks.Stop()
	for left := -1; left != 0; {
		if err := s.send(); err != nil {
			return err
		}
		if s.sent == around {
			go func() { done <- do() }()
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
func (s *stream) hear() error {
	heard, err := s.to.Heard()
	for _, text := range heard {
		n, err := strconv.Atoi(text)
		if err != nil {
			return &spec.HarnessError{Err: err}
		}
		s.arrived = append(s.arrived, n)
	}
	return err
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
