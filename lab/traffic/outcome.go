// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net/netip"
	"time"
)

// Outcome is what came of a probe, in one word. The zero value is no outcome: the probe itself did not work.
type Outcome uint8

// The outcomes.
const (
	// Reply is an answer from a server of this package that belongs to the request.
	Reply Outcome = iota + 1
	// Refused is an active refusal by the addressed port: a RST to the SYN, or an ICMP port unreachable.
	Refused
	// Unreachable is an active refusal by the network: no route, an ICMP unreachable other than port unreachable, or
	// ICMP time exceeded.
	Unreachable
	// Reset is an established connection that was ended instead of an answer, by RST or by FIN.
	Reset
	// Silence is no sign of any kind.
	Silence
	// Garbled is an answer that is not what a server of this package says to the request: another program, or bytes
	// changed on the way.
	Garbled
)

var outcomeNames = [...]string{"no outcome", "Reply", "Refused", "Unreachable", "Reset", "Silence", "Garbled"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Port is a port of a protocol, "tcp" or "udp".
type Port struct {
	Proto  string
	Number uint16
}

func (p Port) String() string { return fmt.Sprintf("%s/%d", p.Proto, p.Number) }

// Greeting is a server's answer to one request.
type Greeting struct {
	// Server is the name given to Serve.
	Server string `json:"server"`
	// Peer is whom the server saw, Local the address at which it was reached.
	Peer  netip.AddrPort `json:"peer"`
	Local netip.AddrPort `json:"local"`
	// Nonce is that of the request.
	Nonce string `json:"nonce"`
	// Serial counts the requests of the server, from 1.
	Serial int `json:"serial"`
	// Payload is how many bytes came with the request and go with the answer; Sum is the CRC-32C of those that came.
	Payload int    `json:"payload,omitempty"`
	Sum     uint32 `json:"sum,omitempty"`
}

// Answer is what a probe has to tell.
type Answer struct {
	// Outcome is zero if Fault is set.
	Outcome
	// Greeting is what the server said if the outcome is Reply. Its Nonce is that of the request in any case.
	Greeting
	// Source is the client's own end, if it got as far as having one.
	Source netip.AddrPort
	// Detail says how the outcome is known: "ICMP port unreachable from 192.168.7.11", "RST".
	Detail string
	// Took is the time from the first packet to the outcome.
	Took time.Duration
	// Fault is what was wrong with the probe itself. It says nothing about the network under test.
	Fault error
}

func (a Answer) String() string {
	switch {
	case a.Fault != nil:
		return "fault: " + a.Fault.Error()
	case a.Outcome == Reply:
		return fmt.Sprintf("Reply by %s at %s, seen as %s", a.Server, a.Local, a.Peer)
	case a.Detail != "":
		return a.Outcome.String() + ": " + a.Detail
	}
	return a.Outcome.String()
}

func (a Answer) decided() bool { return a.Outcome != 0 || a.Fault != nil }

// Seen is one event in the life of a server: a request, or an accepted TCP connection (Nonce is empty).
type Seen struct {
	At          time.Time
	Proto       string
	Peer, Local netip.AddrPort
	Nonce       string
}
