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

// A command that writes more than paceBytes in a paceTime (some 25 MB/s) has to wait, so that taking its output never
// costs others their CPU.
const paceBytes, paceTime = 512 << 10, 20 * time.Millisecond

// output is what a process writes, on its way to whoever takes it.
type output struct {
	from *os.File // the read end of a pipe, in non-blocking mode
	to   io.Writer

	mu    sync.Mutex // held from reading something until it has been written
	chunk []byte
}

func newOutput(from *os.File, to io.Writer) *output {
	return &output{from: from, to: to, chunk: make([]byte, 64<<10)}
}

// drain takes the output until nobody can write any more, or the read deadline has passed.
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

// take moves on what is there to be read, as far as it fits. The end is io.EOF, and EAGAIN says that there is nothing
// now.
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
	_, err = o.to.Write(o.chunk[:n]) // no room on the disk: a reader that is gone ends the command, which then says so
	return n, err
}

// catchUp returns when everything has been moved on that the process had written before. At the end of the output there
// is nothing left.
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
