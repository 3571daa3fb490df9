// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"strconv"
	"strings"

	"github.com/viplab/viplab/lab/netns"
)

// Loss is a counter of the kernel that has counted packets which no rule has dropped. It counts those of all senders.
type Loss struct {
	Place   string `json:"place"`
	Counter string `json:"counter"` // such as "TcpExt.IPReversePathFilter"
	Why     string `json:"why"`
	Packets uint64 `json:"packets"`
}

// reasons say why the kernel counts a packet (RFC 4293, and the kernel's Documentation/networking/snmp_counter.rst).
var reasons = []struct{ counter, why string }{
	{"TcpExt.IPReversePathFilter", "rp_filter: replies to the source would leave by another device"},
	{"IpExt.InNoRoutes", "there is no route to the destination"},
	{"Ip.OutNoRoutes", "there is no route to the destination"},
	{"Ip.InAddrErrors", "the destination is no address that this place takes or forwards"},
	{"Ip.InHdrErrors", "the header is wrong, or the last hop is over"},
	{"Ip.InDiscards", "there was no memory, or a filter of a socket"},
	{"Ip.OutDiscards", "it could not be sent"},
	{"Udp.NoPorts", "no socket has the port"},
	{"TcpExt.ListenOverflows", "the listener's queue is full"},
	{"Ip6InNoRoutes", "there is no route to the destination"},
	{"Ip6OutNoRoutes", "there is no route to the destination"},
	{"Ip6InAddrErrors", "the destination is no address that this place takes or forwards"},
	{"Ip6InHdrErrors", "the header is wrong, or the last hop is over"},
	{"Ip6InDiscards", "there was no memory, or a filter of a socket"},
	{"Udp6NoPorts", "no socket has the port"},
}

// counters reads the counters of a namespace.
func counters(ns *netns.NS) (map[string]uint64, error) {
	all := map[string]uint64{}
	for _, name := range []string{"snmp", "netstat", "snmp6"} { // a kernel may lack IPv6
		text, err := ns.ProcNet(name)
		if err != nil {
			return nil, err
		}
		addCounters(all, text)
	}
	return all, nil
}

// addCounters reads lines with a name and a number, and pairs of lines with names and numbers behind "Group:".
func addCounters(all map[string]uint64, text string) {
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 2 && !strings.HasSuffix(words[0], ":") {
			all[words[0]], _ = strconv.ParseUint(words[1], 10, 64) // a number
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i := 1; i < min(len(words), len(names)); i++ {
			group := strings.TrimSuffix(names[0], ":")
			all[group+"."+names[i]], _ = strconv.ParseUint(words[i], 10, 64) // 0 for a setting that is negative
		}
		names = nil
	}
}

// Losses returns the packets that the kernel has dropped, by place, during the trace.
func (t *Tracer) Losses() (losses []Loss) {
	for _, p := range t.spots {
		for _, r := range reasons {
			if n := p.after[r.counter] - p.before[r.counter]; n > 0 {
				losses = append(losses, Loss{p.ns.Name(), r.counter, r.why, n})
			}
		}
	}
	return losses
}
