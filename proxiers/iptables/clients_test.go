// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// sticky is a Service with session affinity, and endpoints 10.244.0.1 and so on.
func sticky(endpoints int, timeout time.Duration) *store.Snapshot {
	s := proxiertest.Cluster(1, endpoints)
	seconds := int32(timeout / time.Second)
	s.Services[0].Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	s.Services[0].Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
		ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds},
	}
	return s
}

// clientsAt is the set of an endpoint's clients.
func clientsAt(endpoint string) ipset.Set {
	id := model.PortID{Namespace: "test", Name: "svc-00000", Port: "http", Protocol: "TCP"}
	return ipset.Set{Name: dnat.ClientSet(id, netip.MustParseAddrPort(endpoint)), Type: ipset.IP, Family: lab.V4}
}

var first, second = clientsAt("10.244.0.1:8080"), clientsAt("10.244.0.2:8080")

// dialSets connects to the IP sets of the node until the test ends.
func dialSets(t *testing.T, in *instance) *ipset.Conn {
	t.Helper()
	conn, err := ipset.Dial(in.node.Host.NS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// addClient adds a client to a set with a remaining timeout.
func addClient(t *testing.T, in *instance, s ipset.Set, client string, left time.Duration) {
	t.Helper()
	e := ipset.Entry{Addr: netip.MustParseAddr(client), Timeout: left}
	if err := dialSets(t, in).Add(s, e); err != nil {
		t.Fatal(err)
	}
}

// remembered checks that a set has these clients with these timeouts. The kernel counts them down in seconds, and each
// of two changes of the set's timeout may add one.
func remembered(t *testing.T, in *instance, s ipset.Set, want map[string]time.Duration) {
	t.Helper()
	all, err := dialSets(t, in).Entries(s)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]time.Duration{}
	for _, e := range all {
		got[e.Addr.String()] = e.Timeout
	}
	near := func(got, want time.Duration) bool { return got <= want+2*time.Second && got > want-10*time.Second }
	if !maps.EqualFunc(got, want, near) {
		t.Errorf("%s: got %v, want %v", s.Name, got, want)
	}
}

// TestClientsAreRemembered over a restart and a change of the timeout, and forgotten with the endpoint.
func TestClientsAreRemembered(t *testing.T) {
	eachBackend(t, func(t *testing.T, b Backend) {
		node := proxiertest.Node(t, lab.V4)
		in := start(t, b, node)
		proxiertest.Apply(t, in, sticky(2, 100*time.Second))
		addClient(t, in, first, "198.51.100.7", 90*time.Second)
		addClient(t, in, first, "198.51.100.8", 30*time.Second)
		addClient(t, in, second, "198.51.100.9", 90*time.Second)

		in = start(t, b, node)
		proxiertest.Apply(t, in, sticky(2, 100*time.Second))
		remembered(t, in, first, map[string]time.Duration{"198.51.100.7": 90 * time.Second, "198.51.100.8": 30 * time.Second})

		proxiertest.Apply(t, in, sticky(2, 200*time.Second))
		remembered(t, in, first, map[string]time.Duration{"198.51.100.7": 190 * time.Second, "198.51.100.8": 130 * time.Second})

		in = start(t, b, node)
		proxiertest.Apply(t, in, sticky(2, 110*time.Second))
		remembered(t, in, first, map[string]time.Duration{"198.51.100.7": 100 * time.Second, "198.51.100.8": 40 * time.Second})
		proxiertest.Apply(t, in, sticky(2, 60*time.Second))
		remembered(t, in, first, map[string]time.Duration{"198.51.100.7": 50 * time.Second})

		proxiertest.Apply(t, in, sticky(1, 60*time.Second))
		proxiertest.Apply(t, in, sticky(2, 60*time.Second))
		remembered(t, in, first, map[string]time.Duration{"198.51.100.7": 50 * time.Second})
		remembered(t, in, second, nil)
	})
}

// TestSetInUse: a set that foreign rules use is flushed when its endpoint leaves, and destroyed once it is unused.
func TestSetInUse(t *testing.T) {
	eachBackend(t, func(t *testing.T, b Backend) {
		in := start(t, b, proxiertest.Node(t, lab.V4))
		proxiertest.Apply(t, in, sticky(2, time.Minute))
		addClient(t, in, second, "198.51.100.9", time.Minute)
		theirs := xtables.NewRule(xtables.InSet(second.Name, "src"), xtables.Accept)
		restore := func(change func(*xtables.Transaction, string, xtables.Rule)) {
			t.Helper()
			tx := &xtables.Transaction{Table: xtables.Filter}
			change(tx, "INPUT", theirs)
			if err := in.families[0].programs.Restore(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
		}
		restore((*xtables.Transaction).Insert)
		left := sticky(1, time.Minute)
		proxiertest.Apply(t, in, left)
		remembered(t, in, second, nil)
		restore((*xtables.Transaction).Remove)
		for sets := dialSets(t, in); ; proxiertest.Again(t, in, left) {
			held, err := sets.Timeouts("KUBE-SEP-")
			if err != nil {
				t.Fatal(err)
			}
			if len(held) == 1 {
				break
			}
		}
		if got, want := kernelSets(t, in, in.families[0]), []string{"v4 set " + first.Name + " 1m0s"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// TestProbeNamesModule: if the kernel rejects only the rules with sets, the probe names the module that they need.
func TestProbeNamesModule(t *testing.T) {
	node := proxiertest.Node(t, lab.V4)
	start(t, NFT, node) // skips where it cannot run
	for program, script := range map[string]string{
		"iptables-nft-save": "",
		"iptables-nft-restore": `while read -r line; do
case $line in *match-set*) echo "no set match" >&2; exit 2;; \#*) echo "$line";; esac
done
`,
	} {
		path := filepath.Join(t.TempDir(), program)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", filepath.Dir(path)+":"+os.Getenv("PATH"))
	}
	err := definition(NFT).Probe(t.Context(), node.Host.NS, t.TempDir(), lab.V4)
	var unusable *spec.UnusableError
	if !errors.As(err, &unusable) || unusable.Missing != "the kernel module xt_set" ||
		!strings.Contains(unusable.Cure, "no set match") {
		t.Errorf("got %v", err)
	}
}

// kernelSets lists the sets of clients of a family with their timeouts, once the kernel has freed deleted rules.
func kernelSets(t proxiertest.Failer, in *instance, f *family) []string {
	t.Helper()
	for {
		done, err := f.clients.Discard()
		if err != nil {
			t.Fatal(err)
		}
		if done {
			break
		}
	}
	prefix := "KUBE-SEP-"
	if f.rules.family == lab.V6 {
		prefix = "KUBE-6-SEP-"
	}
	conn, err := ipset.Dial(in.node.Host.NS)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sets, err := conn.Timeouts(prefix)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for name, timeout := range sets {
		out = append(out, fmt.Sprintf("%v set %s %v", f.rules.family, name, timeout))
	}
	slices.Sort(out)
	return out
}
