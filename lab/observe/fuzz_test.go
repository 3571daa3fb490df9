// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/hex"
	"testing"
)

// packets are the seeds of FuzzDecode: TCP, UDP, ICMP that quotes, IP in IP, VXLAN, fragments, IPv6 with extensions.
var packets = []string{
	"450000280001000040060000c0a80102c0a80103303900500000000100000000500220000000abcd",
	"4500001c000100004011000001020304050607080035003500080000",
	"4500003800010000400100000102030405060708030100000000000045000028000100004006000001020304050607083039005000000001",
	"450000300001000040040000010203040506070845000028000100004006000001020304050607083039005000000001",
	"4500004e00010000401100000102030405060708c00012b5003a0000" + "0800000000000100" + "0102030405060708090a0b0c0800" +
		"450000140001000040060000010203040506070845000000",
	"450000280001200040110000010203040506070800350035001400000102030405060708",
	"600000000010004020010db800000000000000000000000120010db80000000000000000000000023a000000000000008000000000000000",
	"60000000001c3a4020010db800000000000000000000000120010db800000000000000000000000201000000000000006000000000000640" +
		"20010db8",
}

// A judged program, and pods, send any packet that they like.
func FuzzDecode(f *testing.F) {
	for _, p := range packets {
		data, err := hex.DecodeString(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, false)
		f.Add(append(append(make([]byte, 12), 8, 0), data...), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, ethernet bool) {
		p, err := Decode(Frame{Data: data, Ethernet: ethernet})
		if (p == nil) == (err == nil) {
			t.Fatalf("packet %v, error %v", p, err)
		}
		if p != nil && (p.String() == "" || p.Innermost() == nil || len(p.Raw) > len(data)) {
			t.Errorf("%d bytes are %s, of %d bytes", len(data), p, len(p.Raw))
		}
	})
}

// A rule may log any packet under any prefix.
func FuzzLogged(f *testing.F) {
	f.Add([]byte("\x08\x00\x01\x00\x08\x00\x03\x00\x08\x00\x02\x00\x00\x00\x40\x00\x09\x00\x0a\x00here\x00\x00\x00\x00" +
		"\x06\x00\x09\x00\x45\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, attributes []byte) {
		p, err := parseLogged(attributes)
		if err == nil && len(p.Packet) > len(attributes) {
			t.Errorf("a packet of %d bytes in a message of %d", len(p.Packet), len(attributes))
		}
	})
}
