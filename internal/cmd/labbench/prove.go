// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/cmd/bench"
	"github.com/viplab/viplab/lab"
)

// late is when a first packet counts as late, lost when it is given up.
const (
	late = 100 * time.Millisecond
	lost = 3 * time.Second
)

type prober struct {
	fds map[lab.Family]int
	id  uint16
}

func newProber(p *lab.Pod, id uint16) (*prober, error) {
	out := &prober{fds: map[lab.Family]int{}, id: id}
	for _, a := range p.Addrs() {
		domain, protocol := unix.AF_INET, unix.IPPROTO_ICMP
		if a.Is6() {
			domain, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
		}
		fd, err := p.Socket(domain, unix.SOCK_RAW, protocol)
		if err != nil {
			return nil, errors.Join(err, out.close())
		}
		out.fds[lab.FamilyOf(a)] = fd
		patience := unix.NsecToTimeval(lost.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
			return nil, errors.Join(err, out.close())
		}
	}
	return out, nil
}

func (p *prober) close() error {
	var err error
	for _, fd := range p.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

func (p *prober) send(to netip.Addr, seq uint16) error {
	b := [8]byte{0: 8}
	binary.BigEndian.PutUint16(b[4:], p.id)
	binary.BigEndian.PutUint16(b[6:], seq)
	if to.Is6() {
		b[0] = 128
		return unix.Sendto(p.fds[lab.V6], b[:], 0, &unix.SockaddrInet6{Addr: to.As16()})
	}
	sum := uint32(8)<<8 + uint32(p.id) + uint32(seq)
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum>>16+sum&0xffff))
	return unix.Sendto(p.fds[lab.V4], b[:], 0, &unix.SockaddrInet4{Addr: to.As4()})
}

// receive reads packets until one is a reply to this prober, and returns its sequence number. False means none came.
func (p *prober) receive(f lab.Family) (uint16, bool, error) {
	var buf [256]byte
	for {
		n, _, err := unix.Recvfrom(p.fds[f], buf[:], 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, false, nil
		case err != nil:
			return 0, false, err
		}
		b, reply := buf[:n], byte(129)
		if f == lab.V4 && n >= 20 {
			b, reply = b[20:], 0
		}
		if len(b) >= 8 && b[0] == reply && binary.BigEndian.Uint16(b[4:]) == p.id {
			return binary.BigEndian.Uint16(b[6:]), true, nil
		}
	}
}

// measureProof builds a lab and lets every pod ping every other.
func measureProof(ctx context.Context, d *drain, s size, rounds int) (proofRow, error) {
	var row proofRow
	var builds, proofs, sums []time.Duration
	for range rounds {
		start := time.Now()
		l, err := lab.Build(ctx, topology(lab.Topology{}, s))
		if err != nil {
			return row, err
		}
		built := time.Since(start)
		pairs, missing, err := proveAll(l)
		sum := time.Since(start)
		if err := errors.Join(err, l.Close(), d.wait()); err != nil {
			return row, err
		}
		builds, proofs, sums = append(builds, built), append(proofs, sum-built), append(sums, sum)
		row.Pairs, row.Lost = pairs, row.Lost+missing
	}
	row.Build, row.Proof, row.Median = bench.MedianMS(builds), bench.MedianMS(proofs), bench.MedianMS(sums)
	return row, nil
}

// proveAll pings between all pairs of pods, from two threads, and counts the pairs and those without a reply.
func proveAll(l *lab.Lab) (pairs, missing int, err error) {
	pods := l.Pods()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for half := range 2 {
		wg.Go(func() {
			for i := half; i < len(pods); i += 2 {
				sent, got, problem := proveOne(pods, i)
				mu.Lock()
				pairs, missing, err = pairs+sent, missing+sent-got, errors.Join(err, problem)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return pairs, missing, err
}

// proveOne pings from one pod to all others. The kernel answers while it sends, so a few requests are sent before their
// replies are read.
func proveOne(pods []*lab.Pod, from int) (sent, got int, err error) {
	const window = 16
	p, err := newProber(pods[from], uint16(from))
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	open := 0
	for to := range pods {
		if to != from {
			if err := p.send(pods[to].Addrs()[0], uint16(to)); err != nil {
				return sent, got, fmt.Errorf("%s to %s: %w", pods[from].Name(), pods[to].Name(), err)
			}
			sent, open = sent+1, open+1
		}
		for open == window || open > 0 && to == len(pods)-1 {
			_, ok, err := p.receive(lab.FamilyOf(pods[to].Addrs()[0]))
			if err != nil {
				return sent, got, err
			}
			if ok {
				got++
			}
			open--
		}
	}
	return sent, got, nil
}

// measureFresh builds one lab after the other and looks at the first packet on every path between pods, both families.
func measureFresh(ctx context.Context, labs int) (freshRow, error) {
	var row freshRow
	var builds []time.Duration
	for range labs {
		start := time.Now()
		l, err := lab.Build(ctx, topology(lab.Topology{Stack: lab.Dual}, size{3, 3}))
		if err != nil {
			return row, err
		}
		builds = append(builds, time.Since(start))
		if err := errors.Join(row.look(l), l.Close()); err != nil {
			return row, err
		}
	}
	row.Labs, row.Build = labs, bench.MedianMS(builds)
	return row, nil
}

// look sends one packet on every path of a lab.
func (row *freshRow) look(l *lab.Lab) error {
	for i, from := range l.Pods() {
		p, err := newProber(from, uint16(i))
		if err == nil {
			err = errors.Join(row.lookFrom(p, from, l.Pods()), p.close())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", from.Name(), err)
		}
	}
	return nil
}

func (row *freshRow) lookFrom(p *prober, from *lab.Pod, pods []*lab.Pod) error {
	for j, to := range pods {
		if to == from {
			continue
		}
		for _, a := range to.Addrs() {
			start := time.Now()
			if err := p.send(a, uint16(j)); err != nil {
				return fmt.Errorf("to %s: %w", a, err)
			}
			_, ok, err := p.receive(lab.FamilyOf(a))
			if err != nil {
				return err
			}
			took := time.Since(start)
			row.Packets++
			switch {
			case !ok:
				row.Lost++
			case took > late:
				row.Late++
			}
			row.Worst = max(row.Worst, bench.Milliseconds(took))
		}
	}
	return nil
}
