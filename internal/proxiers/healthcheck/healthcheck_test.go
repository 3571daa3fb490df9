// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func loopback(t *testing.T) *netns.NS {
	t.Helper()
	ns, err := netns.New("n1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	lo, err := ns.Netlink().LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Netlink().LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	second, err := netlink.ParseAddr("192.168.7.11/32")
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Netlink().AddrAdd(lo, second); err != nil {
		t.Fatal(err)
	}
	return ns
}

// unexpected is for tests in which all ports are free.
func unexpected(t *testing.T) func(Check, error) {
	return func(c Check, err error) { t.Errorf("%+v: %v", c, err) }
}

// well is the health of a proxier that has programmed all changes.
func well() bool { return true }

// get asks a port and returns the status, the weight and the body, or "refused".
func get(t *testing.T, ns *netns.NS, at string) (string, string, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, to string) (net.Conn, error) {
			return ns.Dial(ctx, "tcp", netip.AddrPort{}, netip.MustParseAddrPort(to))
		},
	}}
	r, err := client.Get("http://" + at + "/any/path")
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "refused", "", ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.Status, r.Header.Get("X-Load-Balancing-Endpoint-Weight"), strings.TrimSpace(string(body))
}

func TestAnswers(t *testing.T) {
	ns := loopback(t)
	s := New(ns, lab.V4, well, unexpected(t))
	check := func(what string, checks []Check, status, weight, body string) {
		t.Helper()
		if err := s.Sync(t.Context(), checks, nil); err != nil {
			t.Fatal(err)
		}
		if a, b, c := get(t, ns, "127.0.0.1:32000"); a != status || b != weight || c != body {
			t.Errorf("%s: got %q, %q, %q\nwant %q, %q, %q", what, a, b, c, status, weight, body)
		}
	}
	web := Check{Namespace: "shop", Name: "web", Port: 32000, LocalEndpoints: 2}
	check("endpoints", []Check{web}, "200 OK", "2",
		`{"service":{"namespace":"shop","name":"web"},"localEndpoints":2,"serviceProxyHealthy":true}`)
	web.LocalEndpoints = 0
	check("no endpoints", []Check{web}, "503 Service Unavailable", "0",
		`{"service":{"namespace":"shop","name":"web"},"localEndpoints":0,"serviceProxyHealthy":true}`)
	web.LocalEndpoints = 1
	check("endpoints again", []Check{web}, "200 OK", "1",
		`{"service":{"namespace":"shop","name":"web"},"localEndpoints":1,"serviceProxyHealthy":true}`)
	web.Port = 32001
	check("other port", []Check{web}, "refused", "", "")
	if status, _, _ := get(t, ns, "192.168.7.11:32001"); status != "200 OK" {
		t.Errorf("the new port on any address: got %q", status)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if status, _, _ := get(t, ns, "127.0.0.1:32001"); status != "refused" {
		t.Errorf("closed: got %q", status)
	}
}

func TestListensWhereTold(t *testing.T) {
	ns := loopback(t)
	s := New(ns, lab.V4, well, unexpected(t))
	defer s.Close()
	web := []Check{{Port: 32000, LocalEndpoints: 1}}
	if err := s.Sync(t.Context(), web, []netip.Addr{netip.MustParseAddr("192.168.7.11")}); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{"192.168.7.11:32000": "200 OK", "127.0.0.1:32000": "refused"} {
		if got, _, _ := get(t, ns, at); got != want {
			t.Errorf("%s: got %q, want %q", at, got, want)
		}
	}
}

// TestBusyPort: a port that another program holds is reported, the others open, and it opens once it is free.
func TestBusyPort(t *testing.T) {
	ns := loopback(t)
	other, err := ns.Listen(t.Context(), "tcp4", "0.0.0.0:32000")
	if err != nil {
		t.Fatal(err)
	}
	var taken []string
	s := New(ns, lab.V4, well, func(c Check, err error) {
		if errors.Is(err, syscall.EADDRINUSE) {
			taken = append(taken, c.Namespace+"/"+c.Name)
		}
	})
	defer s.Close()
	checks := []Check{{Namespace: "shop", Name: "web", Port: 32000, LocalEndpoints: 1}, {Port: 32001, LocalEndpoints: 1}}
	if err := s.Sync(t.Context(), checks, nil); err != nil || !slices.Equal(taken, []string{"shop/web"}) {
		t.Errorf("busy port: told of %v (%v)", taken, err)
	}
	if got, _, _ := get(t, ns, "127.0.0.1:32001"); got != "200 OK" {
		t.Errorf("the other port: got %q", got)
	}
	other.Close()
	if err := s.Sync(t.Context(), checks, nil); err != nil {
		t.Error(err)
	}
	if len(taken) > 1 {
		t.Errorf("the port is free, but reported: %v", taken)
	}
	if got, _, _ := get(t, ns, "127.0.0.1:32000"); got != "200 OK" {
		t.Errorf("once it was free: got %q", got)
	}
}

// TestFamilies: each family has its own listeners on the same port.
func TestFamilies(t *testing.T) {
	ns := loopback(t)
	four, six := New(ns, lab.V4, well, unexpected(t)), New(ns, lab.V6, well, unexpected(t))
	defer four.Close()
	defer six.Close()
	if err := four.Sync(t.Context(), []Check{{Port: 32000, LocalEndpoints: 4}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := six.Sync(t.Context(), []Check{{Port: 32000, LocalEndpoints: 6}}, nil); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{"127.0.0.1:32000": "4", "[::1]:32000": "6"} {
		if _, got, _ := get(t, ns, at); got != want {
			t.Errorf("%s: got weight %q, want %q", at, got, want)
		}
	}
}
