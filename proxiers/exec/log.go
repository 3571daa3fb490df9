// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// keepFirst and keepLast are the number of bytes kept of a command's output: the beginning, which shows its
// configuration, and the newest part, which shows its end. Up to keepLast further bytes may lie between them, so that
// the file is not rewritten on every write.
const keepFirst, keepLast = 256 << 10, 512 << 10

// logFile writes the output of a command to a file of bounded size. It is safe for concurrent use.
type logFile struct {
	mu    sync.Mutex
	file  *os.File
	size  int64 // of the file
	total int64 // the number of bytes ever written
}

func newLogFile(path string) (*logFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	return &logFile{file: f}, nil
}

// Write appends to the file, and cuts out the middle once the file is too long.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.file.WriteAt(p, l.size)
	l.size += int64(n)
	l.total += int64(n)
	if err == nil && l.size > keepFirst+2*keepLast {
		err = l.shorten()
	}
	return n, err
}

func (l *logFile) shorten() error {
	last := make([]byte, keepLast)
	if _, err := l.file.ReadAt(last, l.size-keepLast); err != nil {
		return err
	}
	mark := fmt.Sprintf("\n[%d bytes left out]\n", l.total-keepFirst-keepLast)
	text := append([]byte(mark), last...)
	if _, err := l.file.WriteAt(text, keepFirst); err != nil {
		return err
	}
	l.size = keepFirst + int64(len(text))
	return l.file.Truncate(l.size)
}

// tail returns the newest whole lines of the output, at most limit bytes.
func (l *logFile) tail(limit int64) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := max(0, l.size-limit)
	text := make([]byte, l.size-from)
	if _, err := l.file.ReadAt(text, from); err != nil && err != io.EOF {
		return fmt.Sprintf("(no log: %v)", err)
	}
	if from > 0 {
		if _, rest, found := strings.Cut(string(text), "\n"); found {
			return rest
		}
	}
	return string(text)
}

// lastLines returns the last few lines of the output for an error message. It truncates very long lines.
func (l *logFile) lastLines() string {
	const lines, width = 12, 300
	text := strings.TrimRight(l.tail(lines*width), "\n")
	if text == "" {
		return "it has written nothing"
	}
	all := strings.Split(text, "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		if len(line) > width {
			all[i] = line[:width] + "..."
		}
	}
	return "the end of its log:\n  " + strings.Join(all, "\n  ")
}

func (l *logFile) close() error { return l.file.Close() }
