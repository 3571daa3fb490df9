// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/viplab/viplab/internal/lab/ruleset"
)

func TestElementsThatARuleFinds(t *testing.T) {
	set := func(name string, texts ...string) *ruleset.Set {
		s := &ruleset.Set{Name: name}
		for _, text := range texts {
			s.Elements = append(s.Elements, ruleset.Element{Text: text})
		}
		return s
	}
	table := &ruleset.Table{Sets: []*ruleset.Set{
		set("services", `10.96.0.1 . tcp . 443 comment "a" : goto x`, `10.96.0.1 . tcp . 80 comment "b : c" : goto y`,
			`fd00::1 . tcp . 80 : goto z`),
		set("ports", "tcp . 8000-8100 : drop", "udp . 53 : drop"),
		set("nets", "192.0.2.0/25", "192.0.2.128-192.0.2.200"),
		set("pods", "10.244.1.2 timeout 5s", "10.244.1.20"),
	}}
	at := netip.MustParseAddrPort
	now := Tuple{Src: at("10.244.1.2:4000"), Dst: at("10.96.0.1:80")}
	for _, c := range []struct {
		rule string
		now  Tuple
		want []string
	}{
		{"ip daddr . meta l4proto . th dport vmap @services", now, []string{`10.96.0.1 . tcp . 80 comment "b : c" : goto y`}},
		{"dnat ip to ip daddr . meta l4proto . th dport map @services", now, []string{`10.96.0.1 . tcp . 80 comment "b : c" : goto y`}},
		{"ip6 daddr . meta l4proto . tcp dport vmap @services", Tuple{Src: at("[fd00::2]:1"), Dst: at("[fd00::1]:80")}, []string{"fd00::1 . tcp . 80 : goto z"}},
		{"ip daddr . meta l4proto . th dport vmap @services", Tuple{Src: now.Src, Dst: at("10.96.0.1:8")}, nil},
		{"meta l4proto . th dport vmap @ports", Tuple{Src: now.Src, Dst: at("10.96.0.1:8100")}, []string{"tcp . 8000-8100 : drop"}},
		{"meta l4proto . th dport vmap @ports", Tuple{Src: now.Src, Dst: at("10.96.0.1:9000")}, nil},
		{"meta l4proto . th dport vmap @ports", Tuple{Src: now.Src, Dst: at("10.96.0.1:53")}, nil},
		{"ip saddr @nets accept", Tuple{Src: at("192.0.2.7:1"), Dst: now.Dst}, []string{"192.0.2.0/25"}},
		{"ip saddr @nets accept", Tuple{Src: at("192.0.2.199:1"), Dst: now.Dst}, []string{"192.0.2.128-192.0.2.200"}},
		{"ip saddr @nets accept", Tuple{Src: at("192.0.2.201:1"), Dst: now.Dst}, nil},
		{"ip saddr @pods ip daddr . meta l4proto . th dport vmap @services", now, []string{"10.244.1.2 timeout 5s", `10.96.0.1 . tcp . 80 comment "b : c" : goto y`}},
		{"ip saddr != @pods drop", now, nil},
		{"ip daddr . meta mark vmap @services", now, nil},
		{"ip daddr @nosuch", now, nil},
	} {
		var got []string
		for _, e := range elements(table, c.rule, "tcp", c.now) {
			got = append(got, e.Text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s finds %q for %s > %s, want %q", c.rule, got, c.now.Src, c.now.Dst, c.want)
		}
	}
}
