// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Outcome is the result of a probe, in one word. The zero value is no outcome: the probe itself failed.
type Outcome uint8

// The outcomes.
const (
	// Reply is an answer to the request from a server of this package.
	Reply Outcome = iota + 1
	// Refused is an active refusal by the addressed port: a RST to the SYN, or an ICMP port unreachable.
	Refused
	// Unreachable is an active refusal by the network: no route, another ICMP unreachable, or ICMP time exceeded.
	Unreachable
	// Reset is an established connection that ended by RST or FIN before an answer.
	Reset
	// Silence is no answer and no error.
	Silence
	// Garbled is an answer that no server of this package gives: from another program, or changed on the way.
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
	// Server is the name passed to Serve: NAMESPACE/NAME for pods of a cluster.
	Server string `json:"server"`
	// Peer is the client's address as the server saw it. Local is the server's address that the client reached.
	Peer  netip.AddrPort `json:"peer"`
	Local netip.AddrPort `json:"local"`
	// Nonce is the nonce of the request.
	Nonce string `json:"nonce"`
	// Serial counts the requests of the server, from 1.
	Serial int `json:"serial"`
	// Payload is how many bytes came with the request and go with the answer. Sum is the CRC-32C of those that came.
	Payload int    `json:"payload,omitempty"`
	Sum     uint32 `json:"sum,omitempty"`
}

// Answer is the result of a probe.
type Answer struct {
	// Outcome is zero if Fault is set.
	Outcome
	// Greeting is the server's answer if the outcome is Reply. Its Nonce is always that of the request.
	Greeting
	// Source is the client's own address and port. It is the zero value if the probe failed before it had one.
	Source netip.AddrPort
	// Detail names the evidence for the outcome: "ICMP port unreachable from 192.168.7.11", "RST".
	Detail string
	// Took is the time from the first packet to the outcome.
	Took time.Duration
	// Fault is an error of the probe itself. It says nothing about the network under test.
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

// Arrival is one event of a server: a request, or an accepted TCP connection (Nonce is empty).
type Arrival struct {
	At          time.Time
	Proto       string
	Peer, Local netip.AddrPort
	Nonce       string
}

const (
	maxLine     = 4096  // bytes of a request or greeting line; longer ones are not of this protocol
	maxPayload  = 65507 // bytes that an IPv4 datagram can carry besides the headers
	maxDatagram = 65535 // bytes of a UDP payload at most, rounded up
)

// castagnoli returns the polynomial's table. It is made on first use: that takes a fifth of a millisecond.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// request is the first line of a request.
type request struct {
	nonce   string
	payload int
}

func (r request) line() []byte {
	if r.payload == 0 {
		return []byte(r.nonce + "\n")
	}
	return fmt.Appendf(nil, "%s %d\n", r.nonce, r.payload)
}

func parseRequest(line []byte) (request, error) {
	nonce, size, sized := strings.Cut(strings.TrimSpace(string(line)), " ")
	if !sized {
		return request{nonce: nonce}, nil
	}
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 {
		return request{}, fmt.Errorf("request line %q: %q is not a number of bytes", line, size)
	}
	return request{nonce: nonce, payload: n}, nil
}

// cutLine splits off the first line, without its newline. In a datagram the newline may be missing.
func cutLine(b []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(b, []byte{'\n'})
	return line, rest
}

func (g Greeting) line() []byte {
	b, err := json.Marshal(g)
	if err != nil {
		panic(err) // strings and numbers only: cannot happen
	}
	return append(b, '\n')
}

func parseGreeting(line []byte) (Greeting, error) {
	var g Greeting
	if err := json.Unmarshal(line, &g); err != nil {
		return g, fmt.Errorf("%.60q is not a greeting", line)
	}
	return g, nil
}

// payloadOf returns an endless stream that a payload begins. Both ends compute it from the nonce.
func payloadOf(nonce string) *rand.ChaCha8 { return rand.NewChaCha8(sha256.Sum256([]byte(nonce))) }

func makePayload(nonce string, n int) []byte {
	if n == 0 {
		return nil // most requests
	}
	b := make([]byte, n)
	_, _ = payloadOf(nonce).Read(b) // never fails
	return b
}

var (
	nonceBase    = strconv.FormatUint(rand.Uint64(), 36)
	nonceCounter atomic.Uint64
)

// newNonce returns a nonce that is unique in this process and, because of its random part, among processes. The number
// comes first: what traces nftables shows only the first 12 bytes of a datagram's payload.
func newNonce() string { return strconv.FormatUint(nonceCounter.Add(1), 36) + "-" + nonceBase }
