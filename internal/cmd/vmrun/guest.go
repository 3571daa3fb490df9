// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/sandbox"
)

// guest is process 1 of the virtual machine. Its own errors go to the host as a fault, or before there is a way to the
// host to the console, which the host shows when the boot does not come to an end.
func guest() {
	w, err := openWire()
	if err == nil {
		err = serve(w)
		if err != nil {
			_ = w.send(kindFault, []byte(err.Error()))
			select {} // the host ends the machine when it has read it
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	panic("still alive after power off")
}

// openWire loads what the port to the host needs, and opens it.
func openWire() (*wire, error) {
	if err := mountAll("",
		mount{"devtmpfs", "/dev", "devtmpfs", 0, ""},
		mount{"proc", "/proc", "proc", 0, ""},
		mount{"sysfs", "/sys", "sysfs", 0, ""},
	); err != nil {
		return nil, err
	}
	if err := loadModules(); err != nil {
		return nil, err
	}
	if inUML() {
		port, err := openRaw(os.Getenv(portVariable))
		return &wire{rw: port}, err
	}
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, file := range names {
		if name, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(name)) == portName {
			port, err := os.OpenFile("/dev/"+filepath.Base(filepath.Dir(file)), os.O_RDWR, 0)
			return &wire{rw: port}, err
		}
	}
	return nil, fmt.Errorf("no port %q among %d virtio ports", portName, len(names))
}

// inUML reports whether this is the guest of user-mode Linux.
func inUML() bool { return os.Getenv(portVariable) != "" }

// openRaw opens a terminal that passes all bytes on as they are, as cfmakeraw(3) has it.
func openRaw(device string) (*os.File, error) {
	port, err := os.OpenFile(device, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	modes, err := unix.IoctlGetTermios(int(port.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	modes.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL |
		unix.IXON
	modes.Oflag &^= unix.OPOST
	modes.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	modes.Cflag = modes.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	return port, unix.IoctlSetTermios(int(port.Fd()), unix.TCSETS, modes)
}

// shared returns the mount of a folder of the host: by its 9p tag in QEMU, by its path in user-mode Linux.
func shared(tag, path, target string, flags uintptr, cache string) mount {
	if inUML() {
		return mount{"none", target, "hostfs", flags, path}
	}
	return mount{tag, target, "9p", flags, "trans=virtio,version=9p2000.L,msize=512000" + cache}
}

func loadModules() error {
	list, err := os.ReadFile(moduleList)
	if err != nil {
		return err
	}
	for _, file := range strings.Fields(string(list)) {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil {
			return fmt.Errorf("load %s: %w", file, err)
		}
	}
	return nil
}

// serve takes the job, makes the machine look like the host, runs the command and reports its end.
func serve(w *wire) error {
	if err := w.send(kindReady, nil); err != nil {
		return err
	}
	k, payload, err := w.receive()
	if err != nil || k != kindJob {
		return fmt.Errorf("wait for the job: got %q, %w", k, err)
	}
	var j job
	if err := json.Unmarshal(payload, &j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	if err := becomeHost(j); err != nil {
		return err
	}
	if err := w.send(kindBooted, nil); err != nil {
		return err
	}
	signals, bye := make(chan syscall.Signal, 16), make(chan struct{})
	go listen(w, signals, bye)
	code, err := runJob(w, j, signals)
	if err != nil {
		return err
	}
	if err := w.send(kindExit, binary.BigEndian.AppendUint32(nil, uint32(code))); err != nil {
		return err
	}
	<-bye
	return nil
}

// listen takes what the host says after the job.
func listen(w *wire, signals chan<- syscall.Signal, bye chan<- struct{}) {
	defer close(bye)
	for {
		k, payload, err := w.receive()
		if err != nil || k == kindBye {
			return
		}
		if k == kindSignal && len(payload) == 1 {
			signals <- syscall.Signal(payload[0])
		}
	}
}

// becomeHost makes the host's files the root. They are read-only on the host's side; what the guest writes lies in
// memory above them. Changing the root of process 1 changes it for the kernel's own threads too, which is how
// /sbin/modprobe and /lib/modules are found when something asks for a module.
func becomeHost(j job) error {
	const host, memory, root = "/host", "/memory", "/root"
	if err := mountAll("",
		shared("host", "/", host, unix.MS_RDONLY, ",cache=loose"),
		mount{"tmpfs", memory, "tmpfs", 0, "mode=0755"},
	); err != nil {
		return err
	}
	upper, work := memory+"/upper", memory+"/work"
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	mounts := []mount{
		{"overlay", "", "overlay", 0, "lowerdir=" + host + ",upperdir=" + upper + ",workdir=" + work},
		{"devtmpfs", "/dev", "devtmpfs", 0, ""},
		{"devpts", "/dev/pts", "devpts", 0, "ptmxmode=0666"},
		{"tmpfs", "/dev/shm", "tmpfs", 0, ""},
		{"proc", "/proc", "proc", 0, ""},
		{"sysfs", "/sys", "sysfs", 0, ""},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""},
		{"tmpfs", "/run", "tmpfs", 0, "mode=0755"},
		{"tmpfs", "/run/lock", "tmpfs", 0, "mode=1777"},
		{host + j.Modules, "/lib/modules", "", unix.MS_BIND, ""},
	}
	for i, out := range j.Outs {
		mounts = append(mounts, shared(fmt.Sprintf("out%d", i), out, out, 0, ""))
	}
	if err := mountAll(root, mounts...); err != nil {
		return err
	}
	if err := switchRoot(root); err != nil {
		return fmt.Errorf("switch to the root %s: %w", root, err)
	}
	if err := unix.Sethostname([]byte("viplab-vm")); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	// The kernel does not load this module on demand. Nodes of Kubernetes have it.
	if out, err := exec.Command("/sbin/modprobe", "br_netfilter").CombinedOutput(); err != nil {
		return fmt.Errorf("modprobe br_netfilter: %w: %s", err, out)
	}
	return sandbox.LoopbackUp()
}

// switchRoot makes a mounted folder the root. It is moved over the old one first: a process with a root below that of
// its mount namespace may not make user namespaces.
func switchRoot(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}

type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

func mountAll(root string, mounts ...mount) error {
	for _, m := range mounts {
		target := root + m.target
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.source, target, err)
		}
	}
	return nil
}

// runJob runs the command to its end and returns its exit code, with 128 added to the signal that ended it. All output
// has been sent when it returns, except that of daemons the command left behind.
func runJob(w *wire, j job, signals <-chan syscall.Signal) (int, error) {
	// 1048576 is fs.nr_open, the highest limit the kernel allows by default.
	limit := syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("raise the limit of open files: %w", err)
	}
	env := withSbin(j.Env)
	if j.Interactive {
		return runShell(j, env)
	}
	path, err := findIn(env, j.Dir, j.Args[0])
	if err != nil {
		_ = w.send(kindStderr, []byte(err.Error()+"\n"))
		return 127, nil
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	var pumps sync.WaitGroup
	files := []uintptr{null.Fd()}
	var ends []*os.File
	for _, k := range []kind{kindStdout, kindStderr} {
		r, end, err := os.Pipe()
		if err != nil {
			return 0, err
		}
		files, ends = append(files, end.Fd()), append(ends, end)
		pumps.Go(func() { _, _ = r.WriteTo(stream{w, k}) })
	}
	pid, err := syscall.ForkExec(path, j.Args, &syscall.ProcAttr{
		Dir: j.Dir, Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	for _, end := range ends {
		end.Close()
	}
	if err != nil {
		_ = w.send(kindStderr, fmt.Appendf(nil, "%s: %v\n", path, err))
		return 126, nil
	}
	go func() {
		for s := range signals {
			syscall.Kill(-pid, s) // the command leads a session of its own
		}
	}()
	code := reapUntil(pid)
	syscall.Kill(-1, syscall.SIGKILL) // daemons would keep the pipes open
	pumps.Wait()
	return code, nil
}

// runShell gives the host's terminal, which is the guest's console, to a shell.
func runShell(j job, env []string) (int, error) {
	device := "/dev/hvc0"
	if inUML() {
		device = "/dev/tty0"
	}
	tty, err := os.OpenFile(device, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return 0, err
	}
	size := unix.Winsize{Row: j.Rows, Col: j.Cols}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		return 0, fmt.Errorf("set the size of the terminal: %w", err)
	}
	pid, err := syscall.ForkExec("/bin/bash", []string{"bash"}, &syscall.ProcAttr{
		Dir: j.Dir, Env: env, Files: []uintptr{tty.Fd(), tty.Fd(), tty.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true},
	})
	if err != nil {
		return 0, fmt.Errorf("/bin/bash: %w", err)
	}
	return reapUntil(pid), nil
}

func reapUntil(pid int) int {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 1
		case got == pid && status.Signaled():
			return 128 + int(status.Signal())
		case got == pid:
			return status.ExitStatus()
		}
	}
}

// withSbin adds to PATH the folders of administrators' programs, which the PATH of a user on the host may lack.
func withSbin(env []string) []string {
	env = slices.Clone(env)
	for i, e := range env {
		if strings.HasPrefix(e, "PATH=") {
			env[i] = e + ":/usr/sbin:/sbin"
			return env
		}
	}
	return append(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

// findIn finds a program as a shell in dir with that environment would.
func findIn(env []string, dir, name string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil
	}
	for _, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			for _, folder := range filepath.SplitList(path) {
				file := filepath.Join(folder, name)
				if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
					return file, nil
				}
			}
		}
	}
	return "", fmt.Errorf("%s: not found in PATH", name)
}
