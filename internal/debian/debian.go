// SPDX-License-Identifier: Apache-2.0

// Package debian downloads packages of Debian with apt. It needs no root and changes none of the machine's packages.
package debian

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Apt is a configuration of apt. The zero value is that of the machine.
type Apt struct{ options []string }

// Own returns a configuration with Debian 12's own sources for an architecture, with lists that it updates in a folder.
func Own(dir, arch string) (Apt, error) {
	return with(dir, arch, `deb http://deb.debian.org/debian bookworm main
deb http://deb.debian.org/debian-security bookworm-security main
`)
}

// Backports is like Own, with the newer packages that Debian offers to users of Debian 13, such as kernels.
func Backports(dir, arch string) (Apt, error) {
	return with(dir, arch, "deb http://deb.debian.org/debian trixie-backports main\n")
}

func with(dir, arch, sources string) (Apt, error) {
	list := filepath.Join(dir, "sources.list")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "lists", "partial"), 0o755),
		os.WriteFile(list, []byte(sources), 0o644)); err != nil {
		return Apt{}, err
	}
	a := Apt{options: []string{
		"-o", "Dir::Etc::SourceList=" + list, "-o", "Dir::Etc::SourceParts=-",
		"-o", "Dir::State::Lists=" + filepath.Join(dir, "lists"), "-o", "Dir::Cache=" + dir,
		"-o", "APT::Architecture=" + arch, "-o", "APT::Architectures=" + arch, "-o", "APT::Sandbox::User=",
		"-o", "Acquire::Languages=none",
		// Ubuntu has Debian's keys in the package debian-archive-keyring; on Debian they are trusted anyway.
		"-o", "Dir::Etc::TrustedParts=/usr/share/keyrings",
	}}
	_, err := a.Run("apt-get", "", "update", "-q")
	return a, err
}

// Run runs a program of apt in a folder, and returns what it prints.
func (a Apt) Run(program, dir string, args ...string) ([]byte, error) {
	cmd := exec.Command(program, append(a.options, args...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return out, nil
}

// Download downloads packages and all that they depend on into a folder, and returns the paths of the packages in the
// order of their names. What this machine has installed is of no account.
func (a Apt) Download(dir string, packages ...string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	status := filepath.Join(dir, "status") // of a machine without packages
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "partial"), 0o755),
		os.WriteFile(status, nil, 0o644)); err != nil {
		return nil, err
	}
	args := []string{"-o", "Dir::State::Status=" + status, "-o", "Dir::Cache::Archives=" + dir,
		"-o", "Debug::NoLocking=1", "install", "-q", "--yes", "--download-only", "--no-install-recommends"}
	if _, err := a.Run("apt-get", dir, append(args, packages...)...); err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err == nil && len(found) < len(packages) {
		err = fmt.Errorf("%s: %d packages after the download of %d", dir, len(found), len(packages))
	}
	return found, err
}
