// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/viplab/viplab/internal/lab/nstest"
	"github.com/viplab/viplab/internal/lab/trace"
	"github.com/viplab/viplab/internal/live"
)

// traced runs a trace and returns its result.
func traced(t *testing.T, args ...string) *live.Traced {
	t.Helper()
	code, out, stderr := outcome(t, append([]string{"trace", "-o", "json"}, args...)...)
	var r live.Traced
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("trace %q: exit code %d: %v: %s%s", args, code, err, out, stderr)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	if err := traceSchema(t).Validate(value); err != nil {
		t.Errorf("trace %q: docs/schema/trace.json does not allow what it prints: %v", args, err)
	}
	return &r
}

func traceSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../../docs/schema/trace.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// changes returns which fields of the packet each step has changed, without the state, which older kernels do not tell.
func changes(w *trace.Walk) (all []string) {
	for _, s := range w.Steps {
		changed := slices.DeleteFunc(slices.Clone(s.Changed), func(c string) bool { return c == "state" })
		if len(changed) > 0 {
			all = append(all, s.Place+" "+s.Hook+" "+strings.Join(changed, " "))
		}
	}
	return all
}

// last returns the addresses of a packet after the last change at a place.
func last(w *trace.Walk, place string) string {
	now := w.First
	for _, s := range w.Steps {
		if s.After != nil && s.Place == place {
			now = *s.After
		}
	}
	return fmt.Sprintf("%s > %s", now.Src, now.Dst)
}

// agrees wants a walk to end on the node n1 with the addresses of the conntrack entry and of the packet on the wire.
func agrees(t *testing.T, r *live.Traced) {
	t.Helper()
	var reply string
	for _, f := range r.Flows {
		if m := regexp.MustCompile(`\| (\S+) -> (\S+)`).FindStringSubmatch(f.Flow); f.Node == "n1" && m != nil {
			reply = m[2] + " > " + m[1]
		}
	}
	wire := ""
	for _, s := range r.Walk.Steps {
		if s.Place == "n1" && s.Direction == "out" && wire == "" {
			wire = s.Packet
		}
	}
	if got := last(r.Walk, "n1"); got != reply || !strings.Contains(wire, got) {
		t.Errorf("the packet leaves n1 as %s, connection tracking has %s, the wire %s", got, reply, wire)
	}
}

// rulesOf returns what a trace must not change, but for the counters.
func rulesOf(t *testing.T, node string) string {
	t.Helper()
	out := succeeds(t, "exec", node, "--", "sh", "-c", "nft list ruleset; iptables-legacy-save; sysctl net.netfilter.nf_log")
	return regexp.MustCompile(`packets \d+ bytes \d+|(?m)^#.*\n|\[\d+:\d+\]`).ReplaceAllString(out, "")
}

