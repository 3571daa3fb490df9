// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/viplab/viplab/lab/cluster/images"
)

// packageWith makes a Debian package of files, each with its name as content, and returns its path.
func packageWith(t *testing.T, name string, paths ...string) string {
	t.Helper()
	root := t.TempDir()
	control := "Package: " + name + "\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.test>\nDescription: a test\n"
	files := tree{{"DEBIAN/control", 0o644, []byte(control), ""}}
	for _, path := range paths {
		files = append(files, file{path, 0o755, []byte(path), ""})
	}
	if err := files.unpack(root, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("tool", filepath.Join(root, "sbin/alias")); err != nil {
		t.Fatal(err)
	}
	deb := filepath.Join(t.TempDir(), name+"_1_all.deb")
	output(t, "dpkg-deb", "--root-owner-group", "--build", root, deb)
	return deb
}

// The layers are in order, files of /sbin are in /usr/sbin, and manuals are left out.
func TestAnImageOfPackages(t *testing.T) {
	a := packageWith(t, "a", "sbin/tool", "lib/liba.so", "usr/share/man/man1/tool.1.gz", "usr/share/doc/a/copyright",
		"usr/share/doc/a/changelog.gz")
	b := packageWith(t, "b", "sbin/tool", "usr/bin/grep")
	base, err := unpacked([]string{a, b})
	if err != nil {
		t.Fatal(err)
	}
	date := time.Unix(1_000_000_000, 0)
	own, err := tree{{"bin/viplab", 0o755, []byte("viplab"), ""}}.tar("usr", date)
	if err != nil {
		t.Fatal(err)
	}
	r := release{Version: "v0.3.0", Time: date}
	image, err := r.image(runtime.GOARCH, base, own)
	if err != nil {
		t.Fatal(err)
	}
	folder, root := t.TempDir(), t.TempDir()
	if _, err := layout.Write(folder, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image})); err != nil {
		t.Fatal(err)
	}
	if index, err := layout.ImageIndexFromPath(folder); err != nil || validate.Index(index) != nil {
		t.Errorf("%v, %v", err, validate.Index(index))
	}
	found, err := images.Unpack(folder, root)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Command) > 0 || found.Args[0] != "viplab" {
		t.Errorf("it runs %q %q", found.Command, found.Args)
	}
	for path, want := range map[string]string{
		"usr/sbin/tool": "sbin/tool", "usr/lib/liba.so": "lib/liba.so", "usr/bin/viplab": "viplab",
		"usr/share/doc/a/copyright": "usr/share/doc/a/copyright", "usr/bin/grep": "usr/bin/grep", "sbin/alias": "sbin/tool",
	} {
		if got, err := os.ReadFile(filepath.Join(root, path)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	for _, path := range []string{"usr/share/man/man1/tool.1.gz", "usr/share/doc/a/changelog.gz"} {
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			t.Errorf("it has %s", path)
		}
	}
	for path, want := range map[string]string{"usr/bin/sh": "/usr/bin/busybox", "usr/sbin/iptables": "iptables-nft"} {
		if to, err := os.Readlink(filepath.Join(root, path)); to != want {
			t.Errorf("%s leads to %q, %v", path, to, err)
		}
	}
	if control, err := os.ReadFile(filepath.Join(root, "var/lib/dpkg/status.d/b")); err != nil || len(control) < 50 {
		t.Errorf("%s, %v", control, err)
	}
}
