// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/release"
)

// built is the reply to a request, which is a release.Command.
type built struct{ Error string }

// ServeBuilds builds commands for a lab until this process ends, one after the other. A lab cannot build them itself:
// its sandbox has no network. ServeBuilds returns the lab's end of a socket.
func ServeBuilds() (*os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	ours := os.NewFile(uintptr(pair[0]), "builds")
	go func() {
		requests, replies := json.NewDecoder(ours), json.NewEncoder(ours)
		for {
			var c release.Command
			if requests.Decode(&c) != nil {
				return // the lab has ended
			}
			var reply built
			if err := c.Build(context.Background(), os.Stderr); err != nil {
				reply.Error = err.Error()
			}
			if replies.Encode(reply) != nil {
				return
			}
		}
	}()
	return os.NewFile(uintptr(pair[1]), "builds"), nil
}

// builds is the lab's side of ServeBuilds.
type builds struct {
	mu       sync.Mutex // one request at a time
	requests *json.Encoder
	replies  *json.Decoder
	underway singleflight.Group
}

func newBuilds(socket *os.File) *builds {
	return &builds{requests: json.NewEncoder(socket), replies: json.NewDecoder(socket)}
}

// provide returns when the command is there. Several callers at a time wait for the same build.
func (b *builds) provide(ctx context.Context, c release.Command, progress func(string)) error {
	path, err := c.Path()
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	progress(c.Announcement())
	done := b.underway.DoChan(c.String(), func() (any, error) { return nil, b.build(c) })
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *builds) build(c release.Command) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var reply built
	if err := errors.Join(b.requests.Encode(c), b.replies.Decode(&reply)); err != nil {
		return fmt.Errorf("build %s: %w", c, err)
	}
	if reply.Error != "" {
		return errors.New(reply.Error)
	}
	return nil
}
