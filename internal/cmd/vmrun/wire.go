// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A frame is one byte of kind, four bytes of length (big endian), and the payload.
//
//	host to guest   job     JSON, once, when the guest is ready
//	                signal  one byte: a signal for the command
//	                bye     all output has arrived: power off
//	guest to host   ready   the port passes all bytes as they are
//	                booted  the files are there, the command is about to start
//	                stdout, stderr
//	                exit    four bytes: the exit code
//	                fault   text: the guest could not run the command
type kind byte

const (
	kindJob    kind = 'j'
	kindSignal kind = 's'
	kindBye    kind = 'q'
	kindReady  kind = 'r'
	kindBooted kind = 'b'
	kindStdout kind = 'o'
	kindStderr kind = 'e'
	kindExit   kind = 'x'
	kindFault  kind = 'f'
)

// maxFrame bounds a payload: a longer one means that the stream is out of step.
const maxFrame = 1 << 20

// portName is how a guest of QEMU finds the port among its virtio serial ports.
const portName = "viplab"

// portVariable is the environment variable of /init with the port's device in user-mode Linux. Parameters of a kernel
// that it does not know become such variables (Documentation/admin-guide/kernel-parameters.rst).
const portVariable = "viplab_port"

// job is what the guest shall do.
type job struct {
	Args        []string
	Dir         string
	Env         []string
	Modules     string   // the folder that becomes /lib/modules
	Outs        []string // folders that the guest may write to; the N-th has the 9p tag outN in QEMU
	Interactive bool     // a shell on the console instead of Args
	Rows, Cols  uint16   // size of the terminal, if interactive
}

// wire sends and receives frames. Sending is safe for concurrent use.
type wire struct {
	mu sync.Mutex
	rw io.ReadWriter
}

func (w *wire) send(k kind, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	frame := make([]byte, 5, 5+len(payload))
	frame[0] = byte(k)
	binary.BigEndian.PutUint32(frame[1:], uint32(len(payload)))
	_, err := w.rw.Write(append(frame, payload...))
	return err
}

func (w *wire) receive() (kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(w.rw, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("frame %q of %d bytes", head[0], n)
	}
	payload := make([]byte, n)
	_, err := io.ReadFull(w.rw, payload)
	return kind(head[0]), payload, err
}

// stream is a Writer whose bytes travel as frames of one kind.
type stream struct {
	wire *wire
	kind kind
}

func (s stream) Write(p []byte) (int, error) {
	for sent := 0; sent < len(p); {
		n := min(len(p)-sent, maxFrame)
		if err := s.wire.send(s.kind, p[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
	return len(p), nil
}

func newJob(args []string, outs []string, k kernel) (job, error) {
	dir, err := os.Getwd()
	if err != nil {
		return job{}, err
	}
	j := job{Args: args, Dir: dir, Env: k.environ(), Modules: k.modules(), Outs: outs, Interactive: len(args) == 0}
	if j.Interactive {
		size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
		if err != nil {
			return job{}, fmt.Errorf("no command given, and standard input is no terminal for a shell: %w", err)
		}
		j.Rows, j.Cols = size.Row, size.Col
	}
	return j, nil
}
