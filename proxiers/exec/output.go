// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A command that writes more than paceBytes per paceTime (about 25 MB/s) has to wait, so that copying its output never
// starves other processes of CPU.
const paceBytes, paceTime = 512 << 10, 20 * time.Millisecond

// output copies what a process writes to a writer.
type output struct {
	from *os.File // the read end of a pipe, in non-blocking mode
	to   io.Writer

	mu    sync.Mutex // held from a read until the matching write is done
	chunk []byte
}

func newOutput(from *os.File, to io.Writer) *output {
	return &output{from: from, to: to, chunk: make([]byte, 64<<10)}
}

// drain copies the output until every writer has closed the pipe, or the read deadline has passed.
func (o *output) drain() {
	pace := time.NewTicker(paceTime)
	defer pace.Stop()
	raw, err := o.from.SyscallConn()
	for left := paceBytes; err == nil; {
		var n int
		var failed error
		err = raw.Read(func(fd uintptr) (done bool) {
			n, failed = o.take(int(fd))
			return failed != unix.EAGAIN
		})
		if err = errors.Join(err, failed); err != nil {
			return
		}
		if left -= n; left <= 0 {
			<-pace.C
			left = paceBytes
		}
	}
}

// take copies what is available, up to one chunk. It returns io.EOF at the end of the output, and EAGAIN if there is
// nothing to read now.
func (o *output) take(fd int) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := unix.Read(fd, o.chunk)
	switch {
	case err == unix.EINTR:
		return 0, nil
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	_, err = o.to.Write(o.chunk[:n]) // if it fails, for example because the disk is full, the command ends
	return n, err
}

// catchUp returns when everything that the process had written before the call is copied. At the end of the output it
// returns at once.
func (o *output) catchUp() {
	raw, err := o.from.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // it fails if the pipe is closed: everything was read
		for {
			if _, err := o.take(int(fd)); err != nil {
				return
			}
		}
	})
}
