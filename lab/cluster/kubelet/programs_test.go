// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/sandbox"
)

// script is a shell script that runs a program of an ordinary machine, and what it prints.
type script struct{ program, text, want string }

// serves runs a server in the background, and a client until that succeeds.
func serves(server, client string) string {
	return server + " >/dev/null 2>&1 </dev/null & for i in $(seq 100); do " + client + " && break; sleep 0.1; done"
}

// scripts run in a pod that is called box.
var scripts = []script{
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
	{"python3", serves("cd /srv && python3 -m http.server 8001", "curl -s http://127.0.0.1:8001/ | grep -o 'Directory listing'") +
		" | head -n 1", "Directory listing"},
	{"lighttpd", "echo hello >/tmp/index.html; echo 'server.document-root = \"/tmp\" server.port = 8002 " +
		"index-file.names = (\"index.html\")' >/tmp/conf; " +
		serves("lighttpd -D -f /tmp/conf", "curl -s http://127.0.0.1:8002/"), "hello"},
	{"tcpdump", serves("tcpdump -U -c 1 -i lo -w /tmp/pcap udp port 9", "bash -c 'echo x >/dev/udp/127.0.0.1/9'; "+
		"tcpdump -n -r /tmp/pcap 2>/dev/null | grep -o '127.0.0.1.9:'"), "127.0.0.1.9:"},
	{"dig", "dig +short web.default.svc.cluster.local | wc -l", "1"},
	{"iperf3", serves("iperf3 -s -1", "iperf3 -c 127.0.0.1 -n 1M >/dev/null 2>&1") + "; echo measured", "measured"},
	{"ping", "ping -c 1 -W 20 127.0.0.1 | grep -c ' 0% packet loss'", "1"},
	{"setpriv", "setpriv --reuid 0 id -u", "0"},
	{"mktemp", "test -f $(mktemp) && echo made", "made"},
	{"nproc", "nproc | grep -c .", "1"},
	{"openssl", "echo x | openssl dgst -sha1 -r | head -c 8", "6fcf9dfb"},
	{"nc", "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 3 web 80 | grep -o default/web", "default/web"},
	{"socat", "echo hi | socat - EXEC:cat", "hi"},
	{"jq", "echo '{\"a\": 7}' | jq .a", "7"},
	{"xz", "echo zip | xz | xz -d", "zip"},
	{"diff", "echo a >/tmp/a; echo b | diff - /tmp/a | grep -c '[ab]$'", "2"},
	{"sha256sum", "printf x | sha256sum | head -c 8", "2d711642"},
	{"base64", "printf x | base64", "eA=="},
	{"cpio", "cd /etc && echo hostname | cpio -o 2>/dev/null | cpio -t 2>/dev/null", "hostname"},
	{"xargs", "echo 1 2 | xargs -n 1 echo | wc -l", "2"},
	{"flock", "flock /tmp/lock echo locked", "locked"},
	{"timeout", "timeout 0.1 sleep 60; echo $?", "124"},
	{"busybox", "busybox echo hi", "hi"},
	{"vi", "vi --version | head -c 3", "VIM"},
	{"less", "echo less | less", "less"},
}

// networkScripts run in a pod that may change its own network.
var networkScripts = []script{
	{"nft", "nft add table ip x; nft list tables", "table ip x"},
	{"iptables", "iptables -t mangle -A OUTPUT -j ACCEPT; iptables -t mangle -S OUTPUT | tail -n 1", "-A OUTPUT -j ACCEPT"},
	{"ipset", "ipset create s hash:ip && ipset list -n", "s"},
	{"conntrack", "conntrack -C | grep -c .", "1"},
	{"sysctl", "sysctl -n net.ipv4.ip_forward | grep -c .", "1"},
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
	w.pod("admin", "{containers: [{name: c, image: busybox, command: [sleep, infinity], "+
		"securityContext: {capabilities: {add: [NET_ADMIN]}}}]}")
	w.awaitReady("box")
	w.awaitReady("admin")
	ran := w.runScripts("box", scripts) + w.runScripts("admin", networkScripts)
	t.Logf("%d programs", ran)
	if ran < 40 {
		t.Errorf("only %d programs ran: scripts/setup installs more", ran)
	}
	if _, ok := store.Get[*corev1.Pod](w.Store(), "default", "box"); !ok {
		t.Error("the pod is gone")
	}
}

// runScripts runs the scripts in a pod whose programs this machine has, and returns their number.
func (w *world) runScripts(pod string, scripts []script) int {
	w.Helper()
	ran := 0
	for _, s := range scripts {
		if _, err := exec.LookPath(s.program); err != nil {
			w.Logf("%s: %v", s.program, err)
			continue
		}
		if ran++; s.program == "tcpdump" && sandbox.Rootless() {
			w.Log("tcpdump becomes another user, and there is none")
			continue
		}
		if got, err := w.exec(pod, "", s.text); got != strings.TrimSpace(s.want) || err != nil {
			w.Errorf("%s: %q, %v, want %q", s.program, got, err, s.want)
		}
	}
	return ran
}
