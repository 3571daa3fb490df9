package kubeproxy

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/suite/spec"
)

func TestNew(t *testing.T) {
	for _, c := range []struct {
		mode    Mode
		version string
		binary  string
		want    string // in the error; empty: none
	}{
		{IPTables, "", "", ""},
		{IPVS, "v1.30.4", "", ""},
		{NFTables, "v1.30.4", "", ""},
		{Userspace, "v1.25.9", "", ""},
		{Userspace, "", "", "went with v1.26"},
		{NFTables, "v1.25.9", "", "came with v1.29"},
		{IPTables, "1.36", "", "want one like v1.36.3"},
		{IPTables, "v1.36.3-rc.1", "", "want one like"},
		{IPTables, "v1.36.3", "/bin/true", "not both"},
		{IPTables, "", "/nowhere/kube-proxy", "no such file"},
		{IPTables, "", "/bin/true", "no release of Kubernetes"},
	} {
		p, err := New(c.mode, c.version, c.binary)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s %s: %v, want %q", c.mode, c.version, c.binary, err, c.want)
			}
			continue
		}
		if err != nil || p.Name() != "kube-proxy-"+string(c.mode) {
			t.Errorf("%s %s: %v, %v", c.mode, c.version, p, err)
		}
	}
}

func TestABinaryThatIsThere(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "kube-proxy")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho Kubernetes v1.29.1-foo\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := New(NFTables, "", binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.(Preparer).Prepare(t.Context(), nil); err != nil {
		t.Errorf("there is nothing to prepare: %v", err)
	}
	if got := p.(*proxier).version; got != "v1.29.1" {
		t.Errorf("version %s", got)
	}
}

func TestABinaryThatIsNotBuilt(t *testing.T) {
	t.Setenv("VIPLAB_CACHE", t.TempDir())
	p, err := New(IPTables, "", "")
	if err != nil {
		t.Fatal(err)
	}
	var unusable *spec.UnusableError
	if err := p.Usable(t.Context()); !errors.As(err, &unusable) || !strings.Contains(unusable.Missing, "binary of kube-proxy v1.36.3") {
		t.Errorf("usable: %v", err)
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		mode  Mode
		minor int
		gate  bool
	}{{NFTables, 30, true}, {NFTables, 31, false}, {IPTables, 30, false}} {
		args := c.mode.arguments(c.minor)
		if slices.Contains(args, "--feature-gates=NFTablesProxyMode=true") != c.gate {
			t.Errorf("%s v1.%d: %q", c.mode, c.minor, args)
		}
	}
}

func TestFeatures(t *testing.T) {
	for _, m := range Modes {
		for f := range m.features(36) {
			if !slices.Contains(spec.AllFeatures, f) {
				t.Errorf("%s declares %q, which no scenario knows", m, f)
			}
		}
	}
	if IPTables.features(25)[spec.TerminatingFallback] {
		t.Error("v1.25 does not fall back to terminating endpoints")
	}
}

func TestWrapper(t *testing.T) {
	m := &module{Go: "1.16"}
	for path, version := range map[string]string{"k8s.io/api": "v0.0.0", "k8s.io/utils": "v0.0.0-2022", "example.com/x": "v0.0.0"} {
		m.Require = append(m.Require, struct{ Path, Version string }{path, version})
	}
	got := string(m.wrapper("v1.24.17"))
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
	if got := string(m.wrapper("v1.36.3")); !strings.Contains(got, "go 1.26.0\n") || !strings.Contains(got, "godebug default=go1.25\n") {
		t.Errorf("got\n%s", got)
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
		"go: k8s.io/kubernetes@v1.37.2: reading https://proxy.example/x.zip: 403 Forbidden": "does not hold this release whole",
		"go: module k8s.io/kubernetes: dial tcp: lookup x: no such host":                    "cannot be reached",
		"go: go.mod requires go >= 1.99 (running go 1.26)":                                  "build kube-proxy v1.37.2: go mod download: exit status 1\ngo: go.mod requires",
	} {
		fakeGo(t, says)
		t.Setenv("VIPLAB_CACHE", t.TempDir())
		var progress bytes.Buffer
		err := build(t.Context(), "v1.37.2", &progress)
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

func TestABuildWithoutGo(t *testing.T) {
	t.Setenv("PATH", "/nowhere")
	t.Setenv("VIPLAB_CACHE", t.TempDir())
	var unusable *spec.UnusableError
	if err := build(t.Context(), "v1.36.3", &bytes.Buffer{}); !errors.As(err, &unusable) {
		t.Errorf("got %v", err)
	}
}

func TestABuildThatIsInterrupted(t *testing.T) {
	t.Setenv("VIPLAB_CACHE", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := build(ctx, "v1.36.3", &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
