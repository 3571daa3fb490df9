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
	stdout, err := NewMemory("stdout")
	if err != nil {
		return "", err
	}
	defer stdout.Close()
	stderr, err := NewMemory("stderr")
	if err != nil {
		return "", err
	}
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout.File, stderr.File
	failure := run(cmd)
	text, err := stdout.content()
	if failure != nil {
		failure = stderr.Explain(failure)
	}
	return text, errors.Join(failure, err)
}

// Memory is a file in memory that a program writes to.
type Memory struct{ *os.File }

// NewMemory returns an empty file. Close releases it.
func NewMemory(name string) (*Memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return &Memory{os.NewFile(uintptr(fd), name)}, nil
}

// Explain adds what was written, in one line, to the error of a program.
func (m *Memory) Explain(failure error) error {
	said, err := m.content()
	if said = strings.Join(strings.Fields(said), " "); said != "" {
		failure = fmt.Errorf("%w: %s", failure, said)
	}
	return errors.Join(failure, err)
}

// content returns the content from the beginning of the file, wherever a program that writes to it has got.
func (m *Memory) content() (string, error) {
	text, err := io.ReadAll(io.NewSectionReader(m, 0, 1<<62))
	return string(text), err
}
