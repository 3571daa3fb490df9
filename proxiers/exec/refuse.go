// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// writers are the programs by which proxiers write rules. Those of iptables are links to a few files.
var writers = []string{
	"iptables", "iptables-save", "iptables-restore", "iptables-nft", "iptables-legacy", "ip6tables", "ip6tables-save",
	"ip6tables-restore", "ip6tables-nft", "ip6tables-legacy", "nft", "ipset",
}

// refuse is the program that takes the place of writers. It fails as iptables does without the lock and records that,
// unless the call only reads, or is for a family that is not refused. A word of each call names the family, or a line
// of nft's input.
const refuse = `#!/bin/sh
refused='%s' folder='%s'
case "${0##*/} $* " in
*tables*-save\ * | *tables*\ -[LS]\ * | nft\ list\ * | nft\ -*\ list\ * | ipset\ list\ * | ipset\ save\ * | \
	*\ --version\ *) refused= ;;
esac
of=v input=
case ${0##*/} in
ip6tables*) of=v6 ;;
iptables*) of=v4 ;;
nft)
	case "$*" in *"-f -"*) input=$(cat) ;; esac
	case " $* $input" in *" ip6 "*) of=v6 ;; *" ip "*) of=v4 ;; esac
	;;
esac
case "$refused" in
*"$of"*)
	echo "$of" >>"$folder/refused"
	echo "$0: Resource temporarily unavailable" >&2
	exit 4
	;;
esac
if [ -n "$input" ]; then
	printf '%%s\n' "$input" | "$folder/writers/${0##*/}" "$@"
else
	exec "$folder/writers/${0##*/}" "$@"
fi
`

// refusal is the time in which the writers fail for a process. It implements spec.Refusal.
type refusal struct {
	process *process
	folder  *folder
	files   []string // those that are covered
}

// RefuseWrites implements spec.Instance. It covers the writers in the mount namespace of the process. A process
// that writes by netlink alone is not refused.
func (i *instance) RefuseWrites(_ context.Context, families ...lab.Family) (spec.Refusal, error) {
	if len(families) == 0 {
		families = i.node.Families
	}
	var names []string
	for _, f := range families {
		names = append(names, f.String())
	}
	p, _ := i.current()
	r := &refusal{process: p, folder: i.folder}
	if err := r.cover(strings.Join(names, " ")); err != nil {
		return nil, spec.HarnessErrorf("%s: refuse writes: %w", i.node.Name, err)
	}
	return r, nil
}

// cover mounts refuse over the writers, and the writers in a folder where refuse finds them.
func (r *refusal) cover(families string) error {
	if err := errors.Join(
		r.folder.root.WriteFile("refused", nil, 0o600),
		r.folder.root.WriteFile("refuse", fmt.Appendf(nil, refuse, families, r.folder.path), 0o700),
		r.folder.root.MkdirAll("writers", 0o700),
	); err != nil {
		return err
	}
	program := filepath.Join(r.folder.path, "refuse")
	return netns.InMounts(r.process.container.Pid(), func() error { // the whole tree is that of the program
		for name, file := range writerFiles() {
			beside := filepath.Join(r.folder.path, "writers", filepath.Base(file))
			if !slices.Contains(r.files, file) {
				if err := errors.Join(os.WriteFile(beside, nil, 0o700), bind(file, beside), bind(program, file)); err != nil {
					return err
				}
				r.files = append(r.files, file)
			}
			link := filepath.Join(r.folder.path, "writers", name)
			if err := os.Symlink(beside, link); err != nil && !os.IsExist(err) {
				return err
			}
		}
		return nil
	})
}

func bind(file, over string) error {
	if err := unix.Mount(file, over, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s over %s: %w", file, over, err)
	}
	return nil
}

// writerFiles returns the files of the writers in PATH. Those of this executable start others of the same name.
func writerFiles() map[string]string {
	files := map[string]string{}
	self, _ := os.Executable()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		for _, name := range writers {
			file, err := filepath.EvalSymlinks(filepath.Join(dir, name))
			if err == nil && file != self && files[name] == "" {
				files[name] = file
			}
		}
	}
	return files
}

func (r *refusal) Writes(f lab.Family) (n int) {
	record, _ := r.folder.root.ReadFile("refused") // cover made it
	for line := range strings.Lines(string(record)) {
		if strings.HasPrefix(f.String(), strings.TrimSpace(line)) { // "v" counts for both
			n++
		}
	}
	return n
}

func (r *refusal) End() error {
	if r.process.ended() {
		return nil // its mounts went with it
	}
	return netns.InMounts(r.process.container.Pid(), func() error {
		for _, file := range r.files {
			beside := filepath.Join(r.folder.path, "writers", filepath.Base(file))
			if err := errors.Join(unix.Unmount(file, unix.MNT_DETACH), unix.Unmount(beside, unix.MNT_DETACH)); err != nil {
				return fmt.Errorf("uncover %s: %w", file, err)
			}
		}
		return nil
	})
}
