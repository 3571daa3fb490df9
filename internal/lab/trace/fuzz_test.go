// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/hex"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/observe"
)

// A judged program names tables, chains and prefixes of logs as it likes.
func FuzzMessage(f *testing.F) {
	f.Add([]byte("\x08\x00\x01\x00nat\x00\x08\x00\x06\x00\x00\x00\x00\x07\x14\x00\x05\x00\x08\x00\x01\x00\xff\xff\xff\xfd"+
		"\x08\x00\x02\x00out\x00"), true)
	f.Add([]byte("\x08\x00\x01\x00\x08\x00\x03\x00\x08\x00\x02\x00\x00\x00\x40\x00\x09\x00\x0a\x00here\x00\x00\x00\x00"), false)
	f.Fuzz(func(t *testing.T, attributes []byte, rule bool) {
		if rule {
			if m, err := parse(unix.NFPROTO_IPV4, attributes); err == nil {
				key{proto: "tcp", mark: make([]byte, 4)}.header(m.network, m.transport)
			}
			return
		}
		if _, err := parseLogged(append([]byte{0, 1}, attributes...)); err != nil {
			return
		}
	})
}

// Packets of judged programs and of pods are compared with the request of a trace.
func FuzzKey(f *testing.F) {
	for _, p := range [][2]string{
		{"450000280001000040060000010203040506070830390050",
			"45000028000100004006000005060708010203040050303900000009000000025012200000000000"},
		{"45000028000100004006000001020304050607083039005000000001000000005002200000000000",
			"45000028000100004006000005060708010203040050303900000009000000025012200000000000"},
		{"4500002000010000401100000102030405060708300000500014000001020304",
			"4500002000010000401100000506070801020304005030000014000001020304"},
		{"450000300001000040840000010203040506070830000050000000000000000001000014000000070000ffff000a000affffffff",
			"450000300001000040840000050607080102030400503000000000070000000002000014000000080000ffff000a000affffffff"},
		{"450000380001000040010000010203040506070803010000000000004500002800010000400600000506070801020304303900500000000100",
			"4500001c00010000400100000506070801020304000000000001"},
	} {
		a, errA := hex.DecodeString(p[0])
		b, errB := hex.DecodeString(p[1])
		if errA != nil || errB != nil {
			f.Fatal(errA, errB)
		}
		f.Add(a, b)
	}
	f.Fuzz(func(t *testing.T, request, other []byte) {
		p, errP := observe.DecodeIP(request)
		q, errQ := observe.DecodeIP(other)
		if errP != nil || errQ != nil {
			return
		}
		k := keyOf(p)
		reply := k.answer([]Tuple{{Src: p.Src, Dst: p.Dst}})
		_, _ = k.is(q), reply.is(q)
		if q.Quoted != nil && !k.about(q).is(q) {
			t.Errorf("%s is no error about what it quotes", q)
		}
		_ = k.quoted(q)
		size := min(len(other), 20)
		_, _ = k.header(other[:size], other[size:]), reply.header(other[:size], other[size:])
	})
}

// "viplab trace --compare" and "--page" read files that a person may have changed.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"apiVersion": "viplab/v1", "kind": "Trace", "walk": {"steps": []}, "source": "1.2.3.4:5"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := Parse(text)
		for _, traced := range all {
			if err != nil || traced.Walk == nil {
				t.Errorf("%v, %v", traced, err)
			}
		}
	})
}
