// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/confined"
)

// nobody is a user that owns nothing.
const nobody = 65534

// users are the ways to be somebody on the machine.
var users = map[string]struct {
	become   func(t *testing.T, cmd *exec.Cmd)
	rootless bool
}{
	"root": {func(*testing.T, *exec.Cmd) {}, false},
	"user": {asNobody, true},
	"root without CAP_SYS_ADMIN": {func(t *testing.T, cmd *exec.Cmd) {
		cmd.Args = append([]string{"setpriv", "--bounding-set=-sys_admin", "/proc/self/exe"}, cmd.Args[1:]...)
		cmd.Path = mustFind(t, "setpriv")
		// setpriv would start itself as /proc/self/exe, hence the name of this binary.
		cmd.Args[2], _ = os.Executable()
	}, true},
	"root of a user namespace": {func(t *testing.T, cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
		}
	}, false},
}

func asNobody(t *testing.T, cmd *exec.Cmd) {
	if Rootless() {
		t.Skip("there is one user only in a rootless sandbox")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
}

func mustFind(t *testing.T, program string) string {
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not installed", program)
	}
	return path
}

// A program in a working directory below /run finds its files there, and nothing else of the machine's /run.
func TestAWorkingDirectoryBelowRun(t *testing.T) {
	const here, other = "/run/media/project/my-proxy", "/run/media/other"
	t.Cleanup(func() { os.RemoveAll("/run/media") })
	for _, path := range []string{here, other} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := helper(t, "run", here, other)
	cmd.Dir = filepath.Dir(here)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != here+"\n" {
		t.Errorf("the program sees %q, %v, want %s", out, err, here)
	}
}

