// SPDX-License-Identifier: Apache-2.0

package ipset_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// dial opens a connection, or skips the test on a kernel without IP sets: it rejects the netlink messages.
func dial(t testing.TB) *ipset.Conn {
	t.Helper()
	ns, err := netns.New("n1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	c, err := ipset.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Names(""); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("this kernel has no IP sets: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return c
}

func create(t testing.TB, c *ipset.Conn, s ipset.Set) {
	t.Helper()
	if err := c.Create(s); err != nil {
		t.Fatal(err)
	}
}

var (
	v4, v6 = netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00:10:96::a")
	sets   = []struct {
		set     ipset.Set
		entries []ipset.Entry
		text    string
	}{
		{ipset.Set{Name: "addrs", Type: ipset.IP, Family: lab.V4}, []ipset.Entry{{Addr: v4}}, "10.96.0.10"},
		{ipset.Set{Name: "addrs-6", Type: ipset.IP, Family: lab.V6}, []ipset.Entry{{Addr: v6}}, "fd00:10:96::a"},
		{ipset.Set{Name: "ports", Type: ipset.Port}, []ipset.Entry{{Port: 30080}, {Port: 30081}}, "30080"},
		{ipset.Set{Name: "vips", Type: ipset.IPPort, Family: lab.V4}, []ipset.Entry{
			{Addr: v4, Proto: unix.IPPROTO_TCP, Port: 53}, {Addr: v4, Proto: unix.IPPROTO_UDP, Port: 53},
		}, "10.96.0.10,tcp:53"},
		{ipset.Set{Name: "loops", Type: ipset.IPPortIP, Family: lab.V6}, []ipset.Entry{
			{Addr: v6, Proto: unix.IPPROTO_SCTP, Port: 80, Source: netip.PrefixFrom(v6, 128)},
		}, "fd00:10:96::a,sctp:80,fd00:10:96::a"},
		{ipset.Set{Name: "ranges", Type: ipset.IPPortNet, Family: lab.V4}, []ipset.Entry{
			{Addr: v4, Proto: unix.IPPROTO_TCP, Port: 80, Source: netip.MustParsePrefix("192.0.2.0/24")},
			{Addr: v4, Proto: unix.IPPROTO_TCP, Port: 80, Source: netip.MustParsePrefix("198.51.100.7/32")},
		}, "10.96.0.10,tcp:80,192.0.2.0/24"},
	}
)

// TestEntriesComeBack: what is put into a set of each type is what the kernel lists, and nothing is left of what is
// deleted.
func TestEntriesComeBack(t *testing.T) {
	c := dial(t)
	for _, s := range sets {
		t.Run(s.set.Name, func(t *testing.T) {
			create(t, c, s.set)
			for range 2 { // the second time changes nothing
				if err := c.Add(s.set, s.entries...); err != nil {
					t.Fatal(err)
				}
				expect(t, c, s.set, s.entries...)
			}
			if got := s.entries[0].String(); got != s.text {
				t.Errorf("reads as %q, want %q", got, s.text)
			}
			for range 2 {
				if err := c.Delete(s.set, s.entries[0]); err != nil {
					t.Fatal(err)
				}
				expect(t, c, s.set, s.entries[1:]...)
			}
		})
	}
}

func expect(t *testing.T, c *ipset.Conn, s ipset.Set, want ...ipset.Entry) {
	t.Helper()
	got, err := c.Entries(s)
	if err != nil {
		t.Fatal(err)
	}
	order := func(a, b ipset.Entry) int { return strings.Compare(a.String(), b.String()) }
	slices.SortFunc(got, order)
	want = slices.SortedFunc(slices.Values(want), order)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestManyEntries: more than a message holds, more than the kernel lists in one.
func TestManyEntries(t *testing.T) {
	c := dial(t)
	s := ipset.Set{Name: "many", Type: ipset.IPPortIP, Family: lab.V6}
	create(t, c, s)
	var all []ipset.Entry
	for port := range uint16(3000) {
		all = append(all, ipset.Entry{Addr: v6, Proto: unix.IPPROTO_TCP, Port: port + 1, Source: netip.PrefixFrom(v6, 128)})
	}
	if err := c.Add(s, all...); err != nil {
		t.Fatal(err)
	}
	expect(t, c, s, all...)
	if err := c.Delete(s, all[1:]...); err != nil {
		t.Fatal(err)
	}
	expect(t, c, s, all[0])
}

// TestCreateAndDestroy: a set that is there stays as it is; one that holds something else is not taken for it.
func TestCreateAndDestroy(t *testing.T) {
	c := dial(t)
	s := ipset.Set{Name: "vips", Type: ipset.IPPort, Family: lab.V4}
	entry := ipset.Entry{Addr: v4, Proto: unix.IPPROTO_TCP, Port: 80}
	create(t, c, s)
	if err := c.Add(s, entry); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(s); err != nil {
		t.Error("create again:", err)
	}
	expect(t, c, s, entry)
	if err := c.Create(ipset.Set{Name: "vips", Type: ipset.IPPort, Family: lab.V6}); err == nil {
		t.Error("a set of the other family passes for this one")
	}
	if err := c.Create(ipset.Set{Name: "vips", Type: ipset.IP, Family: lab.V4}); err == nil {
		t.Error("a set of another type passes for this one")
	}
	for range 2 {
		if err := c.Destroy(s); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, c, s)
	if err := c.Add(s, entry); err == nil {
		t.Error("an entry went into a set that does not exist")
	}
}

// TestTimeouts: entries go when their time has come, and sets are listed with their timeouts.
func TestTimeouts(t *testing.T) {
	c := dial(t)
	short := ipset.Set{Name: "clients-1", Type: ipset.IP, Family: lab.V4, Timeout: time.Second, Buckets: 128}
	long := ipset.Set{Name: "clients-2", Type: ipset.IP, Family: lab.V4, Timeout: time.Hour}
	other := ipset.Set{Name: "addrs", Type: ipset.IP, Family: lab.V4}
	for _, s := range []ipset.Set{short, long, other} {
		create(t, c, s)
	}
	want := map[string]time.Duration{short.Name: time.Second, long.Name: time.Hour}
	if got, err := c.Timeouts("clients-"); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	if got, err := c.Timeouts("addrs"); err != nil || !maps.Equal(got, map[string]time.Duration{"addrs": 0}) {
		t.Errorf("a set without a timeout: got %v (%v)", got, err)
	}
	other4 := netip.MustParseAddr("192.0.2.1")
	if err := c.Add(short, ipset.Entry{Addr: v4}, ipset.Entry{Addr: other4, Timeout: time.Hour}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := observe.Await(ctx, nil, func(context.Context) error {
		left, err := c.Entries(short)
		if err == nil && (len(left) != 1 || left[0].Addr != other4 || left[0].Timeout <= time.Hour-time.Minute) {
			err = fmt.Errorf("left %v", left)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestSwapAndFlush: two sets have each other's entries and timeouts, until they are emptied.
func TestSwapAndFlush(t *testing.T) {
	c := dial(t)
	a := ipset.Set{Name: "a", Type: ipset.IP, Family: lab.V4, Timeout: time.Minute}
	b := ipset.Set{Name: "b", Type: ipset.IP, Family: lab.V4}
	create(t, c, a)
	create(t, c, b)
	entry := ipset.Entry{Addr: v4}
	if err := c.Add(b, entry); err != nil {
		t.Fatal(err)
	}
	if err := c.Swap(a, b); err != nil {
		t.Fatal(err)
	}
	expect(t, c, a, entry)
	expect(t, c, b)
	want := map[string]time.Duration{"a": 0, "b": time.Minute}
	if got, err := c.Timeouts(""); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
	if err := c.Flush(a); err != nil {
		t.Fatal(err)
	}
	expect(t, c, a)
	gone := ipset.Set{Name: "gone"}
	if c.Swap(a, gone) == nil || c.Flush(gone) == nil {
		t.Error("no error for a set that does not exist")
	}
}

func BenchmarkAdd(b *testing.B) {
	c := dial(b)
	s := ipset.Set{Name: "many", Type: ipset.IPPort, Family: lab.V4}
	create(b, c, s)
	var all []ipset.Entry
	for port := range uint16(10000) {
		all = append(all, ipset.Entry{Addr: v4, Proto: unix.IPPROTO_TCP, Port: port + 1})
	}
	for b.Loop() {
		if err := c.Add(s, all...); err != nil {
			b.Fatal(err)
		}
	}
}
