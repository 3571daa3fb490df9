// SPDX-License-Identifier: Apache-2.0

// Package control is how a command reaches the process of a lab: by a Unix socket, one connection for each request.
//
// The command passes its standard streams along with the request (SCM_RIGHTS, unix(7)). The lab's process writes to
// them itself, and hands them to the programs that it starts. The reply only says how it ended. When the command ends
// its side of the connection, or is killed, the request is cancelled.
package control

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Call is a request as the lab's process sees it.
type Call struct {
	Command string
	args    json.RawMessage
	// Stdin, Stdout and Stderr are the streams of the command.
	Stdin, Stdout, Stderr *os.File
	// Resized gets a value when the size of the command's terminal has changed.
	Resized <-chan struct{}
}

// Args decodes the arguments.
func (c *Call) Args(into any) error {
	if err := json.Unmarshal(c.args, into); err != nil {
		return fmt.Errorf("%s: %w", c.Command, err)
	}
	return nil
}

// Handler carries out a request. The result becomes JSON. An ExitError sets the exit code of the command.
type Handler func(ctx context.Context, call *Call) (result any, err error)

// ExitError is the end of a program with another exit code than 0.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// ErrEnded reports that the lab's process ended before it replied.
var ErrEnded = errors.New("the lab has ended")

// Request is a request as the command makes it.
type Request struct {
	Command string
	Args    any         // becomes JSON
	Stdio   [3]*os.File // standard input, output and error
	Result  any         // if not nil, the result is decoded into it
	// Resized, if not nil, tells that the size of the terminal has changed.
	Resized <-chan os.Signal
}

type request struct {
	Command string          `json:"command"`
	Args    json.RawMessage `json:"args"`
}

type reply struct {
	Error  string          `json:"error,omitempty"`
	Code   int             `json:"code,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

const streams = len(Request{}.Stdio)

// streamNames are the names of the streams in errors.
var streamNames = [streams]string{"stdin", "stdout", "stderr"}

// cancelLimit is how long a cancelled request may take to end.
const cancelLimit = 5 * time.Second

// Do sends a request to a lab's socket and waits for its end. When the context ends, the request is cancelled.
func Do(ctx context.Context, socket string, r Request) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	defer conn.Close()
	if err := r.send(conn); err != nil {
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-r.Resized:
				_, _ = conn.Write([]byte{0}) // fails only when the lab has ended
			case <-ctx.Done():
				_ = conn.CloseWrite()
				_ = conn.SetReadDeadline(time.Now().Add(cancelLimit))
				return
			case <-over:
				return
			}
		}
	}()
	return r.reply(ctx, conn)
}

// reply waits for the end of the request.
func (r *Request) reply(ctx context.Context, conn net.Conn) error {
	var got reply
	if err := json.NewDecoder(conn).Decode(&got); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return ErrEnded
	}
	switch {
	case got.Error != "":
		return errors.New(got.Error)
	case got.Code != 0:
		return &ExitError{Code: got.Code}
	case r.Result != nil && got.Result != nil:
		return json.Unmarshal(got.Result, r.Result)
	}
	return nil
}

// send sends a request: its length together with the streams, then its text.
func (r *Request) send(conn *net.UnixConn) error {
	args, err := json.Marshal(r.Args)
	if err != nil {
		return err
	}
	text, err := json.Marshal(request{Command: r.Command, Args: args})
	if err != nil {
		return err
	}
	length := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
	rights := unix.UnixRights(int(r.Stdio[0].Fd()), int(r.Stdio[1].Fd()), int(r.Stdio[2].Fd()))
	if _, _, err := conn.WriteMsgUnix(length, rights, nil); err != nil {
		return err
	}
	_, err = conn.Write(text)
	return err
}

// Serve carries out requests until the listener is closed.
func Serve(ctx context.Context, l *net.UnixListener, handle Handler) {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // a client that went away, or no free descriptor
		}
		go serve(ctx, conn, handle)
	}
}

func serve(ctx context.Context, conn *net.UnixConn, handle Handler) {
	defer conn.Close()
	call, err := receive(conn)
	if err != nil {
		answer(conn, nil, fmt.Errorf("read the request: %w", err))
		return
	}
	defer call.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resized := make(chan struct{}, 1)
	call.Resized = resized
	go func() {
		for note := make([]byte, 1); ; {
			if _, err := conn.Read(note); err != nil {
				cancel(errors.New("the command was ended"))
				return
			}
			select {
			case resized <- struct{}{}:
			default: // a note is waiting already
			}
		}
	}()
	result, err := handle(ctx, call)
	answer(conn, result, err)
}

func (c *Call) close() {
	c.Stdin.Close()
	c.Stdout.Close()
	c.Stderr.Close()
}

// answer replies. A client that has gone away does not get to know.
func answer(conn *net.UnixConn, result any, err error) {
	var r reply
	exit := (*ExitError)(nil)
	switch {
	case errors.As(err, &exit):
		r.Code = exit.Code
	case isUnread(err):
		r.Code = 128 + int(unix.SIGPIPE) // as a shell says of a program that this signal has ended
	case err != nil:
		r.Error = err.Error()
	case result != nil:
		if r.Result, err = json.Marshal(result); err != nil {
			r.Error = err.Error()
		}
	}
	_ = json.NewEncoder(conn).Encode(r)
}

// isUnread reports whether a command could not write because nobody reads its output any more, as with "| head -1".
func isUnread(err error) bool {
	at := (*fs.PathError)(nil)
	return errors.As(err, &at) && at.Path == streamNames[1] && errors.Is(at.Err, unix.EPIPE)
}

// receive reads a request and its streams.
func receive(conn *net.UnixConn) (*Call, error) {
	length, rights := make([]byte, 4), make([]byte, unix.CmsgSpace(4*streams))
	n, nr, _, _, err := conn.ReadMsgUnix(length, rights)
	if err != nil {
		return nil, err
	}
	files, err := filesOf(rights[:nr])
	if err != nil {
		return nil, err
	}
	call := &Call{Stdin: files[0], Stdout: files[1], Stderr: files[2]}
	if _, err := io.ReadFull(conn, length[n:]); err != nil {
		call.close()
		return nil, err
	}
	text := make([]byte, binary.BigEndian.Uint32(length))
	var r request
	_, err = io.ReadFull(conn, text)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		call.close()
		return nil, err
	}
	call.Command, call.args = r.Command, r.Args
	return call, nil
}

// filesOf returns the files that came with a message.
func filesOf(rights []byte) (files [streams]*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return files, err
	}
	var fds []int
	for _, m := range messages {
		more, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		fds = append(fds, more...)
	}
	if len(fds) != streams {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return files, fmt.Errorf("%d streams came with it, want %d", len(fds), streams)
	}
	for i, fd := range fds {
		files[i] = os.NewFile(uintptr(fd), streamNames[i])
	}
	return files, nil
}
