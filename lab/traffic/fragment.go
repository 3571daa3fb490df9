// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// Fragments cuts an IP packet without options or extension headers into fragments, in order, with at most size bytes of
// its payload each. size is a multiple of 8 (RFC 791 3.2, RFC 8200 4.5).
func Fragments(packet []byte, size int) ([][]byte, error) {
	header := 40
	if len(packet) > 0 && packet[0]>>4 == 4 {
		header = 20
	}
	if len(packet) <= header || size <= 0 || size%8 != 0 {
		return nil, fmt.Errorf("fragments of %d bytes of a packet of %d: want a multiple of 8, and a payload", size,
			len(packet))
	}
	id := rand.Uint32() | 1 // the kernel replaces a 0 in IPv4
	payload := packet[header:]
	var out [][]byte
	for at := 0; at < len(payload); at += size {
		end := min(at+size, len(payload))
		piece := fragment4
		if header == 40 {
			piece = fragment6
		}
		out = append(out, piece(packet[:header], payload[at:end], id, at, end < len(payload)))
	}
	return out, nil
}

func fragment4(header, payload []byte, id uint32, at int, more bool) []byte {
	b := append(append([]byte(nil), header...), payload...)
	field := uint16(at / 8)
	if more {
		field |= 0x2000 // MF
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	binary.BigEndian.PutUint16(b[4:], uint16(id))
	binary.BigEndian.PutUint16(b[6:], field)
	binary.BigEndian.PutUint16(b[10:], 0)
	binary.BigEndian.PutUint16(b[10:], checksum(b[:20]))
	return b
}

func fragment6(header, payload []byte, id uint32, at int, more bool) []byte {
	const extension = 8
	b := append(append([]byte(nil), header...), make([]byte, extension)...)
	b[40] = b[6] // the protocol of the payload
	b[6] = unix.IPPROTO_FRAGMENT
	field := uint16(at) // in units of 8 bytes, above three bits of flags
	if more {
		field |= 1
	}
	binary.BigEndian.PutUint16(b[4:], uint16(extension+len(payload)))
	binary.BigEndian.PutUint16(b[42:], field)
	binary.BigEndian.PutUint32(b[44:], id)
	return append(b, payload...)
}
