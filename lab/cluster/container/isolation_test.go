// SPDX-License-Identifier: Apache-2.0

package container

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/hosttest"
	"github.com/viplab/viplab/internal/lab/nstest"
)

// attempts are what a hostile or clumsy program of root may try. Most fail; none may be seen from outside.
var attempts = []string{
	"for d in / /etc /usr /usr/bin /var /var/lib /home /opt /root /boot /srv /mnt /dev /proc /sys; do touch $d/viplab-was-here; done",
	"touch -d 2001-01-01 /etc/passwd /etc/hostname /usr/bin/env; chmod 600 /etc/passwd; chown 1:1 /etc/group",
	"echo viplab >>/etc/motd; ln /etc/passwd /etc/passwd.viplab; mv /etc/issue /etc/issue.viplab",
	"chmod 000 /dev/null /dev/zero; rm /dev/null; rm -r /var/mail /var/spool",
	"kill -9 -1", "kill -9 1", "kill -STOP -1",
	"umount -a; umount -l /proc; umount /dev/pts; umount -l /",
	"mount -t tmpfs none /mnt; mount --bind /tmp /etc; mount -o remount,rw /sys; mount -o remount,rw /proc/sys",
	"mount -t proc proc /mnt; mount -t sysfs sysfs /mnt; mount -t cgroup2 none /mnt; mount -t devtmpfs none /mnt",
	"for n in 0 1 2 16 32; do mknod /tmp/disk$n b 254 $n && cat /tmp/disk$n; done; mknod /dev/kmsg c 1 11; echo viplab >/dev/kmsg",
	"echo viplab >/proc/sys/kernel/core_pattern; echo 7 >/proc/sys/vm/swappiness; echo 1 >/proc/sys/net/ipv4/ip_forward",
	"echo h >/proc/sysrq-trigger; cat /proc/kcore | head -c 10; echo 1 >/proc/irq/default_smp_affinity",
	"echo mem >/sys/power/state; echo 1 >/sys/kernel/profiling; for f in /sys/module/*/parameters/*; do echo 1 >$f; done",
	"hostname evil; ip link add evil type dummy; ip link delete lo; ip address add 10.9.9.9/8 dev lo",
	"nsenter --target 1 --mount --net --pid touch /etc/viplab-was-here; chroot /proc/1/root touch /etc/viplab-was-here",
	"unshare --user --map-root-user --mount sh -c 'mount -t tmpfs none /etc; touch /etc/viplab-was-here; mount --bind /proc/1/root /mnt'",
	"unshare --user --map-root-user --mount --pid --fork sh -c 'mount -t proc proc /proc; umount /proc/sys; echo 7 >/proc/sys/vm/swappiness'",
	"date --set 2001-01-01; hwclock --systohc; modprobe dummy; swapoff -a; dmesg --clear; sysctl -w vm.swappiness=7",
	"ipcmk --shmem 4096; ipcmk --queue; nft flush ruleset; iptables --flush; ip netns add evil",
	"mkdir /x; chroot /x; cd ../../../..; touch viplab-was-here; echo x >/proc/self/attr/current; ulimit -n 1",
	"exec 3</; for i in 1 2 3; do cd ..; done; touch viplab-was-here; setpriv --reuid 65534 kill -9 1",
}

func TestNothingReachesTheMachine(t *testing.T) {
	for _, admin := range []bool{false, true} {
		t.Run(fmt.Sprintf("network administrator: %v", admin), func(t *testing.T) {
			pod := world(t)
			bystander := exec.Command("sleep", "infinity")
			nstest.Must(t, bystander.Start())
			network, err := hosttest.Take()
			nstest.Must(t, err)
			before := files(t)
			for _, script := range attempts {
				c := shell(script)
				c.NetAdmin = admin
				output(t, pod, c, Files{Space: 16 << 20})
			}
			now := files(t)
			for path := range now {
				if _, ok := before[path]; !ok {
					t.Errorf("%s was made", path)
				}
			}
			for path, was := range before {
				if now[path] != was {
					t.Errorf("%s was changed: %s, before %s", path, now[path], was)
				}
			}
			after, err := hosttest.Take()
			nstest.Must(t, err)
			if diff := network.Diff(after); len(diff) > 0 {
				t.Errorf("the machine was changed:\n%s", strings.Join(diff, "\n"))
			}
			if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("another process of the machine: %v", err)
			}
			bystander.Process.Kill()
			bystander.Wait()
		})
	}
}

// files returns what the attempts would change: owner, mode, size and times of what is in the folders of the machine.
func files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"/*", "/etc/*", "/usr/*", "/var/*", "/root/*", "/home/*", "/mnt/*", "/dev/*", "/boot/*"} {
		found, err := filepath.Glob(pattern)
		nstest.Must(t, err)
		for _, path := range found {
			if info, err := os.Lstat(path); err == nil && info.Mode()&(fs.ModeDevice|fs.ModeSymlink) == 0 || strings.HasPrefix(path, "/dev/") {
				all[path] = state(path)
			}
		}
	}
	delete(all, "/proc")
	delete(all, "/tmp") // other programs use it
	delete(all, "/dev/ptmx")
	delete(all, "/dev/tty")
	for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/proc/sys/net/ipv4/ip_forward"} {
		text, err := os.ReadFile(path)
		nstest.Must(t, err)
		all[path] = string(text)
	}
	return all
}

func state(path string) string {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err.Error()
	}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR { // its times change with every use
		return fmt.Sprintf("%d:%d %o", st.Uid, st.Gid, st.Mode)
	}
	return fmt.Sprintf("%d:%d %o, %d bytes, %d links, %d.%09d", st.Uid, st.Gid, st.Mode, st.Size, st.Nlink, st.Mtim.Sec, st.Mtim.Nsec)
}

// A program that watches the others sees none that is the machine's executable, which it could overwrite.
func TestNoProcessShowsTheMachinesExecutable(t *testing.T) {
	pod := world(t)
	var seen strings.Builder
	const watch = `while [ ! -e /tmp/stop ]; do for p in /proc/[0-9]*; do readlink $p/exe; done; done`
	c, err := pod.Start(shell(watch), Files{}, IO{Out: &seen})
	nstest.Must(t, err)
	for range 50 {
		p, err := c.Exec(shell("true"), IO{})
		nstest.Must(t, err)
		p.ExitCode()
	}
	p, err := c.Exec(shell("touch /tmp/stop"), IO{})
	nstest.Must(t, err)
	p.ExitCode()
	c.ExitCode()
	own, err := os.Executable()
	nstest.Must(t, err)
	if strings.Contains(seen.String(), filepath.Base(own)) {
		t.Errorf("it sees %s", own)
	}
	nstest.Must(t, c.Close())
}
