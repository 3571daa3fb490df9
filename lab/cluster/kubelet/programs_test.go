// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
)

// programs are programs of an ordinary machine, and what they print in a pod that is called box.
var programs = []struct{ name, script, want string }{
	{"sh", "sh -c 'echo hi'", "hi"},
	{"bash", "bash -c 'echo ${BASH_VERSION:+bash}'", "bash"},
	{"perl", "perl -e 'print 6*7'", "42"},
	{"awk", "echo a b | awk '{print $2}'", "b"},
	{"sed", "echo a | sed s/a/b/", "b"},
	{"grep", "grep -c box /etc/hosts", "1"},
	{"find", "find /etc/hostname", "/etc/hostname"},
	{"sort", "printf '2\\n1\\n' | sort | head -n 1", "1"},
	{"tar", "tar cf - /etc/hostname 2>/dev/null | tar tf -", "etc/hostname"},
	{"gzip", "echo zip | gzip | gzip -d", "zip"},
	{"ps", "ps -o pid= -p 1", "1"},
	{"ip", "ip -brief link show lo | cut -d' ' -f1", "lo"},
	{"ss", "ss -ltnH | wc -l", "0"},
	{"hostname", "hostname", "box"},
	{"uname", "uname -n", "box"},
	{"id", "id -u", "0"},
	{"env", "env -i A=b env", "A=b"},
	{"getent", "getent hosts web | grep -c web", "1"},
	{"curl", "curl --silent --max-time 20 http://web/ | grep -o default/web", "default/web"},
	{"git", "cd /tmp && git init -q . && ls -d .git", ".git"},
	{"make", "printf 'all:\\n\\t@echo made\\n' >/tmp/Makefile && make -s -C /tmp", "made"},
	{"dd", "dd if=/dev/zero bs=10 count=1 2>/dev/null | wc -c", "10"},
	{"python3", "python3 -c 'print(1+1)'", "2"},
	{"tcpdump", "tcpdump -D | grep -c '^[0-9]*.eth0 '", "1"},
	{"dig", "dig +short web.default.svc.cluster.local | wc -l", "1"},
	{"iperf3", "iperf3 --version | head -c 6", "iperf "},
	{"ping", "ping -c 1 -W 20 127.0.0.1 | grep -c ' 0% packet loss'", "1"},
	{"setpriv", "setpriv --reuid 0 id -u", "0"},
	{"mktemp", "test -f $(mktemp) && echo made", "made"},
	{"nproc", "nproc | grep -c .", "1"},
	{"openssl", "echo x | openssl dgst -sha1 -r | head -c 8", "6fcf9dfb"},
	{"nc", "nc -h 2>&1 | head -c 2 | wc -c", "2"},
	{"vi", "vi --version | head -c 3", "VIM"},
	{"less", "echo less | less", "less"},
}

func TestProgramsOfTheMachine(t *testing.T) {
	w := newWorld(t)
	w.apply(`
apiVersion: v1
kind: Pod
metadata: {name: dns}
spec: {hostNetwork: false, containers: [{name: c, image: dns}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: c, image: nginx, ports: [{containerPort: 80}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80}]}
`)
	dns := w.awaitReady("dns")
	w.awaitReady("web")
	// Nothing here serves ClusterIPs, so the pod asks the DNS server's own address.
	w.pod("box", fmt.Sprintf("{dnsPolicy: None, dnsConfig: {nameservers: [%s], searches: [default.svc.cluster.local], options: [{name: ndots, value: '5'}]}, "+
		"containers: [{name: c, image: busybox, command: [sleep, infinity]}]}", dns.Status.PodIP))
	w.awaitReady("box")
	ran := 0
	for _, p := range programs {
		if _, err := exec.LookPath(p.name); err != nil {
			t.Logf("%s: %v", p.name, err)
			continue
		}
		ran++
		if got, err := w.exec("box", "", p.script); strings.TrimSpace(got) != strings.TrimSpace(p.want) || err != nil {
			t.Errorf("%s: %q, %v, want %q", p.name, got, err, p.want)
		}
	}
	if ran < 20 {
		t.Errorf("only %d programs ran", ran)
	}
	if _, ok := store.Get[*corev1.Pod](w.Store(), "default", "box"); !ok {
		t.Error("the pod is gone")
	}
}
