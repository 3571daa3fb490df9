// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestWrapper(t *testing.T) {
	m := &module{Go: "1.16"}
	for path, version := range map[string]string{"k8s.io/api": "v0.0.0", "k8s.io/utils": "v0.0.0-2022",
		"example.com/x": "v0.0.0"} {
		m.Require = append(m.Require, struct{ Path, Version string }{path, version})
	}
	got := string(m.wrapper(Command{Name: "kube-proxy", Version: "v1.24.17"}))
	for _, line := range []string{
		"go 1.24", "godebug default=go1.16", "tool k8s.io/kubernetes/cmd/kube-proxy", "require k8s.io/kubernetes v1.24.17",
		"replace k8s.io/api => k8s.io/api v0.24.17",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("no line %q in\n%s", line, got)
		}
	}
	if strings.Count(got, "replace") != 1 {
		t.Errorf("it replaces modules of others:\n%s", got)
	}
	m.Go, m.Godebug = "1.26.0", []struct{ Key, Value string }{{"default", "go1.25"}}
	if got := string(m.wrapper(Command{Name: "kubectl", Version: "v1.36.3"})); !strings.Contains(got,
		"tool k8s.io/kubernetes/cmd/kubectl\n") || !strings.Contains(got, "go 1.26.0\n") ||
		!strings.Contains(got, "godebug default=go1.25\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestAProgramOfOurOwn(t *testing.T) {
	a := Command{Name: "informers", Version: "v1.36.3", Source: "package main"}
	b := Command{Name: "informers", Version: "v1.36.3", Source: "package main // changed"}
	if got := string((&module{Go: "1.26.0"}).wrapper(a)); strings.Contains(got, "tool") {
		t.Errorf("it names a command of the release:\n%s", got)
	}
	pathA, errA := a.Path()
	pathB, errB := b.Path()
	if errA != nil || errB != nil || pathA == pathB || filepath.Base(pathA) != "informers" {
		t.Errorf("the paths are %s and %s; %v, %v", pathA, pathB, errA, errB)
	}
}

func TestAnotherModule(t *testing.T) {
	m := &module{Go: "1.25.0"}
	m.Require = append(m.Require, struct{ Path, Version string }{"k8s.io/api", "v0.36.3"})
	c := Command{Name: "coredns", Version: "v1.15.0", Module: "example.com/coredns", Package: "example.com/coredns/cmd"}
	got := string(m.wrapper(c))
	if !strings.Contains(got, "tool example.com/coredns/cmd\n") || !strings.Contains(got, "require example.com/coredns v1.15.0\n") ||
		strings.Contains(got, "replace") || strings.Contains(got, "kubernetes") {
		t.Errorf("got\n%s", got)
	}
	if flags := c.linkerFlags(); strings.Contains(flags, "gitVersion") {
		t.Errorf("it is told a version of Kubernetes: %s", flags)
	}
}

// fakeGo puts a go command into PATH that says one thing and fails.
func fakeGo(t *testing.T, says string) {
	dir := t.TempDir()
	script := "#!/bin/sh\ncat >&2 <<'END'\n" + says + "\nEND\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/bin:/usr/bin")
}

func TestABuildThatFails(t *testing.T) {
	for says, want := range map[string]string{
		"go: k8s.io/kubernetes@v1.37.2: reading https://proxy.example/x.zip: 403 Forbidden": "does not hold this release " +
			"whole",
		"go: module k8s.io/kubernetes: dial tcp: lookup x: no such host": "cannot be reached",
		"go: go.mod requires go >= 1.99 (running go 1.26)": "build kube-proxy v1.37.2: " +
			"go mod download: exit status 1\ngo: go.mod requires",
	} {
		fakeGo(t, says)
		t.Setenv("VIPLAB_CACHE", t.TempDir())
		var progress bytes.Buffer
		err := Command{Name: "kube-proxy", Version: "v1.37.2"}.Build(t.Context(), &progress)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if !strings.Contains(progress.String(), "building kube-proxy v1.37.2") {
			t.Errorf("progress: %q", progress.String())
		}
		left, err := filepath.Glob(filepath.Join(os.Getenv("VIPLAB_CACHE"), "kube-proxy", "*", "*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
	}
}

func TestABuildThatIsInterrupted(t *testing.T) {
	t.Setenv("VIPLAB_CACHE", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Command{Name: "kubectl", Version: "v1.36.3"}).Build(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestBuildsWaitForEachOther(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("VIPLAB_CACHE", dir)
	script := "#!/bin/sh\ncase \"$1 $2\" in 'mod download'|'mod edit') echo '{}';; *) echo once >>\"$VIPLAB_CACHE/builds\"; " +
		"echo built >kubectl;; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	c := Command{Name: "kubectl", Version: Default}
	goal, err := c.Path()
	if err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(filepath.Dir(goal), "building-stale")
	if err := os.MkdirAll(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := c.Build(t.Context(), io.Discard); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if builds, err := os.ReadFile(filepath.Join(dir, "builds")); string(builds) != "once\n" {
		t.Errorf("it was built %q, %v", builds, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(goal)); len(left) != 1 {
		t.Errorf("there is more than the command: %v", left)
	}
}
