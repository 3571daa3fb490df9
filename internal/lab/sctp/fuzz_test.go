// SPDX-License-Identifier: Apache-2.0

package sctp

import "testing"

// Any pod may send any packet of SCTP.
func FuzzParse(f *testing.F) {
	for _, m := range []message{
		{src: 1, dst: 2, kind: 1, initTag: 7, cookie: []byte("cookie")}, {src: 1, dst: 2, tag: 7, kind: 10, cookie: []byte("c")},
		{src: 1, dst: 2, tag: 7, kind: 0, data: []byte("data")}, {src: 1, dst: 2, tag: 7, kind: 6},
	} {
		b, err := m.bytes()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		if m, err := parse(packet); err == nil && len(m.data)+len(m.cookie) > len(packet) {
			t.Errorf("%d bytes of data and cookie in a packet of %d", len(m.data)+len(m.cookie), len(packet))
		}
	})
}
