// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
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

func TestRulesOfALab(t *testing.T) {
	withLab(t, "--nodes", "2", "--ip", "4", "-f", write(t, "far.yaml", clientPod))
	says := func(args string, wants ...string) {
		t.Helper()
		out := succeeds(t, strings.Fields(args)...)
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s lacks %q:\n%s", args, want, out)
			}
		}
	}
	says("rules n1", "proxier iptables\n\n=== IPv4 prerouting", "kube-system/kube-dns dns 53/UDP: ClusterIP\n",
		"[-100] iptables-nft: table ip nat, chain PREROUTING (policy accept [")
	if out := succeeds(t, "rules", "n1", "--service", "far"); strings.Contains(out, "kube-dns") ||
		!strings.Contains(out, "default/far http 80/TCP: NodePort\n") ||
		!strings.Contains(out, "chain KUBE-POSTROUTING: masquerades what was marked on the way") {
		t.Errorf("rules --service:\n%s", out)
	}
	before := write(t, "before.json", succeeds(t, "rules", "n1", "-o", "json"))
	succeeds(t, "rules", "n1", "--diff", before)
	succeeds(t, "probe", "c1", "far")
	code, out, stderr := outcome(t, "rules", "n1", "--diff", before)
	if code != 1 || !regexp.MustCompile(`\+1 packets, \+60 bytes: -A KUBE-SEP-\S+ -p tcp .* -j DNAT --to`).MatchString(out) {
		t.Errorf("rules --diff after a probe: exit code %d: %s%s", code, out, stderr)
	}
	code, out, stderr = outcome(t, "rules", "n1", "--diff", "n2", "--service", "far")
	if code != 1 || !strings.Contains(out, "--- n2 of lab") || strings.Contains(out, "packets") {
		t.Errorf("rules --diff of two nodes: exit code %d: %s%s", code, out, stderr)
	}
	for proxier, want := range map[string]string{
		"nftables":        `# default/far http 80/TCP: NodePort; n1`,
		"userspace":       "# relay of default/far:http -> any endpoint, to [10.244.2.",
		"iptables-legacy": "[-100] iptables-legacy: table ip nat, chain PREROUTING",
	} {
		succeeds(t, "switch", "--proxier", proxier)
		says("rules n1 --service far", want, "proxier "+proxier)
		code, out, stderr := outcome(t, "rules", "n1", "--diff", before)
		if code != 1 || !strings.Contains(out, "  - -A KUBE-SERVICES ") {
			t.Errorf("rules --diff after a switch to %s: exit code %d: %s%s", proxier, code, out, stderr)
		}
	}
	refused(t, "rules n1 --service nosuch", "there is no Service default/nosuch")
	refused(t, "rules n1 --diff n3", `--diff: `)
	refused(t, "rules n1 --diff ./nosuch", `--diff: `)
	refused(t, "rules n1 --diff "+write(t, "x.json", "{}"), `is not what "viplab rules -o json" writes`)
	refused(t, "rules n1 -o yaml", `--output: want text or json, not "yaml"`)
	refused(t, "rules n1 --ip 5", "--ip: ")
}

const (
	widgetManifest = "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: w}\n"
	denyManifest   = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\n" +
		"spec: {podSelector: {}}\n"
	shopManifest = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n" +
		"apiVersion: v1\nkind: Pod\nmetadata: {name: till, namespace: shop}\n" +
		"spec: {containers: [{name: till, image: any}]}\n"
	skippedWidget = `Warning: skipped mixed.yaml: document 1 (line 1): Widget "w": kind Widget of example.org/v1 is not`
	unenforced    = "mixed.yaml: 1 object of kind NetworkPolicy, which no rules enforce: no enforcer is placed."
	nothingKnown  = "widget.yaml: nothing is left to apply"
)

// mixed writes manifests of a Widget alone, and of known kinds beside it. Warnings name them without the folder.
func mixed(t *testing.T) (widget, all string, warnings func(stderr string) string) {
	t.Helper()
	widget = write(t, "widget.yaml", widgetManifest)
	all = write(t, "mixed.yaml", widgetManifest+"---\n"+denyManifest+"---\n"+shopManifest+"---"+webManifest)
	return widget, all, strings.NewReplacer(filepath.Dir(widget)+"/", "", filepath.Dir(all)+"/", "").Replace
}

func TestRulesWarn(t *testing.T) {
	t.Parallel()
	widget, all, warnings := mixed(t)
	const cure = " To see rules for them: viplab up --proxier nftables --enforcer policy-nftables -f mixed.yaml; " +
		"viplab rules n1; viplab down\n"
	for _, c := range []struct {
		args   []string
		code   int
		stdout string
		stderr []string // nil means none
	}{
		{[]string{"-f", all, "--proxier", "nftables"}, 0, "10.96.0.77", []string{skippedWidget, unenforced + cure}},
		{[]string{"-f", widget}, 2, "", []string{nothingKnown}},
		{[]string{"--scenario", "np-backend-denied"}, 0, "np-backend-denied/", []string{
			"Warning: scenario np-backend-denied: 2 objects of kind NetworkPolicy", "To see rules for them: viplab " +
				"scenario show np-backend-denied | viplab up --proxier iptables --enforcer policy-nftables -f -;",
		}},
		{[]string{"--scenario", "nodeport-every-node"}, 0, "nodeport-every-node/", nil},
	} {
		code, stdout, stderr := outcome(t, append([]string{"rules", "n1", "--ip", "4"}, c.args...)...)
		stderr = warnings(stderr)
		if code != c.code || !strings.Contains(stdout, c.stdout) || c.stderr == nil && stderr != "" {
			t.Errorf("rules %q: exit code %d, %q, %q", c.args, code, stdout, stderr)
		}
		for _, want := range c.stderr {
			if !strings.Contains(stderr, want) {
				t.Errorf("rules %q: the warning lacks %q:\n%s", c.args, want, stderr)
			}
		}
	}
	cmd := viplab(t, "rules", "n1", "-f", "-")
	cmd.Stdin = strings.NewReader(widgetManifest)
	if text, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(text), "skipped standard input: ") {
		t.Errorf("rules -f -: %v: %s", err, text)
	}
}
