// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/debian"
)

// kernel is a kernel in the cache: an unpacked package of Debian, or a build.
type kernel struct {
	name    string // as the flag has it
	dir     string // the package's root
	release string // what uname -r says in the guest, for example 6.1.0-56-amd64
}

func (k kernel) image() string   { return filepath.Join(k.dir, "vmlinux") }
func (k kernel) modules() string { return filepath.Join(k.dir, "lib", "modules") }

// environ returns the environment of commands in the guest: that of this program. In user-mode Linux the host maps each
// page of a program by itself, and a program that needs more than vm.max_map_count of them, usually 65,530 (256 MiB),
// hangs or crashes. There Go programs collect garbage before that, unless the user has set another limit.
func (k kernel) environ() []string {
	env := os.Environ()
	if k.name == uml && os.Getenv(memoryLimit) == "" {
		env = append(env, memoryLimit+"=160MiB")
	}
	return env
}

// memoryLimit is the variable for a Go program's soft limit of memory (package runtime).
const memoryLimit = "GOMEMLIMIT"

// packages are the names of the kernel packages of Debian 12 (bookworm, bookworm-security); the newest one is taken.
// Variants (cloud, rt, unsigned, dbg) lack modules or are built otherwise.
var packages = map[string]*regexp.Regexp{
	"6.1":  regexp.MustCompile(`^linux-image-(6\.1\.0-\d+-amd64)$`),
	"6.12": regexp.MustCompile(`^linux-image-(6\.12\.[0-9.]+\+deb12-amd64)$`),
}

// findKernel returns the kernel from the cache, or downloads or builds it there.
func findKernel(cache, name string) (kernel, error) {
	pattern := packages[name]
	if pattern == nil && name != uml {
		return kernel{}, fmt.Errorf("unknown kernel %q: 6.1, 6.12 or uml", name)
	}
	unlock, err := lockFile(filepath.Join(cache, "lock"))
	if err != nil {
		return kernel{}, err
	}
	defer unlock()

	dir := filepath.Join(cache, "linux-"+name)
	if release, err := os.ReadFile(filepath.Join(dir, "release")); err == nil && (name != uml || hasUMLConfig(dir)) {
		return kernel{name, dir, string(release)}, nil
	}
	progress("download the kernel %s into %s (once)", name, cache)
	release := ""
	if name == uml {
		release, err = buildUML(cache, dir)
	} else {
		release, err = download(cache, dir, pattern)
	}
	if err != nil {
		return kernel{}, fmt.Errorf("kernel %s: %w", name, err)
	}
	// last: it marks the folder as whole
	return kernel{name, dir, release}, os.WriteFile(filepath.Join(dir, "release"), []byte(release), 0o644)
}

// download asks the sources that this machine is configured with, and where they do not have the package (another
// release, or lists never fetched or out of date) Debian's own with lists kept in the cache. Neither needs root.
func download(cache, dir string, pattern *regexp.Regexp) (release string, err error) {
	release, err = fetch(debian.Apt{}, dir, pattern)
	if err == nil {
		return release, nil
	}
	own, ownErr := debian.Own(filepath.Join(cache, "apt"), "amd64")
	if ownErr == nil {
		release, ownErr = fetch(own, dir, pattern)
	}
	if ownErr != nil {
		return "", errors.Join(err, ownErr)
	}
	return release, nil
}

// fetch downloads and unpacks the newest matching package into dir.
func fetch(a debian.Apt, dir string, pattern *regexp.Regexp) (release string, err error) {
	release, err = unpackNewest(a, dir, "linux-image-", pattern)
	if err != nil {
		return "", err
	}
	if err := command("", findProgram("depmod"), "--basedir", dir, release); err != nil {
		return "", err
	}
	return release, unpackImage(filepath.Join(dir, "boot", "vmlinuz-"+release), kernel{dir: dir}.image())
}

// unpackNewest downloads and unpacks, into an empty dir, the newest package whose name is the prefix and a version that
// matches.
func unpackNewest(a debian.Apt, dir, prefix string, pattern *regexp.Regexp) (version string, err error) {
	names, err := a.Run("apt-cache", "", "pkgnames", prefix)
	if err != nil {
		return "", err
	}
	version = newest(strings.Fields(string(names)), pattern)
	if version == "" {
		return "", fmt.Errorf("apt knows no package %s", pattern)
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return "", err
	}
	if _, err := a.Run("apt-get", dir, "download", "-q", prefix+version); err != nil {
		return "", err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("%s: %d packages after the download", dir, len(debs))
	}
	return version, errors.Join(command("", "dpkg-deb", "--extract", debs[0], dir), os.Remove(debs[0]))
}

// command runs a program in a folder. Its error has the end of what the program printed.
func command(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out[max(0, len(out)-2000):])
	}
	return nil
}

// unpackImage writes the ELF file that a bzImage carries, which QEMU starts directly (PVH): under software emulation
// unpacking takes the guest 4 s and the host a tenth of that. Offsets are those of Documentation/arch/x86/boot.rst.
func unpackImage(bzImage, elf string) error {
	image, err := os.ReadFile(bzImage)
	if err != nil {
		return err
	}
	const setupSectors, payloadOffset, payloadLength = 0x1f1, 0x248, 0x24c
	if len(image) < 0x300 {
		return fmt.Errorf("%s: no kernel", bzImage)
	}
	start := (int(image[setupSectors])+1)*512 + int(binary.LittleEndian.Uint32(image[payloadOffset:]))
	end := start + int(binary.LittleEndian.Uint32(image[payloadLength:]))
	if end > len(image) || end-start < 8 {
		return fmt.Errorf("%s: no payload", bzImage)
	}
	payload := image[start : end-4] // the length of what is packed follows it
	unpack := map[string]string{"\xfd7zX": "xz", "\x28\xb5\x2f\xfd": "zstd",
		"\x02\x21\x4c\x18": "lz4"}[string(payload[:4])]
	if unpack == "" {
		return fmt.Errorf("%s: packed in an unknown way (%x)", bzImage, payload[:4])
	}
	cmd := exec.Command(unpack, "--decompress", "--stdout")
	cmd.Stdin = bytes.NewReader(payload)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %s: %w", bzImage, unpack, err)
	}
	return os.WriteFile(elf, out, 0o644)
}

// newest returns the highest release among the package names that match.
func newest(names []string, pattern *regexp.Regexp) string {
	best := ""
	for _, name := range names {
		if m := pattern.FindStringSubmatch(name); m != nil && slices.Compare(numbers(best), numbers(m[1])) < 0 {
			best = m[1]
		}
	}
	return best
}

var digits = regexp.MustCompile(`\d+`)

// numbers returns the numbers in a release, in which two releases of a pattern differ.
func numbers(release string) (out []int) {
	for _, text := range digits.FindAllString(release, -1) {
		n, _ := strconv.Atoi(text) // digits alone
		out = append(out, n)
	}
	return out
}

// findProgram looks where administrators' programs are too; a user's PATH often lacks those folders.
func findProgram(name string) string {
	for _, dir := range []string{"", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return name
}

// lockFile waits for an exclusive lock that ends with the process, whatever happens to it.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
