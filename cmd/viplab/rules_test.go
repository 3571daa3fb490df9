// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const webManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web-1, labels: {app: web}}
spec:
  nodeName: n2
  containers: [{name: web, image: any, ports: [{containerPort: 8080}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  clusterIP: 10.96.0.77
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30077}]
`

func TestRulesAreAnnotated(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(webManifest), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, proxier := range []string{"iptables", "iptables-legacy"} {
		code, stdout, stderr := outcome(t, "rules", "n1", "-f", file, "--proxier", proxier, "--ip", "4")
		if code != 0 {
			t.Fatalf("%s: exit code %d: %s", proxier, code, stderr)
		}
		for _, want := range []string{
			"-d 10.96.0.77/32 ", "--dport 30077 ", "-j DNAT --to-destination 10.244.2.2:8080",
			": default/web (TCP 80, NodePort 30077) is served by any endpoint\n-A KUBE-SVC-",
			": default/web (TCP 80, NodePort 30077) goes to 10.244.2.2:8080\n-A KUBE-SEP-",
			"# KUBE-POSTROUTING: masquerades what was marked on the way\n-A KUBE-POSTROUTING ",
		} {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s: the output lacks %q:\n%s", proxier, want, stdout)
			}
		}
	}
}

func TestRulesOfNFTables(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(webManifest), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := outcome(t, "rules", "n1", "-f", file, "--proxier", "nftables", "--ip", "4")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, want := range []string{
		`10.96.0.77 . tcp . 80 comment "default/web" : goto use-0`,
		`192.168.7.11 . tcp . 30077 comment "default/web" : goto masquerade-to-node`,
		"10.96.0.77 . tcp . 80 : 10.244.2.2 . 8080",
		`comment "frontends whose traffic is masqueraded"`,
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the output lacks %q:\n%s", want, stdout)
		}
	}
}

func TestRulesOfAScenario(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := outcome(t, "rules", "n3", "--scenario", "nodeport-every-node")
	if code != 0 || !strings.Contains(stdout, "nodeport-every-node/web") || !strings.Contains(stdout, "# IPv6") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestMistakesInRules(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(webManifest, "nodePort: 30077", "nodeport: 30077", 1)),
		0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"accepts 1 arg":                    {"--scenario", "nodeport-every-node"},
		"of a running lab: --lab: no lab":  {"n1", "--lab", "nosuch"},
		"-f FILE or --scenario":            {"n1", "-f", file, "--scenario", "nodeport-every-node"},
		`there is no node "n4"`:            {"n4", "--scenario", "nodeport-every-node"},
		`there is no scenario "nodeports"`: {"n1", "--scenario", "nodeports"},
		"no such file":                     {"n1", "-f", file + ".gone"},
		"nodeport":                         {"n1", "-f", file},
		`--proxier: unknown proxier "ipvz`: {"n1", "-f", file, "--proxier", "ipvz"},
		"--ip:":                            {"n1", "-f", file, "--ip", "5"},
	} {
		code, stdout, stderr := outcome(t, append([]string{"rules"}, args...)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, %q, %q; want 2 and %q", args, code, stdout, stderr, want)
		}
	}
}
