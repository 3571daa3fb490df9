// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/suite/prove"
	"github.com/viplab/viplab/internal/suite/prove/faults"
)

func TestFaultsAreForProxiersThatExist(t *testing.T) {
	all, _, err := faults.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, p := range f.Proxiers {
			if !slices.Contains(proxierNames(), p) {
				t.Errorf("%s is for an unknown proxier %q", f.Name, p)
			}
		}
	}
}

// One fault changes the input of the proxier, the other its output.
func TestProveCatchesFaults(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	code, stdout, stderr := outcome(t, "prove", "--proxier", "iptables", "--ip", "4", "--out", folder,
		"--fault", "^(nodeport-off-by-one|no-masquerade)$", "--focus",
		"^(nodeport-every-node|nodeport-node-without-endpoint)$")
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, want := range []string{
		"✓  nodeport-off-by-one", "✓  no-masquerade", "✓  nodeport-every-node             nodeport-off-by-one (iptables)",
		"✓  nodeport-node-without-endpoint  no-masquerade (iptables)", "2 caught, 0 survived, 0 broken",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the output lacks %q:\n%s", want, stdout)
		}
	}
	data, err := os.ReadFile(filepath.Join(folder, "prove.json"))
	if err != nil {
		t.Fatal(err)
	}
	var p prove.Proof
	if err := json.Unmarshal(data, &p); err != nil || len(p.Trials) != 2 || p.Trials[0].Verdict != prove.Caught {
		t.Errorf("%v: %s", err, data)
	}
}

func TestAFaultThatNobodyIsToNoticeIsNotCaught(t *testing.T) {
	t.Parallel()
	code, stdout, _ := outcome(t, "prove", "--proxier", "iptables,none", "--ip", "4", "--out", t.TempDir(),
		"--fault", "^masquerade-everything$", "--focus", "^base-pod-and-node-no-nat$")
	if code != 0 || !strings.Contains(stdout, "1 caught, 0 survived, 0 broken, 1 not applicable") {
		t.Errorf("exit code %d\n%s", code, stdout)
	}
}

func TestProveTellsAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	refused(t, "prove --proxier iptbles --ip 5 --focus ( --fault [", "--proxier:", "--ip:", "--focus:", "--fault:")
	refused(t, "prove --fault ^nothing$", "no fault")
	refused(t, "prove --list --fault [", "--fault:")
	refused(t, "prove --random 0 --fault ^no-masquerade$", "--random, --time and --parallel: want positive values")
	for _, flag := range []string{"--seed 1", "--time 1m", "--parallel 1"} {
		refused(t, "prove --fault ^no-masquerade$ "+flag, "--seed, --time and --parallel require --random N")
	}
}

func TestConformWithAFault(t *testing.T) {
	t.Parallel()
	code, stdout, _ := outcome(t, "conform", "--fault", "nodeport-off-by-one", "--focus", "^nodeport-every-node$", "--ip",
		"4", "--out", t.TempDir())
	for _, want := range []string{"✗", "again: viplab conform --proxier iptables --fault nodeport-off-by-one --focus " +
		"'^nodeport-every-node$'"} {
		if code != 1 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, want 1; the output must have %q:\n%s", code, want, stdout)
		}
	}
	refused(t, "conform --fault typo", `--fault: unknown fault "typo"`)
}

// A fault also changes a built-in proxier's own calls of the kernel, even if the proxier is wrapped.
func TestProveReachesTheKeepers(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := outcome(t, "prove", "--proxier", "iptables,nftables", "--ip", "4", "--out", t.TempDir(),
		"--fault", "^always-healthy$", "--focus", "^etp-local-lb-only-healthy-nodes$")
	if code != 0 || !strings.Contains(stdout, "2 caught, 0 survived, 0 broken") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}
