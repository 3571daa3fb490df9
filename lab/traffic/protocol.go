// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

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

// payloadOf returns an endless stream. The payload of a request, and of its answer, is the beginning of it. Both ends
// can compute it from the nonce, so neither has to store it.
func payloadOf(nonce string) *rand.ChaCha8 { return rand.NewChaCha8(sha256.Sum256([]byte(nonce))) }

func makePayload(nonce string, n int) []byte {
	b := make([]byte, n)
	_, _ = payloadOf(nonce).Read(b) // never fails
	return b
}

var (
	nonceBase    = strconv.FormatUint(rand.Uint64(), 36)
	nonceCounter atomic.Uint64
)

// newNonce returns a nonce that is unique in this process and, because of its random part, among processes.
func newNonce() string { return nonceBase + "-" + strconv.FormatUint(nonceCounter.Add(1), 36) }
