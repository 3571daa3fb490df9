// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/viplab/viplab/internal/debian"
)

// uml names user-mode Linux: a kernel that is a process of this machine. It has one processor. Its programs run on the
// real one, and start in a tenth of the time that emulation takes; a system call takes as long as there
// (Documentation/virt/uml/user_mode_linux_howto_v2.rst).
const uml = "uml"

// umlSource matches the packages of kernel sources.
var umlSource = regexp.MustCompile(`^linux-source-(\d+\.\d+)$`)

// umlConfig is what the kernel has.
//
//go:embed uml.config
var umlConfig string

// umlArguments are those of the kernel. Since Linux 6.16, seccomp=on lets it intercept system calls without ptrace,
// which is many times faster.
func (m machine) umlArguments(dir string) []string {
	args := []string{
		"mem=3072M", "quiet", "seccomp=on", "panic=-1", mark, "umid=viplab", "uml_dir=" + dir + "/",
		"initrd=" + initramfs(dir), "ssl=null", "ssl0=fd:3", portVariable + "=/dev/ttyS0", "con=null",
	}
	if m.job.Interactive {
		return append(args, "con0=fd:0,fd:1")
	}
	return append(args, "con0=null,fd:1")
}

// buildUML builds the kernel from the newest source that Debian 13's backports have, into dir.
func buildUML(cache, dir string) (release string, err error) {
	if err := checkBuildTools(); err != nil {
		return "", err
	}
	apt, err := debian.Backports(filepath.Join(cache, "apt-backports"), "amd64")
	if err != nil {
		return "", err
	}
	version, err := unpackNewest(apt, dir, "linux-source-", umlSource)
	if err != nil {
		return "", err
	}
	progress("build user-mode Linux %s (once, takes about ten minutes on two processors)", version)
	packed := filepath.Join(dir, "usr", "src", "linux-source-"+version+".tar.xz")
	source, build := filepath.Join(dir, "linux-source-"+version), filepath.Join(dir, "build")
	config := filepath.Join(dir, "config")
	if err := errors.Join(command(dir, "tar", "--extract", "--file", packed), os.Mkdir(build, 0o755),
		os.WriteFile(config, []byte(umlConfig), 0o644)); err != nil {
		return "", err
	}
	configure := command(source, "make", "ARCH=um", "O="+build, "KCONFIG_ALLCONFIG="+config, "allnoconfig")
	made, err := os.ReadFile(filepath.Join(build, ".config"))
	if err := errors.Join(configure, err); err != nil {
		return "", err
	}
	if lost := lostOptions(umlConfig, string(made)); lost != nil {
		progress("this kernel does not have %s", strings.Join(lost, ", "))
	}
	if err := command(source, "make", "ARCH=um", "O="+build, "-j"+strconv.Itoa(runtime.NumCPU())); err != nil {
		return "", err
	}
	name, err := os.ReadFile(filepath.Join(build, "include", "config", "kernel.release"))
	if err != nil {
		return "", err
	}
	k := kernel{uml, dir, strings.TrimSpace(string(name))}
	return k.release, errors.Join(k.takeFrom(build), os.RemoveAll(build), os.RemoveAll(source), os.Remove(packed))
}

// hasUMLConfig reports whether the kernel in dir was built from what umlConfig is now.
func hasUMLConfig(dir string) bool {
	config, err := os.ReadFile(filepath.Join(dir, "config"))
	return err == nil && string(config) == umlConfig
}

// lostOptions returns the options of a wanted configuration that one which make has completed does not have: those with
// another name in that kernel, and those that depend on others.
func lostOptions(wanted, made string) (lost []string) {
	has := strings.Split(made, "\n")
	for line := range strings.Lines(wanted) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "CONFIG_") && !slices.Contains(has, line) {
			lost = append(lost, line)
		}
	}
	return lost
}

// takeFrom takes what a build has made.
func (k kernel) takeFrom(build string) error {
	return errors.Join(
		command(build, "strip", "-o", k.image(), "vmlinux"),
		command(build, "make", "ARCH=um", "modules_install", "INSTALL_MOD_PATH="+k.dir, "INSTALL_MOD_STRIP=1",
			"DEPMOD="+findProgram("depmod")),
	)
}

// checkBuildTools returns an error that says what to install for a build.
func checkBuildTools() error {
	var missing []string
	for _, tool := range []struct{ program, pkg string }{
		{"gcc", "gcc libc6-dev"}, {"make", "make"}, {"flex", "flex"}, {"bison", "bison"}, {"bc", "bc"},
		{"strip", "binutils"},
	} {
		if _, err := exec.LookPath(tool.program); err != nil {
			missing = append(missing, tool.pkg)
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("to build user-mode Linux, install what is missing: sudo apt-get install %s",
		strings.Join(missing, " "))
}
