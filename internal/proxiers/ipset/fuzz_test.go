// SPDX-License-Identifier: Apache-2.0

package ipset

import (
	"testing"

	"github.com/mdlayher/netlink"
)

// Other programs make sets, too, with entries of any type.
func FuzzEntries(f *testing.F) {
	f.Add([]byte("\x24\x00\x08\x80\x20\x00\x07\x80\x0c\x00\x01\x80\x08\x00\x01\x40\x01\x02\x03\x04\x05\x00\x03\x00\x18\x00\x00\x00\x08\x00\x06\x40" +
		"\x00\x00\x00\x3c"))
	f.Fuzz(func(t *testing.T, message []byte) {
		d, err := netlink.NewAttributeDecoder(message)
		if err != nil {
			return
		}
		for d.Next() {
			for _, e := range decodeEntries(d) {
				_, _ = e.Range.String(), e.Source.String()
			}
		}
	})
}
