// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/lab/sctp"
	"github.com/viplab/viplab/internal/lab/trace"
)

// sights returns the places and directions of a walk's devices.
func sights(w *trace.Walk) (all []string) {
	for _, s := range w.Steps {
		if s.Device != "" {
			all = append(all, s.Place+" "+s.Device+" "+s.Direction)
		}
	}
	return all
}

func TestTraceOfOtherProtocols(t *testing.T) {
	withLab(t, "--ip", "dual", "--nodes", "2", "-f", write(t, "far.yaml", clientPod))
	for _, ip := range []string{"4", "6"} {
		for range 2 { // the second echo is a flow of its own
			r := traced(t, "c1", "n2", "--proto", "icmp", "--reply", "--ip", ip)
			if r.Outcome != "Reply" || r.Walk.Last().State != "NEW" || r.Reply.End == nil || r.Reply.End.Place != "default/c1" ||
				len(r.Flows) != 2 || !r.Flows[0].Made {
				t.Errorf("an echo: %s, %+v, %+v, %+v", r.Verdict, r.Walk.Last(), r.Reply.End, r.Flows)
			}
		}
	}
	if sctp.Available() == nil {
		r := traced(t, "c1", "pod/a1:99", "--proto", "sctp")
		if e := r.Walk.End; r.Outcome != "Refused" || e.Cause != trace.CausePort || e.Place != "default/a1" || len(r.Errors) != 1 {
			t.Errorf("a pod without SCTP: %s, %+v", r.Verdict, e)
		}
	}
	r := traced(t, "client", "n1:99", "--proto", "udp", "--payload", "3000")
	want := slices.Concat(slices.Repeat([]string{"client eth0 out"}, 3), slices.Repeat([]string{"n1 eth0 in"}, 3))
	if got := sights(r.Walk); !slices.Equal(got, want) {
		t.Errorf("the fragments of a datagram: %q, want %q", got, want)
	}
	succeeds(t, "exec", "n2", "--", "ip", "link", "set", "cni0", "mtu", "1000")
	r = traced(t, "c1", "pod/a1:99", "--proto", "udp", "--payload", "1300")
	if e := r.Walk.End; r.Outcome != "Unreachable" || e.Cause != trace.CauseSize || e.Place != "n2" {
		t.Errorf("a datagram that is too big for n2: %s, %+v", r.Verdict, e)
	}
}

// masked are ports, identifications and time stamps, which differ from run to run.
var masked = regexp.MustCompile(`"(data|at)": "[^"]*"|:\d{4,5}\b|\d+ms`)

func TestTheSameQuestionGivesTheSameWalk(t *testing.T) {
	withLab(t, "--nodes", "2", "-f", write(t, "far.yaml", clientPod))
	for _, proxier := range []string{"iptables", "nftables"} {
		succeeds(t, "switch", "--proxier", proxier)
		var first string
		for range 5 {
			r := traced(t, "client", "n1:30081", "--reply")
			text, err := json.MarshalIndent(r, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			now := masked.ReplaceAllString(string(text), "*")
			if first == "" {
				first = now
			}
			if now != first {
				t.Fatalf("%s: first\n%s\nthen\n%s", proxier, first, now)
			}
		}
	}
	brief := succeeds(t, "trace", "client", "n1:30081", "--brief", "--count", "2")
	if n := strings.Count(brief, "Reply by default/a1"); n != 2 || strings.Contains(brief, "device eth0") || strings.Contains(brief, "\x1b") {
		t.Errorf("two traces in brief: %s", brief)
	}
	refused(t, "trace client n1:30081 --count 0", "--count: want 1 or more, not 0")
	refused(t, "trace client n1:30081 --payload -1", "payload of -1 bytes: want 0 to 65000")
	many := write(t, "many.json", succeeds(t, "trace", "client", "n1:30081", "--count", "2", "-o", "json"))
	if page := succeeds(t, "trace", many, "-o", "html"); strings.Count(page, `"kind":"Trace"`) != 2 {
		t.Error("the page of two traces does not have two")
	}
	if text := succeeds(t, "trace", many, "--brief"); strings.Count(text, "Reply by default/a1") != 2 {
		t.Errorf("two traces of a file: %s", text)
	}
	refused(t, "trace client n1:30081 --count 2 --compare "+many, "many.json: want one trace, not 2")
}

const nearPod = `
apiVersion: v1
kind: Pod
metadata: {name: b1, labels: {app: near}}
spec: {nodeName: n1, containers: [{name: a, image: nginx, ports: [{containerPort: 8080}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: near}
spec: {type: NodePort, selector: {app: near}, ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30082}]}
`

func TestTraceShowsEveryVisit(t *testing.T) {
	withLab(t, "--nodes", "2", "-f", write(t, "far.yaml", clientPod), "-f", write(t, "near.yaml", nearPod))
	for args, want := range map[string][]string{
		"c1 n2:30082": {"default/c1", "n1", "n2", "n1", "default/b1"}, // the only endpoint is back on n1
		"b1 near":     {"default/b1", "n1", "default/b1"},
	} {
		var got []string
		for _, s := range traced(t, strings.Fields(args)...).Walk.Steps {
			got = append(got, s.Place)
		}
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("trace %s: visits %q, want %q", args, got, want)
		}
	}
}
