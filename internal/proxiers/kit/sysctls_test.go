// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"testing"

	"github.com/viplab/viplab/lab/netns"
)

func TestSetAndRestore(t *testing.T) {
	const key = "net.ipv4.ip_default_ttl"
	ns, err := netns.New("n1")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	before, err := ns.Sysctl(key)
	if err != nil {
		t.Fatal(err)
	}
	check := func(want string) {
		t.Helper()
		if got, err := ns.Sysctl(key); got != want || err != nil {
			t.Errorf("got %q (%v), want %q", got, err, want)
		}
	}
	var s sysctls
	if err := s.set(ns, netns.Setting{Key: key, Value: "33"}, netns.Setting{Key: "net.ipv4.no_such_thing", Value: "1"},
		netns.Setting{Key: key, Value: "44"}); err != nil {
		t.Fatal(err)
	}
	check("44")
	if err := s.restore(ns); err != nil {
		t.Fatal(err)
	}
	check(before)
	if err := s.restore(ns); err != nil {
		t.Fatal(err)
	}
	check(before)
}
