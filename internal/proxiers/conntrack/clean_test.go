// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"errors"
	"slices"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/conntrack"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// tracked is a namespace with a connection to its table.
func tracked(t *testing.T) (*netns.NS, *conntrack.Conn) {
	t.Helper()
	ns, err := netns.New("n1", netns.Setting{Key: "net.netfilter.nf_conntrack_events", Value: "1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	c, err := conntrack.Dial(&netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return ns, c
}

func create(t *testing.T, c *conntrack.Conn, flows ...*conntrack.Flow) {
	t.Helper()
	for _, f := range flows {
		if f.TupleOrig.Proto.Protocol == unix.IPPROTO_TCP {
			f.ProtoInfo.TCP = &conntrack.ProtoInfoTCP{State: 3}
		}
		if err := c.Create(*f); err != nil {
			t.Fatalf("%v: %v", f.TupleOrig, err)
		}
	}
}

// count returns the number of flows in the mirror.
func (m *mirror) count() (n int) {
	for _, flows := range m.flows {
		n += len(flows)
	}
	return n
}

// left are the addresses that the flows of a kernel lead to.
func left(t *testing.T, c *conntrack.Conn) []string {
	t.Helper()
	flows, err := c.Dump(nil)
	if err != nil {
		t.Fatal(err)
	}
	var to []string
	for _, f := range flows {
		to = append(to, f.TupleOrig.IP.DestinationAddress.String())
	}
	slices.Sort(to)
	return to
}

// TestClean puts flows into a kernel and looks which of them are left: flows that the cleaner finds there, and flows
// that it is told of.
func TestClean(t *testing.T) {
	ns, c := tracked(t)
	cleaner := NewCleaner(ns)
	defer cleaner.Close()
	for _, round := range []string{"found", "told"} {
		create(t, c,
			flow(unix.IPPROTO_UDP, "10.96.0.10:53", "10.244.1.4:53"),
			flow(unix.IPPROTO_UDP, "192.0.2.1:53", "10.244.1.5:53"),
			flow(unix.IPPROTO_UDP, "192.168.7.11:30053", "192.168.7.11:30053"),
			flow(unix.IPPROTO_UDP, "192.168.7.201:30053", "192.168.7.201:30053"),
			flow(unix.IPPROTO_TCP, "10.96.0.12:80", "10.244.1.4:80"),
			flow(unix.IPPROTO_UDP, "[fd00:10:96::10]:53", "[fd00:10:244:1::4]:53"),
		)
		for _, step := range []struct {
			name    string
			answers []*Wanted
			want    []string
		}{
			{"nothing to say", []*Wanted{wanted().After(nil, nil), NewWanted(nil)},
				[]string{"10.96.0.10", "10.96.0.12", "192.0.2.1", "192.168.7.11", "192.168.7.201", "fd00:10:96::10"}},
			{"IPv4", []*Wanted{wanted().After(nil, services(lab.V4))}, []string{"10.96.0.12", "192.0.2.1", "192.168.7.201",
				"fd00:10:96::10"}},
			{"both", []*Wanted{wanted().After(nil, services(lab.V4)), wanted().After(nil, services(lab.V6))},
				[]string{"10.96.0.12", "192.0.2.1", "192.168.7.201"}},
		} {
			if err := cleaner.Clean(t.Context(), step.answers...); err != nil {
				t.Fatal(err)
			}
			if left := left(t, c); !slices.Equal(left, step.want) {
				t.Errorf("%s, %s: left are flows to %q, want %q", round, step.name, left, step.want)
			}
		}
		if n := cleaner.mirror.count(); n != 2 {
			t.Errorf("%s: the cleaner knows %d UDP flows, not 2", round, n)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := cleaner.mirror.update(); err != nil || len(cleaner.mirror.flows) != 0 {
			t.Errorf("%s: the cleaner knows flows that have ended: %v, %v", round, cleaner.mirror.flows, err)
		}
	}
}

// TestCleanUntold: the kernel tells more than can be kept, and then nothing.
func TestCleanUntold(t *testing.T) {
	ns, c := tracked(t)
	cleaner := NewCleaner(ns)
	defer cleaner.Close()
	clean := func(when string) {
		t.Helper()
		if err := cleaner.Clean(t.Context(), wanted()); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if left := left(t, c); len(left) > 0 {
			t.Errorf("%s: %d flows are left", when, len(left))
		}
	}
	many := func() {
		for i := range uint16(100) {
			f := flow(unix.IPPROTO_UDP, "10.96.0.10:53", "10.244.1.4:53")
			f.TupleOrig.Proto.SourcePort, f.TupleReply.Proto.DestinationPort = 1024+i, 1024+i
			create(t, c, f)
		}
	}
	clean("no flows")
	if err := cleaner.mirror.events.SetReadBuffer(1); err != nil { // as small as the kernel makes it
		t.Fatal(err)
	}
	many()
	if err := cleaner.mirror.read(); !errors.Is(err, unix.ENOBUFS) {
		t.Fatalf("no events are lost: %v", err)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	many()
	clean("events lost")

	if err := ns.SetSysctls(netns.Setting{Key: "net.netfilter.nf_conntrack_events", Value: "0"}); err != nil {
		t.Fatal(err)
	}
	if err := cleaner.Close(); err != nil {
		t.Fatal(err)
	}
	clean("no flows")
	many()
	clean("events off")
}

// TestToldBeforeTheList: flows begin while a mirror is being made.
func TestToldBeforeTheList(t *testing.T) {
	ns, c := tracked(t)
	m, err := listen(ns)
	defer m.close()
	if err != nil {
		t.Fatal(err)
	}
	create(t, c, flow(unix.IPPROTO_UDP, "10.96.0.10:53", "10.244.1.4:53"))
	if err := m.list(); err != nil || m.count() != 1 {
		t.Errorf("the mirror shows %d flows, not 1: %v", m.count(), err)
	}
}

// A fresh cleaner deletes what a former proxier has translated, and leaves what is served or nobody's.
func TestCleanWhatIsInherited(t *testing.T) {
	ns, c := tracked(t)
	cleaner := NewCleaner(ns)
	defer cleaner.Close()
	create(t, c,
		flow(unix.IPPROTO_UDP, "10.96.0.99:53", "10.244.1.6:53"),
		flow(unix.IPPROTO_UDP, "10.96.0.10:53", "10.244.1.5:53"),
		flow(unix.IPPROTO_UDP, "8.8.8.8:53", "8.8.8.8:53"),
	)
	w := NewWanted(nil)
	w.Inherited = lab.V6
	clean := func() {
		t.Helper()
		if err := cleaner.Clean(t.Context(), w, wanted()); err != nil {
			t.Fatal(err)
		}
	}
	clean()
	if got := left(t, c); len(got) != 3 {
		t.Errorf("after the other family: %v are left, want all", got)
	}
	w = wanted()
	w.Inherited = lab.V4
	clean()
	if got, want := left(t, c), []string{"10.96.0.10", "8.8.8.8"}; !slices.Equal(got, want) {
		t.Errorf("%v are left, want %v", got, want)
	}
}
