// SPDX-License-Identifier: Apache-2.0

package ipset_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/lab"
)

// TestRanges: ranges are kept as they were given, and sets are found by how their names begin.
func TestRanges(t *testing.T) {
	c := dial(t)
	s := ipset.Set{Name: "mine-ranges", Type: ipset.Net, Family: lab.V4}
	want := []string{"10.0.0.0/8", "10.1.0.0/16 nomatch", "192.0.2.1"}
	entries := []ipset.Entry{
		{Range: netip.MustParsePrefix("10.0.0.0/8")}, {Range: netip.MustParsePrefix("10.1.0.0/16"), NoMatch: true},
		{Range: netip.MustParsePrefix("192.0.2.1/32")},
	}
	create(t, c, s)
	for _, err := range []error{c.Create(ipset.Set{Name: "theirs", Type: ipset.IP, Family: lab.V4}),
		c.Add(s, entries...)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := c.Entries(s)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range all {
		got = append(got, e.String())
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if names, err := c.Names("mine-"); err != nil || !slices.Equal(names, []string{s.Name}) {
		t.Errorf("names %q, %v", names, err)
	}
}
