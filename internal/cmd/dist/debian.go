// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/md5"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// control is what differs between Debian packages of viplab.
type control struct {
	Version, Architecture string
	Time                  time.Time // of all files
}

// debianVersion returns a version in the order of Debian: 0.3.0-rc.1 comes before 0.3.0 there if it is 0.3.0~rc.1. A
// hyphen would begin a revision of the packaging.
func debianVersion(version string) string {
	return strings.ReplaceAll(strings.Replace(version, "-", "~", 1), "-", ".")
}

// text returns the file "control". Depends is what judging the built-in iptables proxier needs, Recommends what the
// other proxiers and enforcers need, and Suggests what lessons, and building the real kube-proxy, need; the findings of
// "viplab doctor" name the same packages.
func (c control) text(kilobytes int64) string {
	return fmt.Sprintf(`Package: viplab
Version: %s
Architecture: %s
Maintainer: The viplab authors <maintainers@viplab.invalid>
Section: net
Priority: optional
Installed-Size: %d
Depends: iptables
Recommends: conntrack, ipset, iproute2, nftables
Suggests: curl, golang-go, ipvsadm, jq, tcpdump
Homepage: https://github.com/viplab/viplab
Description: lab for Kubernetes Services and network policies
 viplab builds a Kubernetes cluster's network out of Linux namespaces. It runs any
 implementation of Service virtual IPs and of NetworkPolicy in it, and proves with
 real packets which promises of the API it keeps. It changes nothing on the machine.
`, c.Version, c.Architecture, kilobytes)
}

// debian writes a Debian package with the tree below /usr. dpkg-deb, the tool of the format's authors, writes the same
// bytes for the same files and date.
func (t tree) debian(ctx context.Context, goal string, c control) error {
	root, err := os.MkdirTemp("", "viplab-deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if err := os.Chmod(root, 0o755); err != nil { // it becomes the mode of /
		return err
	}
	if err := t.unpack(filepath.Join(root, "usr"), c.Time); err != nil {
		return err
	}
	var sums strings.Builder
	var size int64
	for _, f := range t {
		content, err := f.read()
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  usr/%s\n", md5.Sum(content), f.path) // the format asks for MD5
		size += int64(len(content)+1023) / 1024
	}
	meta := tree{
		{"DEBIAN/control", 0o644, []byte(c.text(size)), ""},
		{"DEBIAN/md5sums", 0o644, []byte(sums.String()), ""},
	}
	if err := meta.unpack(root, c.Time); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--root-owner-group", "--build", root, goal)
	cmd.Env = append(os.Environ(), fmt.Sprint("SOURCE_DATE_EPOCH=", c.Time.Unix()))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg-deb: %w: %s", err, out)
	}
	return nil
}
