// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/viplab/viplab/lab/cluster/images"
)

// enter makes the folder $1 the root folder, as container engines do, and runs the rest of its arguments there.
const enter = `set -e
mount --bind "$1" "$1"
for dir in proc sys dev; do mkdir -p "$1/$dir"; mount --rbind /$dir "$1/$dir"; done
cd "$1"
mkdir -p .old
pivot_root . .old
shift
exec /bin/sh -c 'umount -l /.old && cd / && exec "$@"' sh "$@"
`

// checkImage unpacks the image of this architecture from its layout, and judges a scenario inside.
func checkImage(ctx context.Context, folder string) error {
	root, err := os.MkdirTemp("", "viplab-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if _, err := images.Unpack(folder, root); err != nil {
		return err
	}
	if err := os.Chmod(root, 0o755); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"viplab", "version"},
		{"viplab", "doctor", "network namespaces", "iptables-nft rules", "ip sets", "nft", "conntrack"},
		{"viplab", "conform", "--proxier", "iptables,nftables", "--focus", "^clusterip-every-node$", "--out", "/tmp/out"},
		{"iptables", "--version"},
	} {
		if err := inside(ctx, root, argv...); err != nil {
			return fmt.Errorf("in the image: %q: %w", argv, err)
		}
	}
	return nil
}

// inside runs a command with a folder as its root, in namespaces of its own: of users too, unless this is root.
func inside(ctx context.Context, root string, argv ...string) error {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", enter, "enter", root}, argv...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return cmd.Run()
}
