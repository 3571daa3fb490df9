// SPDX-License-Identifier: Apache-2.0

package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// marker is the variable that makes this executable a stage.
const marker = "VIPLAB_CONTAINER"

// The descriptors of a stage beside its standard streams.
const (
	controlFd = 3 // the socket to the process that started the stage
	mountsFd  = 4 // the mount namespace to enter, for a program in a running container
	statusFd  = 4 // where process 1 writes how the program below it has ended
)

// stage is what a copy of this executable does before it becomes the program. It is the first in the container's
// namespaces, or enters those of a running container.
type stage struct {
	Command
	Files *Files // nil: enter the mounts of a running container
	TTY   bool
}

func init() {
	if os.Getenv(marker) != "" {
		os.Exit(runStage())
	}
}

// runStage becomes the program, or reports why it cannot.
func runStage() int {
	runtime.LockOSThread()
	unix.CloseOnExec(controlFd)
	control := os.NewFile(controlFd, "control")
	err := readStage(control)
	if _, err := fmt.Fprint(control, err); err != nil && !errors.Is(err, io.EOF) {
		return 2
	}
	return 1
}

// readStage becomes the program that a message describes. It reads the message to its end: if a byte were left, the end
// of the socket would reset the connection, and the other side would take that for a failure.
func readStage(control io.Reader) error {
	text, err := io.ReadAll(control)
	if err != nil {
		return err
	}
	var s stage
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	return s.run()
}

// run returns only an error.
func (s *stage) run() error {
	// Nobody in the container may look at this process, whose executable is the machine's.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide the process: %w", err)
	}
	if err := s.settle(); err != nil {
		return err
	}
	unix.Umask(0o022)
	if err := s.enterDir(); err != nil {
		return err
	}
	if s.TTY {
		if err := takeTerminal(); err != nil {
			return err
		}
	}
	if err := s.dropPrivileges(); err != nil {
		return err
	}
	return s.become()
}

// settle gives the thread the mounts of the container.
func (s *stage) settle() error {
	if s.Files != nil {
		// Where the machine runs out of memory, its kernel ends this program first.
		if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
			return err
		}
		if err := s.Limits.limitProcesses(); err != nil {
			return err
		}
		return s.Files.mount(s.NetAdmin)
	}
	unix.CloseOnExec(mountsFd)
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares its root cannot move
		return fmt.Errorf("leave the file system context of the process: %w", err)
	}
	if err := unix.Setns(mountsFd, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the mount namespace of the container: %w", err)
	}
	return nil
}

func (s *stage) enterDir() error {
	dir := s.Dir
	if dir == "" {
		dir = "/"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	// not os.Chdir: the thread may have a file system context of its own
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("working directory %s: %w", dir, err)
	}
	return nil
}

// become executes the program. It returns only an error.
func (s *stage) become() error {
	if len(s.Args) == 0 {
		return errors.New("there is no command")
	}
	os.Clearenv()
	for _, e := range s.Env {
		if name, value, ok := cut(e); ok {
			_ = os.Setenv(name, value)
		}
	}
	path, err := exec.LookPath(s.Args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return err
	}
	if s.Init {
		return s.supervise(path)
	}
	return fmt.Errorf("exec %s: %w", path, syscall.Exec(path, s.Args, s.Env))
}

func cut(env string) (name, value string, ok bool) {
	for i := range env {
		if env[i] == '=' && i > 0 {
			return env[:i], env[i+1:], true
		}
	}
	return "", "", false
}

// takeTerminal makes a terminal of the container this process's controlling terminal and standard streams, and sends
// its other side to the process that started the stage.
func takeTerminal() error {
	master, err := unix.Open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a terminal: %w", err)
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock the terminal: %w", err)
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return fmt.Errorf("ask for the terminal: %w", err)
	}
	slave, err := unix.Open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the terminal: %w", err)
	}
	if err := unix.Sendmsg(controlFd, []byte{0}, unix.UnixRights(master), nil, 0); err != nil {
		return fmt.Errorf("hand over the terminal: %w", err)
	}
	if err := unix.IoctlSetInt(slave, unix.TIOCSCTTY, 0); err != nil {
		return fmt.Errorf("control the terminal: %w", err)
	}
	for fd := range 3 {
		if err := unix.Dup3(slave, fd, 0); err != nil {
			return fmt.Errorf("use the terminal: %w", err)
		}
	}
	return nil
}
