// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/internal/suite/prove"
	"github.com/viplab/viplab/internal/suite/prove/faults"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

// denyXA isolates one pod for ingress.
const denyXA = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny, namespace: x}
spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress]}
`

func writeCases(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNetpolJudgesAManifest(t *testing.T) {
	folder := t.TempDir()
	code, stdout, stderr := outcome(t, "netpol", "--enforcer", "policy-nftables", "--ip", "4", "--tables", "--out", folder,
		"--cases", writeCases(t, "mine.yaml", denyXA))
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, want := range []string{
		"x/a   .... .... .... .... .... .... .... .... ....\n",
		"z/c   XXXX .... .... .... .... .... .... .... ....\n",
		"policy-nftables: 1 passed, 0 failed, 0 broken",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the output lacks %q:\n%s", want, stdout)
		}
	}
	r, err := report.Read(folder)
	if err != nil || len(r.Results) != 1 || r.Results[0].Verdict != spec.Pass ||
		r.Results[0].Proxier != "policy-nftables" {
		t.Errorf("%v: %+v", err, r.Results)
	}
	stamped(t, r)
}

// stamped checks that a report says when, how and on what it was made: viplab site needs it.
func stamped(t *testing.T, r report.Report) {
	t.Helper()
	if r.Date.IsZero() || r.Command == "" || r.Settings.IP == "" || r.Proxiers[0].Version == "" ||
		r.Proxiers[0].Features == nil {
		t.Errorf("date %s, command %q, settings %+v, proxiers %+v", r.Date, r.Command, r.Settings, r.Proxiers)
	}
}

// A file must not require what the API does not promise. The policy blocks all of x/a; the file says that 80/TCP stays
// open.
func TestNetpolRefusesAWrongTable(t *testing.T) {
	mine := `{"cases": [{"id": "MINE-01", "given": "a wrong table", "priority": "P1", "source": "nobody", "why": "nothing",
		"policies": [{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny", "namespace": "x"},
		"spec": {"podSelector": {"matchLabels": {"pod": "a"}}, "policyTypes": ["Ingress"]}}],
		"blocked": ["* > x/a: 80/UDP,81/TCP,81/UDP"]}]}`
	code, _, stderr := outcome(t, "netpol", "--out", t.TempDir(), "--cases", writeCases(t, "mine.json", mine))
	if want := "mine.json: case MINE-01: blocked: the API says otherwise of x/b>x/a:80/TCP (blocked)"; code != 2 ||
		!strings.Contains(stderr, want) {
		t.Errorf("exit code %d, want 2; the error must have %q:\n%s", code, want, stderr)
	}
}

func TestNetpolTellsAllMistakesAtOnce(t *testing.T) {
	refused(t, "netpol --enforcer calico --ip 5 --focus ( --cases nowhere.json", "--enforcer:", "--ip:", "--focus:",
		"--cases:")
	refused(t, "netpol --focus ^nothing$", "no case matches")
}

// A flag that would have no effect is refused.
func TestNetpolRefusesFlagsWithoutEffect(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"--enforcer policy-nftables --exec x": "--enforcer names enforcers of viplab's own, and --exec another one",
		"--enforcer=":                         "--enforcer: it is empty: name one (policy-nftables, policy-calico)",
		"--seed 3":                            "--seed requires --random N",
		"--random 0":                          "--random: want a positive number of cases",
		"--patience 3s":                       "--name and --patience require --exec",
	} {
		refused(t, "netpol --focus ^DIR-01$ "+line, want)
	}
}

// The command that repeats a counterexample names everything that the run was about.
func TestNetpolAgain(t *testing.T) {
	cluster := clusterFlags{ip: "4", overlay: "direct", pods: "routed"}
	for want, f := range map[string]netpolFlags{
		"netpol --enforcer mine --ip 4 --overlay direct --pods routed --cases c.json": {cluster: cluster},
		"netpol --enforcer mine --proxier nftables --fault endPort-ignored --ip 4 --overlay direct --pods routed " +
			"--cases c.json": {cluster: cluster, proxier: "nftables", fault: "endPort-ignored"},
		"netpol --exec './mine --fast' --name mine --patience 3s --ip 4 --overlay direct --pods routed " +
			"--cases c.json --expect known.yaml": {
			cluster: cluster, exec: "./mine --fast", patience: 3 * time.Second, expect: expectFlags{file: "known.yaml"},
		},
	} {
		if got := f.again("mine", "c.json"); !strings.HasSuffix(got, " "+want) {
			t.Errorf("got %s, want one that ends with %s", got, want)
		}
	}
}

// Generated cases agree with the oracle; an enforcer that gets wrong policies is detected, and what is left of the case
// that has done so fails again from its file.
func TestNetpolRandom(t *testing.T) {
	folder := t.TempDir()
	args := []string{"netpol", "--enforcer", "policy-nftables", "--ip", "4", "--out", folder}
	code, stdout, stderr := outcome(t, append(args, "--random", "20", "--seed", "3")...)
	if code != 0 || !strings.Contains(stdout, "policy-nftables: 20 generated cases, seed 3: pass, 0 broken") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, _ = outcome(t, append(args, "--random", "200", "--seed", "3", "--fault", "endPort-ignored")...)
	if code != 1 || !strings.Contains(stdout, "again: viplab netpol") {
		t.Fatalf("exit code %d, want 1 and a counterexample:\n%s", code, stdout)
	}
	files, err := filepath.Glob(filepath.Join(folder, "policy-nftables-random-3-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v: files %v, want one with the counterexample", err, files)
	}
	text, err := os.ReadFile(files[0])
	if err != nil || strings.Count(string(text), `"endPort"`) != 1 || strings.Count(string(text), `"kind"`) != 1 {
		t.Errorf("%v: want one policy with an endPort in the counterexample:\n%s", err, text)
	}
	for fault, want := range map[string]int{"endPort-ignored": 1, "": 0} {
		if code, stdout, _ := outcome(t, append(args, "--cases", files[0], "--fault", fault)...); code != want {
			t.Errorf("fault %q: exit code %d, want %d:\n%s", fault, code, want, stdout)
		}
	}
}

// What an enforcer writes wrongly is noticed, each by the cases that the fault names, which there are; and so is a
// wrong reading of the API.
func TestNetpolProve(t *testing.T) {
	cases, err := netpol.Static()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults.Enforced {
		for _, r := range f.Scenarios {
			if !slices.ContainsFunc(cases, func(c netpol.Case) bool { return c.ID == r }) {
				t.Errorf("%s names the case %s, which is not there", f.Name, r)
			}
		}
		if err := f.Validate(); err != nil {
			t.Error(err)
		}
	}
	code, stdout, stderr := outcome(t, "netpol", "--prove", "--ip", "4", "--enforcer", "policy-calico", "--focus",
		"^(DIR-02|TGT-02|SEL-04)$", "--out", t.TempDir())
	for _, want := range []string{"✓  cali-replies-judged ", "✓  cali-mark-stays ", "✓  NotIn-needs-key ",
		" 0 survived, 0 broken,", "3 proved, 0 missing a fault"} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d; the output must have %q:\n%s%s", code, want, stdout, stderr)
		}
	}
	if code, _, stderr := outcome(t, "netpol", "--prove", "--ip", "6", "--random", "3"); code != 2 ||
		strings.Count(stderr, "--prove:") != 2 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// --list shows what would run, with every filter.
func TestNetpolLists(t *testing.T) {
	for args, want := range map[string][]string{
		"--focus ^DIR-0[12]$": {"DIR-01", "DIR-02"},
		"--focus x --cases " + writeCases(t, "x.yaml", denyXA): {"x"},
		"--random 30 --seed 7 --focus -7-(1|12)$":              {"random-7-1", "random-7-12"},
		"--prove --fault endPort-ignored":                      {"endPort-ignored"},
		"--prove --fault ^cali-(mark|profile)": {"cali-mark-stays",
			"cali-profile-after-policies"},
		"--prove --focus ^TGT-02$ --fault ^cali-": {"cali-mark-stays",
			"cali-ingress-not-asked"},
		"--prove --fault (mark-stays|skips-ingress) --enforcer policy-nftables": {"nft-egress-skips-ingress"},
	} {
		code, stdout, stderr := outcome(t, append([]string{"netpol", "--list"}, strings.Fields(args)...)...)
		var got []string
		for line := range strings.Lines(stdout) {
			if !strings.HasPrefix(line, " ") {
				got = append(got, strings.Fields(line)[0])
			}
		}
		if code != 0 || !slices.Equal(got, want) {
			t.Errorf("%s: exit code %d, lists %v, want %v\n%s", args, code, got, want, stderr)
		}
	}
	refused(t, "netpol --random 3 --seed 1 --focus ^DIR", "no case matches")
	refused(t, "netpol --prove --focus ^DIR-01$ --fault ^cali-mark-stays$", "nothing would be proved")
}

// --fault and --focus limit --prove to what they name.
func TestNetpolProvesWhatIsAskedFor(t *testing.T) {
	for args, want := range map[string]struct{ faults, cases []string }{
		"--fault cali-mark-stays":               {[]string{"cali-mark-stays"}, []string{"TGT-02"}},
		"--focus ^TGT-02$ --fault ^cali-ingres": {[]string{"cali-ingress-not-asked"}, []string{"TGT-02"}},
	} {
		folder := t.TempDir()
		code, stdout, stderr := outcome(t, append([]string{"netpol", "--prove", "--ip", "4", "--enforcer", "policy-calico",
			"--out", folder}, strings.Fields(args)...)...)
		var proof prove.Proof
		text, err := os.ReadFile(filepath.Join(folder, "prove.json"))
		if err == nil {
			err = json.Unmarshal(text, &proof)
		}
		var faults, cases []string
		for _, x := range proof.Trials {
			faults = append(faults, x.Fault)
		}
		for _, x := range proof.Scenarios {
			cases = append(cases, x.ID)
		}
		if code != 0 || err != nil || !slices.Equal(faults, want.faults) || !slices.Equal(cases, want.cases) {
			t.Errorf("%s: exit code %d, %v, faults %v, cases %v, want %v\n%s%s", args, code, err, faults, cases, want, stdout,
				stderr)
		}
	}
}

// A program that ends at once enforces nothing, and the report says why; a proxier that hides clients is refused.
func TestNetpolOfOtherMakes(t *testing.T) {
	code, stdout, stderr := outcome(t, "netpol", "--exec", "sh -c 'echo no such flag >&2; exit 3'", "--name",
		"short-lived", "--ip", "4", "--focus", "^DIR-01$", "--out", t.TempDir())
	for _, want := range []string{"short-lived", "no such flag", "0 passed, 1 failed"} {
		if code != 1 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d; the output must have %q:\n%s%s", code, want, stdout, stderr)
		}
	}
	code, stdout, stderr = outcome(t, "netpol", "--proxier", "iptables", "--enforcer", "policy-nftables", "--ip", "4",
		"--focus", "^DIR-01$", "--tables", "--out", t.TempDir())
	if code != 0 || !strings.Contains(stdout, "DIR-01 P0 v4 through Services: pass") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, args := range [][]string{{"--proxier", "userspace"}, {"--proxier", "typo"}, {"--name", "nobody"},
		{"--exec", "x", "--prove"}, {"--exec", "x", "--patience", "0s"}} {
		if code, _, stderr := outcome(t, append([]string{"netpol"}, args...)...); code != 2 ||
			!strings.Contains(stderr, args[0]) && !strings.Contains(stderr, args[len(args)-1]) {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
}

// What fails is written as expectations, a draft that is refused unless --allow-todo. With it the same run is known; a
// case that passes unexpectedly, an entry for no case, and expectations of generated cases are errors.
func TestNetpolExpectations(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "known.yaml")
	args := []string{"netpol", "--enforcer", "policy-nftables", "--ip", "dual", "--out", folder, "--focus", "^(DIR-01|PORT-17)$"}
	args = slices.Clip(args)
	broken := slices.Clip(append(args, "--fault", "endPort-ignored"))
	if code, stdout, _ := outcome(t, append(broken, "--write-expectations", file)...); code != 1 ||
		!strings.Contains(stdout, "expectations: 1 in "+file) {
		t.Fatalf("exit code %d\n%s", code, stdout)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "scenario: PORT-17") || !strings.Contains(string(text), ">x/a:80/TCP") {
		t.Fatalf("%v\n%s", err, text)
	}
	if code, _, stderr := outcome(t, append(broken, "--expect", file)...); code != 2 ||
		!strings.Contains(stderr, "--allow-todo") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{append(broken, "--expect", file, "--allow-todo"), 0, "policy-nftables: 1 passed, 1 known, 0 failed"},
		{append(args, "--expect", file, "--allow-todo"), 1, "UNEXPECTED: what holds is"},
		{append(broken, "--expect", "none"), 1, "1 failed"},
	} {
		if code, stdout, stderr := outcome(t, c.args...); code != c.code || !strings.Contains(stdout, c.want) {
			t.Errorf("%v: exit code %d, want %d and %q\n%s%s", c.args, code, c.code, c.want, stdout, stderr)
		}
	}
	other := writeCases(t, "other.yaml", "proxier: policy-nftables\nexpect:\n- {scenario: DIR-99, issue: none, reason: so}\n")
	refused(t, "netpol --enforcer policy-nftables --expect "+other, `there is no scenario "DIR-99"`)
	refused(t, "netpol --random 3 --expect "+other, "--expect: expectations name written cases")
}