func TestTrace(t *testing.T) {
	withLab(t, "--nodes", "2", "-f", write(t, "far.yaml", clientPod))
	type walk struct {
		args string
		want []string
	}
	marked := []walk{
		{"c1 far", []string{"n1 prerouting destinationIP destinationPort"}},
		{"client n1:30081", []string{
			"n1 prerouting mark", "n1 prerouting destinationIP destinationPort", "n1 postrouting mark",
			"n1 postrouting sourceIP sourcePort",
		}},
		{"n1 svc/far", []string{
			"n1 output mark", "n1 output destinationIP destinationPort", "n1 postrouting mark",
			"n1 postrouting sourceIP sourcePort",
		}},
	}
	unmarked := []walk{marked[0], {"client n1:30081", []string{
		"n1 prerouting destinationIP destinationPort", "n1 postrouting sourceIP sourcePort",
	}}}
	for proxier, walks := range map[string][]walk{"iptables": marked, "iptables-legacy": marked, "nftables": unmarked} {
		succeeds(t, "switch", "--proxier", proxier)
		before := rulesOf(t, "n1")
		for _, c := range walks {
			r := traced(t, strings.Fields(c.args)...)
			if got := changes(r.Walk); r.Outcome != "Reply" || !slices.Equal(got, c.want) {
				t.Errorf("%s: trace %s: %s; changes\n%s\nwant\n%s", proxier, c.args, r.Verdict, strings.Join(got, "\n"),
					strings.Join(c.want, "\n"))
			}
			agrees(t, r)
		}
		if after := rulesOf(t, "n1"); after != before {
			t.Errorf("%s: the trace has changed rules: before\n%s\nafter\n%s", proxier, before, after)
		}
	}
	r := traced(t, "client", "n1:30081", "--reply")
	want := []string{"n1 prerouting destinationIP destinationPort", "n1 postrouting sourceIP sourcePort"}
	if got := changes(r.Reply); !slices.Equal(got, want) {
		t.Errorf("changes of the answer: %q, want %q", got, want)
	}
	if got := last(r.Reply, "n1"); got != fmt.Sprintf("%s > %s", r.Address, r.Source) {
		t.Errorf("the answer leaves n1 as %s", got)
	}
	refused(t, "trace c1 far -o yaml", `--output: want text, json, html or pcapng, not "yaml"`)
	refused(t, "trace c1 far --proto gre", `protocol "gre": want tcp, udp, sctp or icmp`)
	refused(t, "trace lan far", "lan cannot send")
}

// A trace in a file is printed in each format, and beside a new one.
func TestTraceOutputs(t *testing.T) {
	withLab(t, "--nodes", "2", "-f", write(t, "far.yaml", clientPod))
	before := write(t, "before.json", succeeds(t, "trace", "client", "n1:30081", "--reply", "-o", "json"))
	text := succeeds(t, "trace", before)
	for _, want := range []string{"client 192.168.7.201:", "*0x4000", "The answer"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the text: %s", want, text)
		}
	}
	if page := succeeds(t, "trace", before, "-o", "html"); !strings.HasPrefix(page, "<!doctype html>") {
		t.Errorf("the page begins with %.100s", page)
	}
	if file := succeeds(t, "trace", before, "-o", "pcapng"); !strings.HasPrefix(file, "\x0a\x0d\x0d\x0a") {
		t.Errorf("the file of packets begins with %.10q", file)
	}
	if got := succeeds(t, "trace", before, "--compare", before); regexp.MustCompile(`(?m)^[-+] `).MatchString(got) {
		t.Errorf("a trace beside itself differs: %s", got)
	}
	succeeds(t, "switch", "--proxier", "nftables")
	got := succeeds(t, "trace", "client", "n1:30081", "--reply", "--compare", before)
	for _, want := range []string{"--- iptables: client", "+++ nftables: client", "\n  device eth0 in: ", "\n- prerouting [-100] iptables-nft ip nat: ",
		"\n+ prerouting [-100] nftables ip kube-proxy"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in the comparison: %s", want, got)
		}
	}
	if page := succeeds(t, "trace", "client", "n1:30081", "--compare", before, "-o", "html"); !strings.Contains(page, "iptables | nftables") {
		t.Error("no page of two traces")
	}
	refused(t, "trace "+before+" --compare "+before+" -o json", `--output: want text or html with --compare, not "json"`)
	refused(t, "trace client n1:30081 --compare "+write(t, "x.json", `{"kind": "Rules"}`), `x.json: want what "viplab trace -o json" writes`)
	refused(t, "trace /does/not/exist", "no such file")
}

