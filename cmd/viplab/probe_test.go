// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/viplab/viplab/internal/live"
)

const clientPod = `
apiVersion: v1
kind: Pod
metadata: {name: c1}
spec:
  nodeName: n1
  containers: [{name: c, image: pause}]
---
apiVersion: v1
kind: Pod
metadata: {name: a1, labels: {app: far}}
spec:
  nodeName: n2
  containers: [{name: a, image: nginx, ports: [{containerPort: 8080}]}]
---
apiVersion: v1
kind: Service
metadata: {name: far}
spec: {type: NodePort, selector: {app: far}, ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30081}]}
`

func TestProbe(t *testing.T) {
	withLab(t, "--nodes", "2", "-f", write(t, "far.yaml", clientPod))
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"c1 far", 0, []string{
			`default/c1 10\.244\.1\.\d+:\d+ -> svc/default/far 10\.96\.\d+\.\d+:80/tcp\nReply by default/a1`,
			`which saw 10\.244\.1\.\d+:\d+ \(default/c1\)\n  default/c1 +eth0 +out`,
			`(?s)n1 +cni0 +in .* destination now default/a1.*n2 +cni0 +out`,
		}},
		{"client n1:30081", 0, []string{`(?s)client +eth0 +out.*n1 +eth0 +in.*source now n1.*n2 +cni0 +out`}},
		{"c1 pod/a1", 0, []string{`a1 10\.244\.2\.\d+:8080/tcp\nReply by default/a1`}},
		{"n2 svc/far:http", 0, []string{`Reply by default/a1`}},
		{"c1 kube-system/kube-dns", 0, []string{`:53/udp\nAnswer of a program that is no echo server`}},
		{"client n1:99", 1, []string{`Refused: RST`}},
		{"client 10.96.1.1:80", 1, []string{`Unreachable: ICMP net unreachable from 192\.168\.7\.1\n`}},
	} {
		code, out, stderr := outcome(t, strings.Fields("probe "+c.args)...)
		if code != c.code {
			t.Errorf("probe %s: exit code %d, want %d: %s", c.args, code, c.code, stderr)
		}
		for _, want := range c.want {
			if !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("probe %s does not match %q:\n%s", c.args, want, out)
			}
		}
	}
	refused(t, "probe c1 nosuch", `"nosuch" is neither a Service nor a machine or pod`)
	refused(t, "probe c1 far --ip 6", "svc/default/far has no IPv6 address")
	refused(t, "probe client n1", "n1: want a port: n1:80")
	refused(t, "probe lan far", "lan cannot send")
	if out := succeeds(t, "conntrack", "n1"); !regexp.MustCompile(`\| 10\.244\.2\.\d+:8080 -> .*# .*svc/default/far`).
		MatchString(out) {
		t.Errorf("conntrack lacks the flow:\n%s", out)
	}
	forPrograms(t)
}

// unread wants a command whose output nobody reads to end without a word, as SIGPIPE ends other programs.
func unread(t *testing.T, args ...string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	cmd := viplab(t, args...)
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = w, &stderr
	if _ = cmd.Run(); cmd.ProcessState.ExitCode() != 141 || stderr.Len() > 0 {
		t.Errorf("%v ends with %s and says %q", args, cmd.ProcessState, stderr.String())
	}
}

// forPrograms checks what probe and conntrack print for programs.
func forPrograms(t *testing.T) {
	t.Helper()
	var probed live.Probed
	if err := yaml.Unmarshal([]byte(succeeds(t, "probe", "client", "n1:30081", "-o", "yaml")), &probed); err != nil {
		t.Fatal(err)
	}
	last := probed.Path[len(probed.Path)-1]
	if probed.Outcome != "Reply" || probed.Server != "default/a1" || probed.Seen != last.Source ||
		probed.Local != last.Destination {
		t.Errorf("the request that %+v has seen is not the one that came to %+v", probed, last)
	}
	code, out, _ := outcome(t, "probe", "client", "n1:99", "-o", "json")
	if err := json.Unmarshal([]byte(out), &probed); err != nil || code != 1 || probed.Outcome != "Refused" {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
	refused(t, "probe client n1:99 -o xml", `--output: "xml": want json or yaml`)
	found := false
	for line := range strings.Lines(succeeds(t, "conntrack", "n1", "-o", "json")) {
		var e live.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		found = found || e.DNAT && e.SNAT && e.Replied && e.Original.Destination.Port() == 30081 &&
			e.Reply.Source == last.Destination && slices.Contains(e.Names, "default/a1")
	}
	if !found {
		t.Error("no entry in JSON is that of the client's request")
	}
	unread(t, "conntrack", "n1")
	refused(t, "conntrack n1 -o yaml", `--output: "yaml": want text or json`)
}

// said runs a command that goes on, until one of its lines contains a text.
func said(t *testing.T, want string, meanwhile func(), args ...string) {
	t.Helper()
	cmd := viplab(t, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	notes, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Signal(os.Interrupt)
	if strings.Contains(strings.Join(args, " "), "capture") {
		awaitLine(t, bufio.NewScanner(notes), "capturing")
	}
	go meanwhile()
	awaitLine(t, bufio.NewScanner(out), want)
}

// timestamps begin what tcpdump prints of a packet; what VXLAN carries has a line of its own.
var timestamps = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.`)

func TestWatchingPackets(t *testing.T) {
	withLab(t, "--nodes", "2", "-f", write(t, "far.yaml", clientPod))
	stop := make(chan struct{})
	defer close(stop)
	probe := func() { // the table may be watched only after the first one
		for {
			select {
			case <-stop:
				return
			default:
				viplab(t, "probe", "c1", "far").Run()
			}
		}
	}
	said(t, "SYN_SENT", probe, "conntrack", "n1", "--follow")
	said(t, " > 10.244.2.", probe, "capture", "n1/cni0")
	said(t, "(in ", probe, "capture", "n2", "--match", "SYN")
	said(t, " > ", probe, "capture", "default/c1/eth0")
	go probe()
	file := write(t, "x.pcapng", succeeds(t, "capture", "lan", "--pcapng", "--count", "3"))
	if tcpdump, err := exec.LookPath("tcpdump"); err == nil {
		out, err := exec.Command(tcpdump, "-n", "-r", file).Output()
		if n := len(timestamps.FindAll(out, -1)); err != nil || n != 3 {
			t.Errorf("tcpdump reads %d packets, want 3: %v\n%s", n, err, out)
		}
	}
	refused(t, "capture n1/nosuch", `n1 has no device "nosuch"`)
	refused(t, "conntrack c1", `"c1" is not a node`)
}
