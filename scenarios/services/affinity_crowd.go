// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// crowd are many clients outside of the cluster. Each is an address that nobody has, from which the lab's client sends
// single datagrams; which pod gets one, the pods know. Answers get lost, as nobody routes such addresses.
type affinityCrowd struct {
	w    spec.World
	pods []string
	sent atomic.Int64 // datagrams so far, for ports and nonces that are used once
}

// members is more than a client's conntrack entry or a lucky draw could explain, and fewer than the hundred that the
// recent match of iptables remembers for an endpoint.
const members = 60

// source is the address of a member of the crowd. These ranges are for benchmarks and documentation.
func source(f lab.Family, member int) netip.Addr {
	if f == lab.V4 {
		return netip.AddrFrom4([4]byte{198, 18, byte(member >> 8), byte(member)})
	}
	a := netip.MustParseAddr("2001:db8:c0de::").As16()
	a[14], a[15] = byte(member>>8), byte(member)
	return netip.AddrFrom16(a)
}

// send makes members first to last send a datagram each, and returns the pods that got them.
func (c *affinityCrowd) send(ctx context.Context, f lab.Family, to spec.Target, first, last int) ([]string, error) {
	at, err := c.w.Resolve(to, f, "udp")
	if err != nil {
		return nil, err
	}
	client := c.w.Lab().Client().NS
	var nonces []string
	for member := first; member <= last; member++ {
		n := c.sent.Add(1)
		nonce := fmt.Sprintf("%s-%d", c.w.Namespace(), n)
		packet, err := traffic.Datagram{
			Src: netip.AddrPortFrom(source(f, member), uint16(10000+n)), Dst: at, Payload: []byte(nonce + "\n"),
		}.Packet()
		if err != nil {
			return nil, &spec.HarnessError{Err: err}
		}
		if err := traffic.SendRaw(client, packet); err != nil {
			return nil, &spec.HarnessError{Err: err}
		}
		nonces = append(nonces, nonce)
	}
	ctx, cancel := InTime(ctx)
	defer cancel()
	var got []string
	err = observe.Await(ctx, nil, func(context.Context) error {
		got, err = c.whoGot(nonces)
		return err
	})
	return got, err
}

// whoGot are the pods that have got each of the requests.
func (c *affinityCrowd) whoGot(nonces []string) ([]string, error) {
	by := map[string]string{}
	for _, pod := range c.pods {
		server, err := c.w.Server(pod)
		if err != nil {
			return nil, err
		}
		for _, seen := range server.Seen() {
			if first, ok := by[seen.Nonce]; ok && seen.Nonce != "" {
				return nil, fmt.Errorf("datagram %s has reached %s and %s", seen.Nonce, first, pod)
			}
			by[seen.Nonce] = pod
		}
	}
	var got []string
	for i, nonce := range nonces {
		pod, ok := by[nonce]
		if !ok {
			return nil, fmt.Errorf("datagram %d of %d has reached no pod", i+1, len(nonces))
		}
		got = append(got, pod)
	}
	return got, nil
}

// tally counts pods.
func tally(pods []string) map[string]int {
	out := map[string]int{}
	for _, p := range pods {
		out[p]++
	}
	return out
}
