// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// guestInit is this executable's place in the initramfs.
const guestInit = "/init"

// moduleList names the modules in the initramfs in the order to load them.
const moduleList = "/modules/order"

// bootModules are what the guest needs before it sees /lib/modules; the kernel finds the rest there by itself.
var bootModules = []string{"virtio_pci", "virtio_console", "virtio_rng", "9pnet_virtio", "9p", "overlay"}

// writeInitramfs writes a cpio archive with this executable as init, and the boot modules.
func writeInitramfs(path string, k kernel) error {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	order, err := withDependencies(filepath.Join(k.modules(), k.release), bootModules)
	if err != nil {
		return err
	}
	var archive cpio
	archive.folder("/modules")
	archive.file(guestInit, 0o755, self)
	var names []string
	for _, module := range order {
		code, err := readModule(filepath.Join(k.modules(), k.release, module))
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(filepath.Base(module), ".")
		archive.file("/modules/"+name, 0o644, code)
		names = append(names, "/modules/"+name)
	}
	archive.file(moduleList, 0o644, []byte(strings.Join(names, "\n")))
	return os.WriteFile(path, archive.bytes(), 0o644)
}

// withDependencies lists the files of modules and of all they depend on, each after what it depends on. A name that
// modules.dep does not have is built into the kernel.
func withDependencies(dir string, modules []string) ([]string, error) {
	dep, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	needs, files := map[string][]string{}, map[string]string{}
	for line := range strings.Lines(string(dep)) {
		file, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		needs[file] = strings.Fields(rest)
		name, _, _ := strings.Cut(filepath.Base(file), ".")
		files[name] = file
	}
	var order []string
	for _, module := range modules {
		file, ok := files[module]
		if !ok {
			continue
		}
		// modules.dep lists all of a module's needs, the deepest last.
		chain := append(slices.Clone(needs[file]), file)
		slices.Reverse(chain[:len(chain)-1])
		for _, f := range chain {
			if !slices.Contains(order, f) {
				order = append(order, f)
			}
		}
	}
	return order, nil
}

// readModule reads a module's code, unpacked: the guest's init has no decompressor.
func readModule(path string) ([]byte, error) {
	if !strings.HasSuffix(path, ".xz") {
		return os.ReadFile(path)
	}
	code, err := exec.Command("xz", "--decompress", "--stdout", path).Output()
	if err != nil {
		return nil, fmt.Errorf("xz --decompress %s: %w", path, err)
	}
	return code, nil
}

// cpio builds an archive of the only format that the kernel unpacks, "newc" (Documentation/driver-api/early-userspace/
// buffer-format.rst).
type cpio struct {
	buf   bytes.Buffer
	inode int
}

func (c *cpio) folder(name string) { c.entry(name, 0o040755, nil) }

func (c *cpio) file(name string, mode fs.FileMode, data []byte) {
	c.entry(name, 0o100000|uint32(mode.Perm()), data)
}

func (c *cpio) entry(name string, mode uint32, data []byte) {
	c.inode++
	name = strings.TrimPrefix(name, "/") + "\x00"
	fields := []int{c.inode, int(mode), 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0}
	c.buf.WriteString("070701")
	for _, f := range fields {
		fmt.Fprintf(&c.buf, "%08X", f)
	}
	c.buf.WriteString(name)
	c.pad()
	c.buf.Write(data)
	c.pad()
}

func (c *cpio) pad() {
	for c.buf.Len()%4 != 0 {
		c.buf.WriteByte(0)
	}
}

func (c *cpio) bytes() []byte {
	c.entry("TRAILER!!!", 0, nil)
	return c.buf.Bytes()
}
