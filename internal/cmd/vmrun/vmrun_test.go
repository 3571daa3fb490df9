// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestNewest(t *testing.T) {
	for _, c := range []struct {
		pattern *regexp.Regexp
		names   []string
		want    string
	}{
		{packages["6.1"], []string{"linux-image-6.1.0-9-amd64", "linux-image-6.1.0-56-amd64", "linux-image-6.1.0-57-rt-amd64",
			"linux-image-6.1.0-58-cloud-amd64", "linux-image-6.1.0-59-amd64-dbg"}, "6.1.0-56-amd64"},
		{packages["6.12"], []string{"linux-image-6.12.9+deb12-amd64", "linux-image-6.12.117+deb12-amd64",
			"linux-image-6.12.118+deb12-amd64-unsigned", "linux-image-6.12-amd64"}, "6.12.117+deb12-amd64"},
		{packages["6.12"], []string{"linux-image-6.1.0-56-amd64"}, ""},
		{umlSource, []string{"linux-source-7.9", "linux-source-7.10", "linux-source", "linux-source-8-rt"}, "7.10"},
	} {
		for range 2 { // in either order
			if got := newest(c.names, c.pattern); got != c.want {
				t.Errorf("of %q: %q, want %q", c.names, got, c.want)
			}
			slices.Reverse(c.names)
		}
	}
}

func TestLostOptions(t *testing.T) {
	const wanted = "# Devices\nCONFIG_A=y\nCONFIG_B=y\n\nCONFIG_C=y\n"
	got := lostOptions(wanted, "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_CC=y\n")
	if want := []string{"CONFIG_B=y", "CONFIG_C=y"}; !slices.Equal(got, want) {
		t.Errorf("lost %q, want %q", got, want)
	}
	if lost := lostOptions(wanted, wanted); lost != nil {
		t.Errorf("lost %q of itself", lost)
	}
}

// A kernel of another configuration is built anew, which needs tools that are not in the PATH here.
func TestUMLIsBuiltOnceForItsConfiguration(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	cache := t.TempDir()
	dir := filepath.Join(cache, "linux-uml")
	for _, c := range []struct {
		config string
		built  bool
	}{{umlConfig, true}, {umlConfig + "CONFIG_X=y\n", false}} {
		err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "config"), []byte(c.config), 0o644),
			os.WriteFile(filepath.Join(dir, "release"), []byte("7.3.4"), 0o644))
		if err != nil {
			t.Fatal(err)
		}
		if k, err := findKernel(cache, uml); (err == nil) != c.built || c.built && k.release != "7.3.4" {
			t.Errorf("%v, %v; built: %v", k, err, c.built)
		}
	}
}

// Go programs in user-mode Linux stay below the number of pages that it can map.
func TestMemoryLimitInUML(t *testing.T) {
	for _, c := range []struct{ kernel, set, want string }{
		{uml, "", "160MiB"}, {uml, "1GiB", "1GiB"}, {"6.12", "", ""},
	} {
		t.Setenv(memoryLimit, c.set)
		got := ""
		for _, e := range (kernel{name: c.kernel}).environ() {
			if value, ok := strings.CutPrefix(e, memoryLimit+"="); ok {
				got = value // the last one counts
			}
		}
		if got != c.want {
			t.Errorf("%s, set to %q: %q, want %q", c.kernel, c.set, got, c.want)
		}
	}
}

func TestUMLSaysWhatABuildNeeds(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := findKernel(t.TempDir(), uml)
	if err == nil || !strings.Contains(err.Error(), "sudo apt-get install gcc libc6-dev make flex bison bc binutils") {
		t.Errorf("without any tool: %v", err)
	}
}

func TestModulesComeAfterWhatTheyNeed(t *testing.T) {
	dir := t.TempDir()
	const dep = "a/ring.ko:\na/virtio.ko.xz: a/ring.ko\na/pci.ko: a/virtio.ko.xz a/ring.ko\na/other.ko:\n"
	if err := os.WriteFile(filepath.Join(dir, "modules.dep"), []byte(dep), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := withDependencies(dir, []string{"pci", "builtin", "virtio"})
	if want := []string{"a/ring.ko", "a/virtio.ko.xz", "a/pci.ko"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestInitramfsIsAnArchive(t *testing.T) {
	if _, err := exec.LookPath("cpio"); err != nil {
		t.Skip("nothing to read it with: ", err)
	}
	var archive cpio
	archive.folder("/modules")
	archive.file("/modules/odd", 0o644, []byte("12345"))
	archive.file("/init", 0o755, []byte("#!"))
	dir := t.TempDir()
	cmd := exec.Command("cpio", "--extract", "--make-directories")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(archive.bytes())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	content, err := os.ReadFile(filepath.Join(dir, "modules", "odd"))
	if err != nil || string(content) != "12345" {
		t.Errorf("%q, %v", content, err)
	}
	if st, err := os.Stat(filepath.Join(dir, "init")); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", st, err)
	}
}

func TestAWorldOfFrames(t *testing.T) {
	var buf bytes.Buffer
	w := &wire{rw: &buf}
	long := bytes.Repeat([]byte("x"), maxFrame+7)
	if n, err := (stream{w, kindStdout}).Write(long); n != len(long) || err != nil {
		t.Fatal(n, err)
	}
	if err := w.send(kindBye, nil); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for {
		k, payload, err := w.receive()
		if err != nil {
			t.Fatal(err)
		}
		if k == kindBye {
			break
		}
		got = append(got, payload...)
	}
	if !bytes.Equal(got, long) {
		t.Errorf("%d bytes arrived of %d", len(got), len(long))
	}
	if _, _, err := w.receive(); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
	buf.WriteString("o\xff\xff\xff\xff")
	if _, _, err := w.receive(); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("a frame of 4 GiB: %v", err)
	}
}

func TestProgramsAreFoundAsByAShell(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"good": 0o755, "data": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	env := withSbin([]string{"A=b", "PATH=/nowhere:" + dir})
	if !strings.HasSuffix(env[1], ":/usr/sbin:/sbin") {
		t.Errorf("PATH is %q", env[1])
	}
	for name, want := range map[string]string{"good": dir + "/good", "./x": "/home/x", "/bin/y": "/bin/y", "data": "",
		"none": ""} {
		got, err := findIn(env, "/home", name)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}
