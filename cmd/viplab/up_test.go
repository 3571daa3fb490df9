// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/live"
	"github.com/viplab/viplab/internal/live/registry"
	"github.com/viplab/viplab/proxiers"
	"github.com/viplab/viplab/suite/spec"
)

// These tests do not run in parallel: each counts the labs of the user.

// succeeds runs a command that must succeed, and returns what it prints.
func succeeds(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := outcome(t, args...)
	if code != 0 {
		t.Fatalf("viplab %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// up starts a lab for the time of the test and returns what the command prints.
func up(t *testing.T, name string, args ...string) string {
	t.Helper()
	t.Cleanup(func() { down(name) })
	return succeeds(t, append([]string{"up", name}, args...)...)
}

// down ends a lab, if it runs, at the end of a test, whose context is over.
func down(name string) {
	cmd := exec.Command("/proc/self/exe", "down", name)
	cmd.Env = append(os.Environ(), commandVariable+"=1")
	cmd.Run()
}

// holder returns the number of the process that holds a lab.
func holder(t *testing.T, name string) int {
	t.Helper()
	f, err := registry.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.File(registry.Process))
	var pid int
	if _, scanErr := fmt.Sscan(string(text), &pid); err != nil || scanErr != nil {
		t.Fatal(err, scanErr)
	}
	return pid
}

// nothingLeft wants no lab, no folder and no process to be left.
func nothingLeft(t *testing.T) {
	t.Helper()
	if labs, err := registry.List(); err != nil || len(labs) != 0 {
		t.Errorf("labs are left: %v, %v", labs, err)
	}
	if left, _ := filepath.Glob("/run/viplab-labs*"); len(left) > 0 {
		t.Errorf("folders are left: %v", left)
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		if text, _ := os.ReadFile(file); strings.Contains(string(text), "\x00hold\x00") {
			t.Errorf("a process is left: %q", text)
		}
	}
}

const webLab = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: nginx, ports: [{containerPort: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, nodePort: 30080}]}
`

// write writes a file for a test and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestALabStays(t *testing.T) {
	out := up(t, "first", "--nodes", "2", "--ip", "4", "-f", write(t, "web.yaml", webLab))
	for _, want := range []string{"proxier iptables", "n2 ", "192.168.7.12", "10.244.2.0/24", "client", "router"} {
		if !strings.Contains(out, want) {
			t.Errorf("up does not print %q:\n%s", want, out)
		}
	}
	_, kubeconfig, _ := strings.Cut(out, "export KUBECONFIG=")
	if pods := apiGet(t, strings.TrimSpace(kubeconfig), "/api/v1/namespaces/default/pods"); strings.Count(pods,
		`"phase":"Running"`) != 2 {
		t.Errorf("want two running pods: %s", pods)
	}
	up(t, "second", "--nodes", "1", "--proxier", "nftables", "--enforcer", "policy-nftables")
	for _, want := range []string{`first +\S+ +2 +iptables +-`, `second +\S+ +1 +nftables +policy-nftables`} {
		if out := succeeds(t, "ls"); !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("ls does not match %q:\n%s", want, out)
		}
	}
	refused(t, "status", "2 labs run", "first, second")
	refused(t, "up first", `a lab "first" runs already`, "viplab down first")
	succeeds(t, "down", "first")
	if out := succeeds(t, "status"); !strings.Contains(out, "lab second") {
		t.Errorf("status of the only lab:\n%s", out)
	}
	succeeds(t, "down")
	nothingLeft(t)
	refused(t, "down", "no lab runs")
}

// apiGet reads from a lab's API as a client on the machine.
func apiGet(t *testing.T, kubeconfig, path string) string {
	t.Helper()
	config, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) string {
		m := regexp.MustCompile(name + `: (\S+)`).FindSubmatch(config)
		if m == nil {
			t.Fatalf("no %s in %s", name, config)
		}
		return string(m[1])
	}
	ca, err := base64.StdEncoding.DecodeString(value("certificate-authority-data"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
	}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, value("server")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+value("token"))
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status, string(body), err)
	}
	return string(body)
}

func TestOneOfTwoLabsOfOneNameStarts(t *testing.T) {
	t.Cleanup(func() { down("twin") })
	codes := [2]int{}
	var errs [2]string
	var both sync.WaitGroup
	for i := range codes {
		both.Go(func() { codes[i], _, errs[i] = outcome(t, "up", "twin", "--nodes", "1") })
	}
	both.Wait()
	if codes[0]+codes[1] != 2 || codes[0] == codes[1] {
		t.Errorf("exit codes %v, want one 0 and one 2: %q", codes, errs)
	}
	if all := errs[0] + errs[1]; !strings.Contains(all, `a lab "twin" runs already`) {
		t.Errorf("the error is %q", all)
	}
	succeeds(t, "down", "twin")
	nothingLeft(t)
}

func TestAKilledLabLeavesNothing(t *testing.T) {
	for name, victim := range map[string]func(pid int) int{
		"supervisor": func(pid int) int { return pid },
		"init":       childOf,
		"program":    func(pid int) int { return childOf(childOf(pid)) },
	} {
		t.Run(name, func(t *testing.T) {
			up(t, "victim", "--nodes", "1", "--ip", "4")
			pid := holder(t, "victim")
			f, err := registry.Find("victim")
			if err != nil {
				t.Fatal(err)
			}
			ended, err := f.Ended()
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(victim(pid), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-ended
			if out := succeeds(t, "ls"); !strings.Contains(out, "No lab runs") {
				t.Errorf("ls after the kill:\n%s", out)
			}
			nothingLeft(t)
			up(t, "victim", "--nodes", "1", "--ip", "4")
			succeeds(t, "down", "victim")
		})
	}
}

func childOf(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	var child int
	fmt.Sscan(string(text), &child)
	if child == 0 { // a thread other than the first may have started it
		out, _ := exec.Command("pgrep", "-P", fmt.Sprint(pid)).Output()
		fmt.Sscan(string(out), &child)
	}
	return child
}

func TestALabThatCannotStart(t *testing.T) {
	port, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	_, number, _ := net.SplitHostPort(port.Addr().String())
	refused(t, "up --api-port "+number, "127.0.0.1:"+number, "address already in use", "choose another --api-port")
	refused(t, "up --exec false --api-port "+number+" -f "+write(t, "deny.yaml", denyManifest), "Warning: ",
		"or with --features +networkpolicy if the command itself enforces them")
	refused(t, "up Bad_Name --nodes 0 --proxier x", `"Bad_Name" cannot name a lab`, "--nodes: 0", `unknown proxier "x"`)
	refused(t, "up --proxier iptables,nftables", "a lab has one proxier")
	refused(t, "up -f /nowhere.yaml", "/nowhere.yaml: no such file")
	bad := write(t, "bad.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {port: 1}\n")
	refused(t, "up -f "+bad, bad, "unknown field")
	refused(t, "hold x", "viplab up")
	nothingLeft(t)
}

// up and apply skip objects of unknown kinds alike; up warns of policies that nothing enforces.
func TestUpAndApplyWarn(t *testing.T) {
	widget, all, warnings := mixed(t)
	refused(t, "up --nodes 2 -f "+widget, nothingKnown, "Warning: skipped")
	t.Cleanup(func() { down("warned") })
	says := func(args, stdout string, wants ...string) {
		t.Helper()
		code, out, stderr := outcome(t, strings.Fields(args)...)
		if code != 0 || !strings.Contains(out, stdout) || strings.Contains(out, "Warning") {
			t.Errorf("%s: exit code %d\n%s%s", args, code, out, stderr)
		}
		for _, want := range wants {
			if !strings.Contains(warnings(stderr), want) {
				t.Errorf("%s: the warnings lack %q:\n%s", args, want, stderr)
			}
		}
		if len(wants) == 1 && strings.Contains(stderr, "NetworkPolicy, which") {
			t.Errorf("%s warns of policies:\n%s", args, stderr)
		}
	}
	says("up warned --nodes 2 --ip 4 -f "+all, "lab warned", skippedWidget, unenforced+
		" For a lab that enforces them: --enforcer policy-nftables, or --enforcer policy-calico --pods routed")
	says("apply -f "+all, "services/web unchanged\n", skippedWidget)
	refused(t, "apply -f "+widget, nothingKnown, "Warning: skipped")
	succeeds(t, "down", "warned")
	says("up warned --nodes 2 --ip 4 --enforcer policy-nftables -f "+all, "enforcer policy-nftables", skippedWidget)
	succeeds(t, "down", "warned")
	nothingLeft(t)
}

func TestNoWarningIfTheProxierEnforces(t *testing.T) {
	objects, err := live.Objects([]live.Manifest{{Source: "x", Text: []byte(denyManifest)}}, "", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []spec.Proxier{proxiers.Enforcers()[0], proxiers.All()[0]} {
		var out strings.Builder
		warnUnenforced(&out, p, objects, "x", "do this")
		if warns, enforces := out.Len() > 0, p.Features()[spec.NetworkPolicy]; warns == enforces {
			t.Errorf("%s: %q", p.Name(), out.String())
		}
	}
}

func TestLabFile(t *testing.T) {
	web := write(t, "web.yaml", webLab)
	file := write(t, "lab.yaml", "name: filed\nnodes: 2\nip: 4\nproxier: nftables\nmanifests: ["+web+"]\n"+
		"images: {nginx: {command: [sh, -c], args: ['echo I am $0; exec sleep 1000', mine]}}\n")
	t.Cleanup(func() { down("filed") })
	out := succeeds(t, "up", "-f", file, "--proxier", "userspace")
	for _, want := range []string{"lab filed: proxier userspace; IP families: 4", "n2 "} {
		if !strings.Contains(out, want) {
			t.Errorf("up does not print %q:\n%s", want, out)
		}
	}
	pod := strings.Fields(succeeds(t, "get", "pods", "-o", "name"))[0]
	if said := succeeds(t, "logs", pod); said != "I am mine\n" {
		t.Errorf("the image of the file says %q", said)
	}
	if strings.Contains(out, "n3 ") {
		t.Errorf("the lab has more than two nodes:\n%s", out)
	}
	succeeds(t, "down", "filed")
	for text, wants := range map[string][]string{
		"nodez: 2\nip: [4]\n":  {"lab.yaml: line 1: field nodez not found", "line 2: cannot unmarshal", "docs/labs.md"},
		"nodes: many\n":        {"lab.yaml: nodes: ", "many"},
		"nodes: 2\nnodes: 3":   {"line 2: ", "nodes"},
		"ip: 5\n":              {"--ip: ", "5"},
		"a:\n\t- b":            {"lab.yaml: ", "line 2"},
		"manifests: [no.yaml]": {"no.yaml: no such file"},
	} {
		refused(t, "up -f "+write(t, "lab.yaml", text), wants...)
	}
	refused(t, "up -f "+write(t, "lab.yaml", "images: {x: {root: /nowhere}, y: {}}\n"), "images: x: root: /nowhere: want a folder",
		"images: y: it stands for nothing")
	nothingLeft(t)
}

func TestConformLeavesALab(t *testing.T) {
	cmd := viplab(t, "conform", "--keep", "--ip", "4", "--focus", "^clusterip-every-node$", "--proxier", "none", "--out",
		t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	awaitLine(t, lines, "kept as the lab conform")
	pods := succeeds(t, "get", "pods", "-A", "-o", "name", "--lab", "conform")
	if !strings.Contains(pods, "pod/a1") {
		t.Errorf("the pods of the failed scenario are gone: %q", pods)
	}
	if hosts := succeeds(t, "exec", "-n", "clusterip-every-node", "a1", "--", "cat", "/etc/hosts"); !strings.Contains(
		hosts, "a1") {
		t.Errorf("/etc/hosts of a1: %q", hosts)
	}
	refused(t, "conform --keep", `a lab "conform" runs already`)
	succeeds(t, "down", "conform")
	for lines.Scan() {
	}
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("exit code %d, want that of the run, 1", cmd.ProcessState.ExitCode())
	}
	nothingLeft(t)
}
