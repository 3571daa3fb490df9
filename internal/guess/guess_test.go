// SPDX-License-Identifier: Apache-2.0

package guess

import "testing"

func TestClosest(t *testing.T) {
	known := []string{"iptables", "iptables-legacy", "nftables", "ipvs"}
	for word, want := range map[string]string{
		"iptbles": "iptables", "IPTables": "iptables", "nftable": "nftables", "iptables-legcy": "iptables-legacy",
		"ebpf": "", "": "",
	} {
		if got := Closest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
