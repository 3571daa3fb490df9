// SPDX-License-Identifier: Apache-2.0

package container

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// passedOn are the signals that process 1 passes to the program's process group.
var passedOn = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

// supervise starts the program and stays as process 1 until the program ends. Then the kernel ends what is left of the
// container. It returns only if the program cannot start.
func (s *stage) supervise(path string) error {
	unix.CloseOnExec(statusFd)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn...)
	pid, err := syscall.ForkExec(path, s.Args, &syscall.ProcAttr{
		Env: s.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return fmt.Errorf("exec %s: %w", path, err)
	}
	_ = unix.Close(controlFd) // it says that the program runs
	go func() {
		for got := range signals {
			_ = unix.Kill(-pid, got.(syscall.Signal)) // fails if the group has ended
		}
	}()
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		if err == nil && ended == pid {
			_, _ = unix.Write(statusFd, binary.NativeEndian.AppendUint32(nil, uint32(status)))
			os.Exit(0)
		}
	}
}
