// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/release"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/suite/spec"
)

func TestE2eRefusesBadFlags(t *testing.T) {
	refused(t, "e2e --parallel 0 --focus ( --skip [ --kubernetes-version 1.36 --ip 5 --proxier no-such --fault none",
		"--parallel", "--focus", "--skip", "--kubernetes-version", "--ip", "--proxier", "--fault")
}

// withE2eTests skips a test if the tests of Kubernetes have not been built.
func withE2eTests(t *testing.T) {
	t.Helper()
	cache, err := release.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(cache, "e2e.test", release.Default, "e2e.test")); err != nil {
		t.Skipf("viplab e2e builds them, which takes 10 minutes: %v", err)
	}
}

func TestE2eRunsSpecsOfKubernetes(t *testing.T) {
	t.Parallel()
	withE2eTests(t)
	folder := t.TempDir()
	code, stdout, stderr := outcome(t, "e2e", "--proxier", "nftables", "--parallel", "2", "--out", folder, "--focus",
		`^(API Server|Endpoints|EndpointsController|Services should (prevent|check|delete a coll|complete|serve a basic)) |GCE`)
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	r, err := report.Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	stamped(t, r)
	if p := r.Proxiers[0]; p.Passed != 9 || p.Failed+p.Broken > 0 || p.NotRun != 1 {
		t.Errorf("%+v", p)
	}
	for _, x := range r.Results {
		if x.Verdict == spec.Skip && !strings.Contains(x.Reason, "GCE") {
			t.Errorf("%s is skipped: %s", x.Scenario, x.Reason)
		}
	}
	for _, want := range []string{"partial: 9 passed, 0 failed", "specs run in 2 processes"} {
		if !strings.Contains(stdout+stderr, want) {
			t.Errorf("no %q in\n%s%s", want, stdout, stderr)
		}
	}
	for _, file := range []string{"junit.xml", "report.html"} {
		if _, err := os.Stat(filepath.Join(folder, file)); err != nil {
			t.Error(err)
		}
	}
}

func TestE2eLists(t *testing.T) {
	t.Parallel()
	withE2eTests(t)
	out := succeeds(t, "e2e", "--list", "--focus", "for the cluster")
	for _, want := range []string{"DNS should provide DNS for the cluster [Conformance]\n",
		"– DNS should provide DNS for the cluster [Provider:GCE]: it asks the DNS of GCE\n", "1 do not\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if code, _, stderr := outcome(t, "e2e", "--list", "--focus", "no such spec"); code != 2 ||
		!strings.Contains(stderr, "no such spec") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
