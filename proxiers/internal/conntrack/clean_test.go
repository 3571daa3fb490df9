package conntrack

import (
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

// TestClean puts flows into a kernel and looks which of them are left.
func TestClean(t *testing.T) {
	ns, err := netns.New("n1")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	c, err := conntrack.Dial(&netlink.Config{NetNS: ns.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, f := range []*conntrack.Flow{
		flow(unix.IPPROTO_UDP, "10.96.0.10:53", "10.244.1.4:53"),
		flow(unix.IPPROTO_UDP, "192.0.2.1:53", "10.244.1.5:53"),
		flow(unix.IPPROTO_UDP, "192.168.7.11:30053", "192.168.7.11:30053"),
		flow(unix.IPPROTO_UDP, "192.168.7.201:30053", "192.168.7.201:30053"),
		flow(unix.IPPROTO_TCP, "10.96.0.12:80", "10.244.1.4:80"),
		flow(unix.IPPROTO_UDP, "[fd00:10:96::10]:53", "[fd00:10:244:1::4]:53"),
	} {
		if f.TupleOrig.Proto.Protocol == unix.IPPROTO_TCP {
			f.ProtoInfo.TCP = &conntrack.ProtoInfoTCP{State: 3}
		}
		if err := c.Create(*f); err != nil {
			t.Fatalf("%v: %v", f.TupleOrig, err)
		}
	}
	for _, step := range []struct {
		name    string
		answers []*Wanted
		want    []string
	}{
		{"nothing to say", []*Wanted{wanted().Of(nil), NewWanted(nil)}, []string{"10.96.0.10", "10.96.0.12", "192.0.2.1", "192.168.7.11", "192.168.7.201", "fd00:10:96::10"}},
		{"IPv4", []*Wanted{wanted().Of(services(lab.V4))}, []string{"10.96.0.12", "192.0.2.1", "192.168.7.201", "fd00:10:96::10"}},
		{"both", []*Wanted{wanted().Of(services(lab.V4)), wanted().Of(services(lab.V6))}, []string{"10.96.0.12", "192.0.2.1", "192.168.7.201"}},
	} {
		if err := Clean(t.Context(), ns, step.answers...); err != nil {
			t.Fatal(err)
		}
		flows, err := c.Dump(nil)
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, f := range flows {
			left = append(left, f.TupleOrig.IP.DestinationAddress.String())
		}
		slices.Sort(left)
		if !slices.Equal(left, step.want) {
			t.Errorf("%s: left are flows to %q, want %q", step.name, left, step.want)
		}
	}
}
