// SPDX-License-Identifier: Apache-2.0

package container

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// IO connects a program. A nil reader is an empty input, a nil writer discards.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	// TTY gives the program a terminal, which prints to Out.
	TTY bool
}

// Process is a program that has been started in a container.
type Process struct {
	cmd  *exec.Cmd
	tty  *os.File // the controlling side of its terminal, or nil
	init *os.File // where process 1 writes how the program below it has ended, or nil
	done chan struct{}

	status syscall.WaitStatus // how the program ended; written before done is closed
}

// StartError reports that a program could not be started, because of its command, its files or the image.
type StartError struct{ Detail string }

func (e *StartError) Error() string { return e.Detail }

// outputDelay is how long output is read after a program has ended whose children still hold it open.
const outputDelay = time.Second

// launch starts this executable as a stage on a thread that enter has moved. It calls created before the stage sets
// out, and returns when the stage has become the program.
func launch(s stage, streams IO, clone uintptr, enter func() error, created func(pid int) error,
	extra ...*os.File) (*Process, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"viplab-container"}
	cmd.Env = []string{marker + "=1"}
	cmd.Dir = "/"
	cmd.ExtraFiles = append([]*os.File{theirs}, extra...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: clone, Setsid: true}
	cmd.WaitDelay = outputDelay
	p := &Process{cmd: cmd, done: make(chan struct{})}
	input, err := p.connect(streams)
	if err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	var status *os.File
	if s.Init {
		if p.init, status, err = os.Pipe(); err != nil {
			return nil, errors.Join(err, theirs.Close())
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, status)
	}
	err = netns.OnOwnThread(func() error {
		if err := enter(); err != nil {
			return err
		}
		return cmd.Start()
	})
	theirs.Close()
	if status != nil {
		status.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("start a container: %w", errors.Join(err, p.closeInit()))
	}
	if created != nil {
		err = created(cmd.Process.Pid)
	}
	if err == nil {
		p.tty, err = instruct(ours, s)
	}
	if err != nil {
		cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, errors.Join(err, p.closeInit())
	}
	go p.run(streams, input)
	return p, nil
}

// connect gives the command its standard streams, unless they will be a terminal, and returns the writer of its input.
func (p *Process) connect(streams IO) (io.WriteCloser, error) {
	if streams.TTY {
		return nil, nil
	}
	p.cmd.Stdout, p.cmd.Stderr = streams.Out, streams.Err
	if streams.In == nil {
		return nil, nil
	}
	return p.cmd.StdinPipe()
}

// instruct tells the stage what to do, and returns its terminal, if it has one, when it has become the program.
func instruct(conn *net.UnixConn, s stage) (*os.File, error) {
	if err := json.NewEncoder(conn).Encode(s); err != nil {
		return nil, fmt.Errorf("start a container: %w", err)
	}
	if err := conn.CloseWrite(); err != nil {
		return nil, fmt.Errorf("start a container: %w", err)
	}
	var message []byte
	var tty *os.File
	data, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	for {
		n, r, _, _, err := conn.ReadMsgUnix(data, rights)
		message = append(message, data[:max(n, 0)]...)
		if r > 0 {
			tty = terminalOf(rights[:r])
			message = message[:0] // the byte that carried it
		}
		if err == nil && n > 0 {
			continue
		}
		if len(message) == 0 && (err == nil || errors.Is(err, io.EOF)) {
			return tty, nil
		}
		if tty != nil {
			tty.Close()
		}
		if len(message) > 0 {
			return nil, &StartError{string(message)}
		}
		return nil, fmt.Errorf("start a container: %w", err)
	}
}

func terminalOf(rights []byte) *os.File {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) == 0 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return nil
	}
	unix.CloseOnExec(fds[0])
	_ = unix.SetNonblock(fds[0], true) // so that Close ends a read
	return os.NewFile(uintptr(fds[0]), "terminal")
}

// run passes data until the program has ended.
func (p *Process) run(streams IO, input io.WriteCloser) {
	defer close(p.done)
	var copying sync.WaitGroup
	if p.tty != nil {
		input = p.tty
		copying.Go(func() { // ends with an error when the last process has closed the terminal
			out := streams.Out
			if out == nil {
				out = io.Discard
			}
			_, _ = io.Copy(out, p.tty)
		})
	}
	if streams.In != nil && input != nil {
		go func() { // ends with the reader, or at the first data after the program's end
			_, _ = io.Copy(input, streams.In)
			if p.tty == nil {
				_ = input.Close()
			}
		}()
	}
	_ = p.cmd.Wait() // the state says how it ended
	p.status = p.ending()
	if p.tty != nil {
		_ = p.tty.SetReadDeadline(time.Now().Add(outputDelay))
		copying.Wait()
		p.tty.Close()
	}
}

// ending returns how the program has ended: as process 1 has written, unless the program was process 1 itself or was
// killed with it.
func (p *Process) ending() syscall.WaitStatus {
	if p.init != nil {
		var written [4]byte
		_, err := io.ReadFull(p.init, written[:])
		if err = errors.Join(err, p.init.Close()); err == nil {
			return syscall.WaitStatus(binary.NativeEndian.Uint32(written[:]))
		}
	}
	return p.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func (p *Process) closeInit() error {
	if p.init == nil {
		return nil
	}
	return p.init.Close()
}

// Done returns a channel that is closed when the program has ended and its output has been passed on.
func (p *Process) Done() <-chan struct{} { return p.done }

// Pid returns the number of the process: of process 1 of a container, or of a program that Exec has started.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Status returns how the program has ended. It waits for the end.
func (p *Process) Status() syscall.WaitStatus {
	<-p.done
	return p.status
}

// ExitCode returns the exit code of a program that has ended, or 128 plus the number of the signal that ended it.
func (p *Process) ExitCode() int {
	if status := p.Status(); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.status.ExitStatus()
}

// Signal sends a signal to the program. One that has ended is no error.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Kill kills the program and what it has started, except programs that have left its process group. If the program has
// ended, it does nothing.
func (p *Process) Kill() {
	select {
	case <-p.done:
	default:
		_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL) // fails if there is nothing left
	}
}

// Resize sets the size of the program's terminal in characters. Without a terminal it does nothing.
func (p *Process) Resize(width, height uint16) error {
	if p.tty == nil {
		return nil
	}
	raw, err := p.tty.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width})
	})
	return errors.Join(err, set)
}

func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	file := os.NewFile(uintptr(pair[0]), "container")
	defer file.Close()
	theirs = os.NewFile(uintptr(pair[1]), "container")
	conn, err := net.FileConn(file)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}
