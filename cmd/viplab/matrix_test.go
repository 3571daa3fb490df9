// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMatrixFiles(t *testing.T) {
	f, err := readMatrix("m.yaml", []byte(`{kernels: [here, "6.12"], proxiers: [iptables, nftables], ip: ["4", dual], pods: [routed]}`))
	if err != nil {
		t.Fatal(err)
	}
	all := f.runs(0, 0)
	if len(all) != 4 || all[3] != (matrixRun{"6.12", "dual", "routed"}) {
		t.Errorf("runs %v", all)
	}
	if parts := slices.Concat(f.runs(1, 3), f.runs(2, 3), f.runs(3, 3)); len(parts) != 4 || len(f.runs(1, 3)) != 2 {
		t.Errorf("the shards have %v", parts)
	}
	if got := strings.Join(f.command(all[3], "/out", "viplab", "vmrun"), " "); got != "vmrun --kernel 6.12 --out /out viplab "+
		"conform --proxier iptables,nftables --ip dual --pods routed --out /out" {
		t.Error(got)
	}
	if f, err := readMatrix("m.yaml", nil); err != nil || len(f.runs(0, 0)) != 1 {
		t.Errorf("an empty file: %v, %v", f, err)
	}
	for text, want := range map[string]string{
		"kernels: [5.4]":        `m.yaml: kernels: "5.4": want one of here, 6.1, 6.12`,
		"proxiers: [iptable]":   `m.yaml: proxiers: "iptable"`,
		"ip: [dual, dual]":      `m.yaml: ip: "dual" is given twice`,
		"pods: [ipvlan]":        "m.yaml: pods: ",
		"kernel: [here]":        `unknown field "kernel"`,
		"ip: [five]\npods: [x]": "m.yaml: pods: ",
	} {
		if _, err := readMatrix("m.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestMatrixRuns(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "matrix.yaml")
	text := `{proxiers: [iptables, none], ip: ["4", "6"], flags: [--focus, ^clusterip-every-node$]}`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := outcome(t, "matrix", file, "--out", dir)
	if code != 1 {
		t.Fatalf("exit code %d\n%s%s", code, out, stderr)
	}
	for _, want := range []string{
		"1 of 2: linux-here-ip-4-bridge: exit code 1\n", "\nrun                     iptables",
		"linux-here-ip-6-bridge  pass: 1 passed, 0 failed, 0 broken  fail: 0 passed, 1 failed, 0 broken\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "linux-here-ip-4-bridge", "output.txt")); err != nil ||
		!strings.Contains(string(text), "clusterip-every-node") {
		t.Errorf("%s, %v", text, err)
	}
	if out := succeeds(t, "matrix", file, "--shard", "2/2", "--list"); strings.Count(out, "conform --proxier iptables,none --ip 6") != 1 ||
		strings.Contains(out, "--ip 4") {
		t.Error(out)
	}
}