// The probes of a trace whose command is killed go away.
func TestTraceIsKilled(t *testing.T) {
	withLab(t, "--nodes", "2", "-f", write(t, "far.yaml", clientPod))
	succeeds(t, "exec", "n1", "--", "iptables-legacy", "-I", "INPUT", "-p", "udp", "--dport", "99", "-j", "DROP")
	succeeds(t, "rules", "n1") // waits until the rules are complete
	before := rulesOf(t, "n1")
	cmd := viplab(t, "trace", "client", "n1:99", "--proto", "udp") // waits for an answer that may be late
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx := nstest.Within(t)
	for !strings.Contains(rulesOf(t, "n1"), "viplab-trace") && ctx.Err() == nil {
	}
	cmd.Process.Kill()
	cmd.Wait()
	after := rulesOf(t, "n1")
	for ; after != before && ctx.Err() == nil; after = rulesOf(t, "n1") {
	}
	if after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func TestTraceThroughIPVS(t *testing.T) {
	skipWithout(t, "proxier ipvs")
	t.Cleanup(func() { nothingLeft(t) })
	t.Cleanup(func() { down("looked-into") })
	succeeds(t, "up", "looked-into", "--ip", "4", "--nodes", "2", "--proxier", "ipvs", "-f",
		write(t, "far.yaml", clientPod))
	r := traced(t, "client", "n1:30081")
	want := []string{
		"n1 prerouting mark", "n1 input destinationIP destinationPort", "n1 postrouting mark",
		"n1 postrouting sourceIP sourcePort",
	}
	if got := changes(r.Walk); r.Outcome != "Reply" || !slices.Equal(got, want) {
		t.Errorf("%s; changes\n%s\nwant\n%s", r.Verdict, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	agrees(t, r)
	if !slices.ContainsFunc(r.Walk.Steps, func(s trace.Step) bool {
		return strings.HasPrefix(s.Flow, fmt.Sprintf("tcp %s -> %s => ", r.Source, r.Address))
	}) {
		t.Errorf("no step has the connection of IPVS: %+v", r.Walk.Steps)
	}
}

func TestTraceOfRelaysAndDrops(t *testing.T) {
	withLab(t, "--nodes", "2", "-f", write(t, "far.yaml", clientPod), "--proxier", "userspace")
	r := traced(t, "client", "n1:30081")
	if got := changes(r.Walk); !slices.Equal(got, []string{"n1 prerouting destinationIP destinationPort"}) || r.Relayed == nil {
		t.Fatalf("changes of a relayed connection: %q, and then %v", got, r.Relayed)
	}
	if devices := r.Relayed.Steps; devices[0].Place != "n1" || devices[len(devices)-1].Place != "default/a1" {
		t.Errorf("the connection of the relay: %+v", devices)
	}
	r = traced(t, "c1", "kube-system/kube-dns")
	want := []string{"n1 prerouting destinationIP destinationPort", "n1 input destinationIP destinationPort sourceIP sourcePort"}
	if got := changes(r.Walk); r.Proto != "udp" || !slices.Equal(got, want) {
		t.Errorf("%s: changes of a datagram: %q", r.Proto, got)
	}
	succeeds(t, "exec", "n1", "--", "sh", "-c",
		"sysctl -w net.ipv4.conf.all.rp_filter=1; ip route add 192.168.7.201 dev cni0")
	if code, out, _ := outcome(t, "trace", "client", "n1:30081"); code != 1 ||
		!regexp.MustCompile(`n1  TcpExt\.IPReversePathFilter \d+: rp_filter`).MatchString(out) {
		t.Errorf("a packet from a wrong device: exit code %d: %s", code, out)
	}
	succeeds(t, "exec", "n1", "--", "ip", "route", "del", "192.168.7.201")
	succeeds(t, "exec", "n2", "--", "iptables-legacy", "-I", "FORWARD", "-p", "tcp", "--dport", "8080", "-j", "DROP")
	succeeds(t, "switch", "--proxier", "iptables")
	code, out, stderr := outcome(t, "trace", "c1", "far")
	if code != 1 || !strings.Contains(out, "\nDropped on n2 by: forward [0] iptables-legacy ip filter: "+
		"-A FORWARD -p tcp -m tcp --dport 8080 -j DROP => drop\n") {
		t.Errorf("a dropped packet: exit code %d: %s%s", code, out, stderr)
	}
}
