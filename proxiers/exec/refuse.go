// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// writers are the programs by which proxiers write rules. Most are links to a few files.
var writers = []string{
	"iptables", "iptables-restore", "iptables-nft", "iptables-legacy", "ip6tables", "ip6tables-restore", "nft", "ipset",
}

// refuse is the program that takes the place of writers. It fails as iptables does without the lock, and records that.
const refuse = `#!/bin/sh
echo >>'%s'
echo "$0: Resource temporarily unavailable" >&2
exit 4
`

// refusal is the time in which the writers fail for a process. It implements spec.Refusal.
type refusal struct {
	process *process
	record  string   // the file with a byte for each refused write
	files   []string // those that are covered
}

// RefuseWrites implements spec.WriteRefuser. It covers the writers in the mount namespace of the process. A process
// that writes by netlink alone is not refused.
func (i *instance) RefuseWrites(context.Context) (spec.Refusal, error) {
	p, _ := i.current()
	r := &refusal{process: p, record: filepath.Join(i.node.StateDir, "refused")}
	program := filepath.Join(i.node.StateDir, "refuse")
	if err := errors.Join(os.WriteFile(r.record, nil, 0o600),
		os.WriteFile(program, fmt.Appendf(nil, refuse, r.record), 0o700)); err != nil {
		return nil, spec.HarnessErrorf("%s: %w", i.node.Name, err)
	}
	err := netns.InMounts(p.pid, func() error {
		for _, file := range writerFiles() {
			if err := unix.Mount(program, file, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("mount %s over %s: %w", program, file, err)
			}
			r.files = append(r.files, file)
		}
		return nil
	})
	if err != nil {
		return nil, spec.HarnessErrorf("%s: refuse writes: %w", i.node.Name, err)
	}
	return r, nil
}

// writerFiles returns the files of the writers in PATH. Those of this executable stay: they start others of that name.
func writerFiles() (files []string) {
	self, _ := os.Executable()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		for _, name := range writers {
			file, err := filepath.EvalSymlinks(filepath.Join(dir, name))
			if err == nil && file != self && !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files
}

func (r *refusal) Writes() int {
	info, err := os.Stat(r.record)
	if err != nil {
		return 0
	}
	return int(info.Size())
}

func (r *refusal) End() error {
	if r.process.ended() {
		return nil // its mounts went with it
	}
	return netns.InMounts(r.process.pid, func() error {
		for _, file := range r.files {
			if err := unix.Unmount(file, unix.MNT_DETACH); err != nil {
				return fmt.Errorf("uncover %s: %w", file, err)
			}
		}
		return nil
	})
}
