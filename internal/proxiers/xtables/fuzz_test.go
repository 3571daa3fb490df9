// SPDX-License-Identifier: Apache-2.0

package xtables

import "testing"

// Rules of other programs are in the tables that a proxier reads.
func FuzzSaved(f *testing.F) {
	f.Add([]byte("*nat\n:PREROUTING ACCEPT [1:2]\n:KUBE-A - [0:0]\n[3:4] -A PREROUTING -m comment --comment \"a \\\"b\" -j KUBE-A\n" +
		"-A KUBE-A -d 10.96.0.1/32 -j DNAT --to-destination 10.0.0.1:80\nCOMMIT\n"))
	f.Add([]byte("*filter\n-A\n[1:\n:\nCOMMIT"))
	f.Fuzz(func(t *testing.T, text []byte) {
		tables, err := parseAllSaved(text)
		if err != nil {
			return
		}
		for _, saved := range tables {
			for _, rules := range saved.Chains {
				for _, r := range rules {
					_, _, _ = r.Target(), r.Option("--comment"), r.WithoutComment()
				}
			}
		}
		_ = Annotate(text, map[string]string{"KUBE-A": "a chain"}, func(r Rule) string { return r.Target() })
	})
}
