// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// logLimit is how many bytes of a container's output are kept; the oldest lines go first.
const logLimit = 4 << 20

// output is what a container has printed, and where it goes. Its writers may be used concurrently.
type output struct {
	mu       sync.Mutex
	lines    []line
	first    int // the number of the first line that is kept
	size     int
	partial  map[io.Writer][]byte // the beginning of a line of each stream
	attached []*attachment
	ended    bool
	changed  chan struct{}
}

type line struct {
	at   time.Time
	text []byte // with its newline, if it has one
}

// attachment is a client that sees what a container prints from now on.
type attachment struct{ out, err io.Writer }

// stream is one of a container's two output streams.
type stream struct {
	output *output
	isErr  bool
}

func newOutput() *output {
	return &output{partial: map[io.Writer][]byte{}, changed: make(chan struct{})}
}

// streams returns the writers for standard output and standard error.
func (o *output) streams() (out, err io.Writer) {
	return &stream{output: o}, &stream{output: o, isErr: true}
}

// Write implements io.Writer. It never fails.
func (s *stream) Write(data []byte) (int, error) {
	o := s.output
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range o.attached {
		if to := a.to(s.isErr); to != nil {
			_, _ = to.Write(data) // a client that is gone is detached by its end
		}
	}
	rest := append(o.partial[s], data...)
	for {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 && len(rest) < 16<<10 {
			break
		}
		if i < 0 {
			i = len(rest) - 1
		}
		o.addLocked(slices.Clone(rest[:i+1]))
		rest = rest[i+1:]
	}
	o.partial[s] = slices.Clone(rest)
	return len(data), nil
}

func (a *attachment) to(isErr bool) io.Writer {
	if isErr {
		return a.err
	}
	return a.out
}

func (o *output) addLocked(text []byte) {
	o.lines = append(o.lines, line{time.Now().UTC(), text})
	for o.size += len(text); o.size > logLimit && len(o.lines) > 1; o.first++ {
		o.size -= len(o.lines[0].text)
		o.lines = o.lines[1:]
	}
	o.wakeLocked()
}

func (o *output) wakeLocked() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// end says that no more comes.
func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, rest := range o.partial {
		if len(rest) > 0 {
			o.addLocked(rest)
		}
	}
	clear(o.partial)
	o.ended = true
	o.wakeLocked()
}

// attach sends what comes to writers until the returned function is called.
func (o *output) attach(out, err io.Writer) (detach func()) {
	a := &attachment{out, err}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attached = append(o.attached, a)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.attached = slices.DeleteFunc(o.attached, func(x *attachment) bool { return x == a })
	}
}

// since returns the lines from a number on, the number of the next, a channel that is closed when there are more, and
// whether no more come.
func (o *output) since(number int) (lines []line, next int, changed <-chan struct{}, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	skip := min(max(number-o.first, 0), len(o.lines))
	return slices.Clone(o.lines[skip:]), o.first + len(o.lines), o.changed, o.ended
}

// print writes the lines that the options select. With Follow it ends with the output or ctx.
func (o *output) print(ctx context.Context, options *corev1.PodLogOptions, w io.Writer) error {
	lines, next, changed, ended := o.since(0)
	if from := begin(options); !from.IsZero() {
		lines = slices.DeleteFunc(lines, func(l line) bool { return l.at.Before(from) })
	}
	if n := options.TailLines; n != nil && int64(len(lines)) > *n {
		lines = lines[int64(len(lines))-*n:]
	}
	left := int64(-1) // bytes; no limit
	if options.LimitBytes != nil {
		left = *options.LimitBytes
	}
	for {
		for _, l := range lines {
			text := l.text
			if options.Timestamps {
				text = append([]byte(l.at.Format(time.RFC3339Nano)+" "), text...)
			}
			if left >= 0 && int64(len(text)) > left {
				text = text[:left]
			}
			if _, err := w.Write(text); err != nil {
				return err
			}
			if left >= 0 {
				if left -= int64(len(text)); left == 0 {
					return nil
				}
			}
		}
		if !options.Follow || ended {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
		lines, next, changed, ended = o.since(next)
	}
}

// begin returns the time from which on a client wants lines, or the zero time.
func begin(options *corev1.PodLogOptions) time.Time {
	switch {
	case options.SinceTime != nil:
		return options.SinceTime.Time
	case options.SinceSeconds != nil:
		return time.Now().Add(-time.Duration(*options.SinceSeconds) * time.Second)
	}
	return time.Time{}
}
