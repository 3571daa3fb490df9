// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/internal/live/registry"
)

// kubectl is the kubectl to test with, or why there is none. TestMain sets them.
var (
	kubectl   string
	noKubectl error
)

// newcomer is somebody with a lab and kubectl.
type newcomer struct {
	*testing.T
	lab string
}

// step runs a step and prints how long it took.
func (p *newcomer) step(name string, do func()) {
	p.Helper()
	began := time.Now()
	do()
	p.Logf("%-12s %v", name, time.Since(began).Round(time.Millisecond))
}

// run runs kubectl, which must succeed, and returns what it prints.
func (p *newcomer) run(args ...string) string {
	p.Helper()
	folder, err := registry.Find(p.lab)
	if err != nil {
		p.Fatal(err)
	}
	cmd := exec.CommandContext(p.Context(), kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+folder.File(registry.Kubeconfig), "HOME="+p.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		p.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// says wants kubectl to print all of some texts, and returns what it prints.
func (p *newcomer) says(line string, wants ...string) string {
	p.Helper()
	got := p.run(strings.Fields(line)...)
	for _, want := range wants {
		if !strings.Contains(got, want) {
			p.Errorf("kubectl %s: no %q in\n%s", line, want, got)
		}
	}
	return strings.TrimSpace(got)
}

// curl wants the outside client to get an answer of a pod, whose name begins so.
func (p *newcomer) curl(url, pod string) {
	p.Helper()
	got := succeeds(p.T, "exec", "--lab", p.lab, "client", "--", "curl", "--silent", "--show-error", "--max-time", "60", url)
	if !strings.Contains(got, `"server":"default/`+pod) {
		p.Errorf("%s: %s, want an answer of %s", url, got, pod)
	}
}

// TestTheNewcomersPath is the path through the manifests of an introduction to Kubernetes' networking, as they stand
// there.
func TestTheNewcomersPath(t *testing.T) {
	if noKubectl != nil {
		t.Fatal(noKubectl)
	}
	for _, proxier := range []string{"nftables", "ipvs"} {
		t.Run(proxier, func(t *testing.T) {
			skipWithout(t, "proxier "+proxier)
			(&newcomer{t, "newcomer"}).walk(proxier)
		})
	}
}

// skipWithout skips the test if it needs what only a virtual machine has.
func skipWithout(t *testing.T, purpose string) {
	t.Helper()
	if needsVM(t, purpose) {
		t.Skipf("%s cannot run on this kernel", purpose)
	}
}

// needsVM reports whether a purpose, in the words of "viplab doctor", needs another kernel than this one.
func needsVM(t *testing.T, purpose string) bool {
	t.Helper()
	var doctor struct {
		InVM []string `json:"in_vm"`
	}
	if err := json.Unmarshal([]byte(succeeds(t, "doctor", "--json")), &doctor); err != nil {
		t.Fatal(err)
	}
	return slices.Contains(doctor.InVM, purpose)
}

// walk goes the whole path, and switches to a proxier at its end.
func (p *newcomer) walk(proxier string) {
	p.step("up", func() { up(p.T, p.lab) })
	p.step("apply", p.apply)
	p.step("get", func() {
		p.says("get deployments,pods,services,endpointslices,networkpolicies --output wide", "deployment.apps/auth", "frontend",
			"31380", "allow-db-access")
	})
	pod := strings.Fields(p.says("get pods --selector app=webapp --output name", "pod/webapp-"))[0]
	p.step("exec", func() { p.says("exec "+pod+" -- hostname", strings.TrimPrefix(pod, "pod/")) })
	p.step("name", func() { p.says("exec "+pod+" -- curl --silent --max-time 60 http://backend/", "default/auth-") })
	p.step("logs", func() {
		p.run("run", "said", "--image=busybox", "--restart=Never", "--", "echo", "hello")
		p.says("wait --for=jsonpath={.status.phase}=Succeeded pod/said --timeout=5m")
		p.says("logs said", "hello\n")
	})
	nodePort := "http://" + p.says("get "+pod+" --output jsonpath={.status.hostIP}", "192.168.7.") + ":31380"
	p.step("NodePort", func() { p.curl(nodePort, "webapp-") })
	var balanced string
	p.step("LoadBalancer", func() {
		const address = "jsonpath={.status.loadBalancer.ingress[0].ip}"
		p.says("expose deployment webapp --name balanced --type LoadBalancer --port 80")
		p.says("wait --for=" + address + " service/balanced --timeout=5m")
		balanced = "http://" + p.says("get service balanced --output "+address)
		succeeds(p.T, "status", "--lab", p.lab) // the address says nothing about the nodes' rules
		p.curl(balanced, "webapp-")
	})
	old := strings.Fields(p.says("get pods --selector app=webapp --output name"))
	ask := p.askOnAndOn(balanced, "webapp-")
	p.step("rollout", func() {
		p.says("rollout restart deployment webapp")
		p.says("rollout status deployment webapp --timeout=5m", "successfully rolled out")
	})
	p.says("wait --for=delete --timeout=5m " + strings.Join(old, " "))
	ask()
	p.step("switch", func() { succeeds(p.T, "switch", "--lab", p.lab, "--proxier", proxier) })
	p.curl(balanced, "webapp-")
	node := p.says("get pods --selector app=webapp --output jsonpath={.items[0].status.hostIP}")
	p.curl("http://"+node+":31380", "webapp-")
	p.step("down", func() { succeeds(p.T, "down", p.lab) })
	nothingLeft(p.T)
}

// kubectl ends before the nodes' rules are changed: the program pauses after the change before. status waits for them.
func TestStatusWaits(t *testing.T) {
	if noKubectl != nil {
		t.Fatal(noKubectl)
	}
	withLab(t, "--nodes", "1", "-f", write(t, "web.yaml", webLab))
	p := &newcomer{t, "looked-into"}
	for port := 31000; port < 31020; port += 2 {
		var both strings.Builder
		for p := port; p < port+2; p++ {
			fmt.Fprintf(&both, `---
apiVersion: v1
kind: Service
metadata: {name: web%[1]d}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, nodePort: %[1]d}]}
`, p)
		}
		p.says("create -f " + write(t, "both.yaml", both.String()))
		succeeds(t, "status")
		p.curl(fmt.Sprint("http://192.168.7.11:", port+1), "web-")
	}
}

// apply applies the manifests, one after the other.
func (p *newcomer) apply() {
	for _, name := range []string{
		"frontend-deployment", "backend-deployment", "services", "nodeport", "nodeport-local", "networkpolicy",
	} {
		p.says("apply --filename " + filepath.Join("../../lab/cluster/store/testdata", name+".yaml"))
	}
	p.says("wait --for=condition=Available deployment --all --timeout=5m", "webapp condition met", "backend condition met")
}

// askOnAndOn opens connections from the outside client, one after the other, until the returned function is called. A
// pod, whose name begins so, has to answer each.
func (p *newcomer) askOnAndOn(url, pod string) (end func()) {
	p.Helper()
	cmd := viplab(p.T, "exec", "--lab", p.lab, "client", "--", "sh", "-c",
		`while curl --silent --show-error --max-time 60 "$0"; do :; done`, url)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	return func() {
		p.Helper()
		cmd.Process.Kill()
		cmd.Wait()
		answers := strings.Count(stdout.String(), `"server":"default/`+pod)
		if p.Logf("%d connections", answers); cmd.ProcessState.Exited() || answers == 0 {
			p.Errorf("a connection was lost: %s", stderr.String())
		}
	}
}
