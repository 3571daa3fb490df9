// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Main(m)
}

func TestVersionsOfDebian(t *testing.T) {
	for version, want := range map[string]string{
		"0.3.0":                                "0.3.0",
		"0.3.0-rc.1":                           "0.3.0~rc.1",
		"0.0.0-20261124045501-95bda3112345":    "0.0.0~20261124045501.95bda3112345",
		"0.3.1-0.20261124045501-95bda31+dirty": "0.3.1~0.20261124045501.95bda31+dirty",
	} {
		if got := debianVersion(version); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
	// dpkg itself says which comes first.
	for _, pair := range [][2]string{{"0.3.0-rc.1", "0.3.0"}, {"0.3.0-rc.1", "0.3.0-rc.2"}, {"0.3.0", "0.3.1-0.2026-a"}} {
		cmd := exec.Command("dpkg", "--compare-versions", debianVersion(pair[0]), "lt", debianVersion(pair[1]))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s is not before %s: %v %s", pair[0], pair[1], err, out)
		}
	}
}

// output runs a program and returns what it prints on standard output.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// Two builds of the same files are equal, byte by byte.
func TestPackagesAreReproducible(t *testing.T) {
	files := tree{{"share/doc/viplab/README", 0o644, []byte("text"), ""}}
	dir, date := t.TempDir(), time.Unix(1_000_000_000, 0)
	for _, name := range []string{"a", "b"} {
		if err := files.archive(filepath.Join(dir, name+".tar.gz"), "viplab-0.3.0", date); err != nil {
			t.Fatal(err)
		}
		c := control{Version: "0.3.0", Architecture: "all", Time: date}
		if err := files.debian(t.Context(), filepath.Join(dir, name+".deb"), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{".tar.gz", ".deb"} {
		output(t, "cmp", filepath.Join(dir, "a"+kind), filepath.Join(dir, "b"+kind))
	}
}

// pack makes the Debian package of an executable of this source.
func pack(t *testing.T) (deb string) {
	t.Setenv("DPKG_DEB_COMPRESSOR_TYPE", "none") // xz takes a minute for an executable
	t.Chdir("../../..")
	dir := t.TempDir()
	binary := filepath.Join(dir, "viplab")
	output(t, "go", "build", "-buildvcs=false", "-o", binary, "./cmd/viplab")
	date := time.Unix(1_000_000_000, 0)
	pages, err := documents(t.Context(), binary, date)
	if err != nil {
		t.Fatal(err)
	}
	text, err := licences(t.Context(), binary)
	if err != nil {
		t.Fatal(err)
	}
	all := pages.with(file{"bin/viplab", 0o755, nil, binary}, file{"share/doc/viplab/copyright", 0o644, text, ""})
	c := control{Version: "0.3.0~rc.1", Architecture: strings.TrimSpace(output(t, "dpkg", "--print-architecture")), Time: date}
	deb = filepath.Join(dir, "viplab.deb")
	if err := all.debian(t.Context(), deb, c); err != nil {
		t.Fatal(err)
	}
	return deb
}

// dpkg installs into a root folder of its own, with a database of its own, which knows what the package depends on.
func TestThePackageIsInstalledUsedAndRemoved(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "dpkg-query", "--status", "iptables").Run(); err != nil {
		t.Skip("dpkg does not know iptables here, which the package depends on")
	}
	deb := pack(t)
	root, admin := t.TempDir(), t.TempDir()
	for _, dir := range []string{"info", "updates", "triggers"} {
		if err := os.Mkdir(filepath.Join(admin, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	status := filepath.Join(admin, "status")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg := []string{"--instdir=" + root, "--admindir=" + admin, "--log=" + filepath.Join(admin, "log")}
	cmd := exec.Command("dpkg", append(dpkg, "--install", deb)...)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "viplab depends on iptables") {
		t.Fatalf("installed where iptables is missing: %v\n%s", err, out)
	}
	if err := os.WriteFile(status, []byte(output(t, "dpkg-query", "--status", "iptables")), 0o644); err != nil {
		t.Fatal(err)
	}
	output(t, "dpkg", append(dpkg, "--install", deb)...)

	viplab := filepath.Join(root, "usr/bin/viplab")
	for _, c := range []struct {
		want string
		argv []string
	}{
		{"platform linux/", []string{viplab, "version"}},
		{"1 passed, 0 failed", []string{viplab, "conform", "--proxier", "iptables", "--ip", "4",
			"--focus", "^clusterip-every-node$", "--out", t.TempDir()}},
		{"Exit code: 0", []string{"gzip", "-cd", filepath.Join(root, "usr/share/man/man1/viplab-conform.1.gz")}},
		{"__start_viplab", []string{"cat", filepath.Join(root, "usr/share/bash-completion/completions/viplab")}},
		{"==== Go's standard library", []string{"cat", filepath.Join(root, "usr/share/doc/viplab/copyright")}},
		{"install ok installed", append([]string{"dpkg"}, append(dpkg, "--status", "viplab")...)},
	} {
		if got := output(t, c.argv[0], c.argv[1:]...); !strings.Contains(got, c.want) {
			t.Errorf("%q: no %q in\n%s", c.argv, c.want, got)
		}
	}
	if got := output(t, "dpkg", append(dpkg, "--verify", "viplab")...); got != "" {
		t.Errorf("files differ from their sums:\n%s", got)
	}

	output(t, "dpkg", append(dpkg, "--purge", "viplab")...)
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
}

func TestOneArchitectureMustRunHere(t *testing.T) {
	err := run(t.Context(), t.TempDir(), []string{"s390x"}, false)
	if err == nil || !strings.Contains(err.Error(), "must be among them") {
		t.Errorf("got %v", err)
	}
}
