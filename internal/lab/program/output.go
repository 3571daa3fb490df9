// SPDX-License-Identifier: Apache-2.0

// Package program collects what programs print.
package program

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// Output runs a command with run, such as NS.Run, and returns what the command prints. An error holds, in one line,
// what the command has written to stderr.
//
// Both go to files in memory instead of pipes: nft writes each word on its own, and each of them would wake this
// process up.
func Output(cmd *exec.Cmd, run func(*exec.Cmd) error) (string, error) {
	stdout, err := memory("stdout")
	if err != nil {
		return "", err
	}
	defer stdout.Close()
	stderr, err := memory("stderr")
	if err != nil {
		return "", err
	}
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	failure := run(cmd)
	text, err := content(stdout)
	if failure == nil || err != nil {
		return text, errors.Join(failure, err)
	}
	said, err := content(stderr)
	if said = strings.Join(strings.Fields(said), " "); said != "" {
		failure = fmt.Errorf("%w: %s", failure, said)
	}
	return text, errors.Join(failure, err)
}

// memory returns an empty file in memory.
func memory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// content returns the content of a file from its beginning, wherever a program that writes to it has got.
func content(f *os.File) (string, error) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<62))
	return string(text), err
}