func TestTheWorldInside(t *testing.T) {
	for name, user := range users {
		t.Run(name, func(t *testing.T) {
			cmd := helper(t, "facts")
			user.become(t, cmd)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, &stderr)
			}
			var got facts
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if got.NetNS == networkNamespace() {
				t.Error("the network namespace is that of the machine")
			}
			if got.FilesSoft != got.FilesHard {
				t.Errorf("children may open %d files, the limit is %d", got.FilesSoft, got.FilesHard)
			}
			want := facts{
				Inside: true, Rootless: user.rootless, Hostname: Hostname, Loopback: "up|loopback|running",
				Run: []string{"lock", "netns", "viplab"}, SysIsReadOnly: true, Processes: 2,
				FilesSoft: got.FilesSoft, FilesHard: got.FilesHard, NetNS: got.NetNS,
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("inside it looks like %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestThisTestRunsInside(t *testing.T) {
	if !Inside() {
		t.Error("Main ran the tests outside")
	}
}

func TestStreamsAndArguments(t *testing.T) {
	cmd := helper(t, "echo", "a b", "-x", "")
	cmd.Stdin = strings.NewReader("hello")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || string(out) != "hello" || stderr.String() != "a b|-x|" {
		t.Errorf("stdout %q, stderr %q, %v", out, &stderr, err)
	}
}

func TestFilesArePassedIn(t *testing.T) {
	cmd := helper(t, "files")
	out, err := cmd.CombinedOutput()
	if want := "one two /dev/null"; err != nil || string(out) != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}

func TestExitCode(t *testing.T) {
	for name, want := range map[string]int{"exit": 7, "die": 128 + 9, "reap": 0} {
		t.Run(name, func(t *testing.T) {
			cmd := helper(t, name)
			out, err := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != want {
				t.Errorf("exit code %d, want %d (%v): %s", got, want, err, out)
			}
		})
	}
}

// started starts a helper that prints "up", and returns its further lines.
func started(t *testing.T, cmd *exec.Cmd, out io.Reader) *bufio.Scanner {
	t.Helper()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || strings.TrimSpace(lines.Text()) != "up" {
		t.Fatalf("the helper says %q, %v", lines.Text(), lines.Err())
	}
	return lines
}

func pipe(t *testing.T, cmd *exec.Cmd) io.Reader {
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSignals(t *testing.T) {
	for _, sent := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		t.Run(unix.SignalName(sent)+" is handed on", func(t *testing.T) {
			cmd := helper(t, "wait")
			lines := started(t, cmd, pipe(t, cmd))
			cmd.Process.Signal(sent)
			if !lines.Scan() || lines.Text() != sent.String() {
				t.Errorf("the program got %q", lines.Text())
			}
			cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != 9 {
				t.Errorf("exit code %d, want the program's 9", got)
			}
		})
	}
	t.Run("one that came before the sandbox", func(t *testing.T) {
		cmd := helper(t, "late")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		hung := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // exit code -1
		_ = cmd.Wait()
		hung.Stop()
		// It ends the program before or after that can handle it.
		if got := cmd.ProcessState.ExitCode(); got != 9 && got != 128+15 {
			t.Errorf("exit code %d, want 9 or 143", got)
		}
	})
	t.Run("one that the program does not handle", func(t *testing.T) {
		cmd := helper(t, "default")
		started(t, cmd, pipe(t, cmd))
		cmd.Process.Signal(unix.SIGTERM)
		cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != 128+15 {
			t.Errorf("exit code %d, want 143", got)
		}
	})
	t.Run("SIGTERM twice is no more than once", func(t *testing.T) {
		cmd := helper(t, "wait", "forever")
		lines := started(t, cmd, pipe(t, cmd))
		for range 3 {
			cmd.Process.Signal(unix.SIGTERM)
			if !lines.Scan() {
				t.Fatal("the program is gone")
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
	})
}

// A person presses Ctrl-C: the terminal signals every process of its foreground group.
func TestCtrlC(t *testing.T) {
	master, slave := openTerminal(t)
	cmd := helper(t, "wait", "forever")
	cmd.Stdin, cmd.Stdout = slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	lines := started(t, cmd, master)
	slave.Close()

	master.WriteString("\x03")
	for lines.Scan() && !strings.Contains(lines.Text(), "interrupt") {
	}
	if !strings.Contains(lines.Text(), "interrupt") {
		t.Fatalf("the first Ctrl-C did not reach the program: %q", lines.Text())
	}
	master.WriteString("\x03")
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 128+9 {
		t.Errorf("exit code %d after the second Ctrl-C, want 137", got)
	}
	for lines.Scan() {
		if strings.Contains(lines.Text(), "interrupt") {
			t.Error("the program got one Ctrl-C twice")
		}
	}
}

func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY)
	if errno != 0 {
		t.Fatal(errno)
	}
	return master, os.NewFile(fd, "terminal")
}

func TestAForgedMarkerIsIgnored(t *testing.T) {
	for _, forged := range []string{
		"program", "program,1:1,root,2", "program,1:1,root,2,0,x", "program,1:1,root,2,x", "program,1:1,root,2,-1",
		"init,1:1,root,,0", "program," + networkNamespace() + ",root,2,0", // a child of the supervisor that is on the machine
	} {
		if got := identify(forged); got != (identity{}) {
			t.Errorf("%q makes the process %+v", forged, got)
		}
	}
	if got := identify("program,1:1,rootless,7,2"); got.files != 2 || got.stage != stageProgram || !got.rootless || got.init != "7" {
		t.Errorf("a good marker makes the process %+v", got)
	}
}

// A process whose root is not the machine's may not create a user namespace: a refusal that can be had anywhere.
func TestRefusalIsExplained(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("/", dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	cmd := helper(t, "facts")
	asNobody(t, cmd)
	cmd.SysProcAttr.Chroot = dir
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"sandbox: create namespaces: ", "operation not permitted", "why: ", "cure: "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
}

// What a minimal image, or a container engine, lacks. Refusals of init reach the caller of Enter whole.
func TestRefusalsOfInit(t *testing.T) {
	const minimal = `mount -t tmpfs tmpfs "$1"
for dir in usr proc sys dev tmp; do mkdir "$1/$dir"; mount --rbind "/$dir" "$1/$dir"; done
for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$1/$dir"; done
exec chroot "$1" /proc/self/fd/3`
	const masked = `mount --bind /dev/null /proc/version; exec setpriv --reuid 65534 --regid 65534 --clear-groups /proc/self/fd/3`
	for _, c := range []struct{ script, step, cure string }{
		{minimal, "mount tmpfs on /run: no such file or directory", "mkdir /run"},
		{masked, "mount proc: operation not permitted", "--privileged"},
	} {
		if Rootless() && c.script == masked {
			continue // there is one user only
		}
		self, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		defer self.Close()
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", c.script, "sh", t.TempDir())
		cmd.Env, cmd.ExtraFiles, cmd.Dir = append(os.Environ(), helperVariable+"=facts"), []*os.File{self}, "/"
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("%v: %s", err, out)
		}
		for _, want := range []string{"a refusal: ", c.step, c.cure} {
			if !strings.Contains(string(out), want) {
				t.Errorf("no %q in %q", want, out)
			}
		}
	}
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		name     string
		step     string
		err      error
		root     bool
		here     confined.Place
		settings map[string]string
		want     []string
	}{
		{"no user namespaces", "create namespaces", unix.ENOSPC, false, confined.Machine,
			map[string]string{"user/max_user_namespaces": "0"}, []string{"user.max_user_namespaces is 0", "sudo"}},
		{"Debian's switch", "create namespaces", unix.EPERM, false, confined.Machine,
			map[string]string{"kernel/unprivileged_userns_clone": "0"},
			[]string{"kernel.unprivileged_userns_clone is 0", "sudo"}},
		{"Ubuntu's switch", "make mounts private", unix.EACCES, false, confined.Machine,
			map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"}, []string{"apparmor", "sudo"}},
		{"the switches do not bind root", "create namespaces", unix.EPERM, true, confined.Machine,
			map[string]string{"user/max_user_namespaces": "0", "kernel/unprivileged_userns_clone": "0"}, []string{"seccomp"}},
		{"limit", "create namespaces", unix.ENOSPC, true, confined.Machine, nil, []string{"limit"}},
		{"masked proc", "mount proc", unix.EPERM, true, confined.Machine, nil, []string{"masked", "systempaths=unconfined"}},
		{"minimal root", "mount tmpfs on /run", unix.ENOENT, true, confined.Machine, nil, []string{"no folder /run", "mkdir /run"}},
		{"container", "create namespaces", unix.EPERM, true, confined.Machine, nil, []string{"seccomp", "--privileged"}},
		{"pod", "create namespaces", unix.EPERM, true, confined.Pod, nil, []string{"securityContext: {privileged: true}"}},
		{"masked proc of a job", "mount proc", unix.EPERM, true, confined.GitHub, nil, []string{"options: --privileged"}},
		{"kernel without", "create namespaces", unix.EINVAL, true, confined.Machine, nil, []string{"built without"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := explainWith(c.step, c.err, c.root, c.here, func(name string) string { return c.settings[name] })
			if !errors.Is(err, c.err) {
				t.Errorf("%v does not wrap %v", err, c.err)
			}
			for _, want := range append(slices.Clone(c.want), c.step, c.err.Error()) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %q", want, err)
				}
			}
		})
	}
	t.Run("a fault that tells nothing more", func(t *testing.T) {
		err := explainWith("set host name", unix.EIO, true, confined.Machine, func(string) string { return "" })
		if refusal := (*UnavailableError)(nil); errors.As(err, &refusal) || !errors.Is(err, unix.EIO) {
			t.Error(err)
		}
	})
}

func TestPathOfAnOrdinaryUser(t *testing.T) {
	for path, want := range map[string]string{
		"":                   "",
		"/usr/bin:/bin":      "/usr/bin:/bin:/usr/sbin:/sbin",
		"/sbin:/usr/bin":     "/sbin:/usr/bin:/usr/sbin",
		"/usr/sbin:/x:/sbin": "/usr/sbin:/x:/sbin",
	} {
		if got := withSbin(path); got != want {
			t.Errorf("%q becomes %q, want %q", path, got, want)
		}
	}
}
